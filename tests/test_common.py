"""Tables, sampling, lineage, progress and the job frame."""

import io
import json

import numpy as np
import pytest
from chispa.dataframe_comparer import assert_df_equality
from pyspark.sql import functions as F

from jobs import frame
from pubsub_graph.errors import BadInput, MissingGraphFrames
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.sampling import reservoir, reservoir_per_group, uniform, uniform_sample
from pubsub_graph.session import require_graphframes
from pubsub_graph.tables import FILTERS, Tables, conform


def test_a_written_table_reads_back(spark, tmp_path):
    table = spark.createDataFrame([(1, [0.0], [1.0])], FILTERS)
    place = Tables(spark, str(tmp_path / "plan"))
    place.write({"filters": table}, {"cost": np.float64(1.5)})
    assert_df_equality(place.read("filters", FILTERS), table)
    assert place.read_json() == {"cost": 1.5}
    place.write({"filters": table.limit(0)}, {"cost": 0})  # a plan of ours is replaced
    assert place.read("filters", FILTERS).count() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_a_failed_write_leaves_nothing(spark, tmp_path):
    good = spark.createDataFrame([(1, [0.0], [1.0])], FILTERS)
    bad = good.select(F.raise_error(F.lit("broken")).cast("string").alias("x"))
    with pytest.raises(Exception, match="broken"):
        Tables(spark, str(tmp_path / "plan")).write({"filters": good, "bad": bad}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_others_is_not_overwritten(spark, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"holds other things \(thesis.txt\)"):
        Tables(spark, str(tmp_path)).check_writable()


def test_catalog_tables(spark):
    spark.sql("CREATE DATABASE IF NOT EXISTS plans")
    table = spark.createDataFrame([(1, [0.0], [1.0])], FILTERS)
    place = Tables(spark, "plans", catalog=True)
    try:
        place.write({"filters": table}, {"cost": 2})
        place.write({"filters": table}, {"cost": 3})
        assert_df_equality(place.read("filters", FILTERS), table)
        assert place.read_json() == {"cost": 3}
        assert {row.tableName for row in spark.sql("SHOW TABLES IN plans").collect()} == {"filters", "metrics"}
        assert place.read_if_there("events", FILTERS) is None
    finally:
        spark.sql("DROP DATABASE plans CASCADE")


def test_missing_tables_and_columns_are_named(spark, tmp_path):
    with pytest.raises(BadInput, match="no table 'filters'"):
        Tables(spark, str(tmp_path)).read("filters", FILTERS)
    with pytest.raises(BadInput, match="no column low, high; found broker_id"):
        conform(spark.range(1).toDF("broker_id"), FILTERS, "filters")
    with pytest.raises(BadInput, match="column low is bigint, it must be array<double>"):
        conform(spark.range(1).selectExpr("id broker_id", "id low", "array(1.0) high"), FILTERS, "filters")
    (tmp_path / "filters").mkdir()
    (tmp_path / "filters" / "part.parquet").write_text("not parquet")
    with pytest.raises(Exception, match=r"[Pp]arquet"):
        Tables(spark, str(tmp_path)).read("filters", FILTERS).count()


def test_samples_do_not_depend_on_partitions(spark):
    def ids(table):
        return sorted(row[0] for row in table.select("id").collect())

    table = spark.range(5000).withColumn("w", F.when(F.col("id") < 100, 50.0).otherwise(1.0)).withColumn("g", F.col("id") % 3)
    for draw in (
        lambda t: uniform_sample(t, 0.1, "id", 7),
        lambda t: reservoir(t, 200, "id", 7),
        lambda t: reservoir(t, 200, "id", 7, weight="w"),
        lambda t: reservoir_per_group(t, 20, "g", "id", 7, weight="w"),
    ):
        first = ids(draw(table.repartition(1)))
        assert first == ids(draw(table.repartition(3))) == ids(draw(table.repartition(8)))
        assert 0 < len(first) < 5000
    heavy = [i for i in ids(reservoir(table, 100, "id", 7, weight="w")) if i < 100]
    assert 35 < len(heavy) < 65  # half of the weight is theirs at first
    assert ids(reservoir(table, 100, "id", 7)) != ids(reservoir(table, 100, "id", 8))
    groups = reservoir_per_group(table, 20, "g", "id", 7).groupBy("g").count().collect()
    assert [row["count"] for row in groups] == [20, 20, 20]


def test_uniform_is_uniform_and_zero_weights_are_never_drawn(spark):
    row = spark.range(20_000).select(uniform(3, 1, "id").alias("u")).agg(F.avg("u"), F.min("u"), F.max("u")).first()
    assert abs(row[0] - 0.5) < 0.01 and 0 < row[1] < 0.001 and 0.999 < row[2] < 1
    assert reservoir(spark.range(10).withColumn("w", F.lit(0.0)), 5, "id", 1, weight="w").count() == 0


def test_lineage_is_cut_and_released_also_after_a_failure(spark):
    with pytest.raises(ZeroDivisionError), Lineage() as lineage:
        table = lineage.cut(spark.range(10).withColumn("x", F.col("id") * 2))
        kept = lineage.persist(table.withColumn("y", F.col("x") + 1))
        assert kept.count() == 10 and kept.storageLevel.useMemory
        assert "Range" not in table._jdf.queryExecution().optimizedPlan().toString()
        raise ZeroDivisionError
    assert not kept.storageLevel.useMemory
    with Lineage("reliable") as lineage:
        assert lineage.cut(spark.range(3)).count() == 3


def test_progress_is_a_line_a_step_where_there_is_no_terminal():
    stream = io.StringIO()
    progress = Progress(stream)
    with progress.stage("flow"):
        progress.tell("round 2", uncovered=1512, bound=3.14159e9)
    assert stream.getvalue().splitlines()[1].endswith("round 2: uncovered 1,512, bound 3.142e+09")
    assert set(progress.seconds) == {"flow"}


def test_presets(tmp_path):
    assert frame.preset("set1")["lbf_max"] == 1.8
    with pytest.raises(BadInput, match="there is no preset 'nope'; there are multilevel-loose"):
        frame.preset("nope")
    (tmp_path / "mine.json").write_text(json.dumps({"alpha": 5}))
    assert frame.preset(str(tmp_path / "mine.json")) == {"alpha": 5}
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(BadInput, match="is not JSON"):
        frame.preset(str(tmp_path / "bad.json"))


def test_graphframes_is_there_and_its_absence_is_explained(spark, monkeypatch):
    require_graphframes(spark)
    import builtins

    original = builtins.__import__

    def refuse(name, *rest, **more):
        if name == "graphframes":
            raise ImportError("no graphframes")
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingGraphFrames, match="pip install graphframes-py"):
        require_graphframes(spark)
