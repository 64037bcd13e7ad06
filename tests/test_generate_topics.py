"""Workloads of topics as tables and as a command."""

import json

import pytest
from chispa import assert_df_equality

from jobs import generate
from pubsub_graph.errors import BadInput
from pubsub_graph.tables import INTERESTS
from pubsub_graph.workloads import TOPIC_WORKLOADS, TopicWorkloadParams, topics_workload
from udfs.kernels.topic_workload import Popular
from udfs.workload import INTERESTS_GENERATED, interests_of_nodes


def test_the_table_is_the_same_for_any_number_of_partitions(spark):
    model = Popular(7, 300, 100, "zipf")
    one, five = (spark.range(0, 300, 1, parts).mapInArrow(interests_of_nodes(model), INTERESTS_GENERATED) for parts in (1, 5))
    assert INTERESTS_GENERATED == INTERESTS
    assert one.count() > 300 * 30
    assert_df_equality(one, five, ignore_row_order=True)
    assert_df_equality(one, topics_workload(spark, TopicWorkloadParams("topics-zipf", 300, 100, seed=7)).interests, ignore_row_order=True)


@pytest.mark.parametrize("name", TOPIC_WORKLOADS)
def test_generate_writes_interests_and_figures(spark, tmp_path, capsys, name):
    arguments = ["--workload", name, "--nodes", "200", "--topics", "64", "--subscription-size", "10", "--bulk-share", "0.05", "--bulk-size", "40"]
    assert generate.main([*arguments, "--light-size", "3", "--seed", "5", "--out", f"{tmp_path}/in"]) == 0
    nodes = 127 if name == "topics-lemma8" else 200
    assert f"{name}: {nodes} nodes, 64 topics in {tmp_path}/in" in capsys.readouterr().out
    figures = json.loads((tmp_path / "in" / "workload.json").read_text())
    assert figures["workload"] == name and figures["nodes"] == nodes and figures["topics"] == 64 and figures["seed"] == 5
    table = spark.read.parquet(f"{tmp_path}/in/interests")
    assert table.select("node_id").distinct().count() == nodes and table.distinct().count() == table.count()
    sizes = [row["count"] for row in table.groupBy("node_id").count().collect()]
    if name == "topics-sparse-bulk":
        assert sizes.count(40) == 10 and {size for size in sizes if size != 40} == {2, 3, 4}
    elif name == "topics-lemma8":
        assert sorted(sizes) == sorted(64 >> i for i in range(7) for _ in range(2**i))
    elif name != "topics-communities":
        assert min(sizes) == 2 and max(sizes) == 18 and sum(size >= 16 for size in sizes) == 40


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--workload", "topics-magic"], "workload 'topics-magic' is not known; there are topics-uniform"),
        (["--workload", "topics-zipf", "--nodes", "0"], "nodes is 0"),
        (["--workload", "topics-zipf", "--topics", "-3"], "topics is -3"),
        (["--workload", "topics-zipf", "--subscription-size", "nan"], "mean_size is nan"),
        (["--workload", "topics-lemma8", "--topics", "48"], "needs a power of two, such as 32 or 64"),
        (["--workload", "topics-sparse-bulk", "--bulk-share", "1.5"], "bulk_share is 1.5"),
        (["--workload", "topics-sparse-bulk", "--light-size", "1"], "light_size is 1.0"),
        (["--workload", "topics-sparse-bulk", "--bulk-size", "0"], "bulk_size is 0"),
    ],
)
def test_bad_parameters_are_status_2_and_write_nothing(spark, tmp_path, capsys, arguments, message):
    assert generate.main([*arguments, "--out", f"{tmp_path}/none"]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "none").exists()


def test_all_findings_come_at_once():
    with pytest.raises(BadInput) as caught:
        TopicWorkloadParams("topics-none", nodes=0, topics=0, bulk_share=-1)
    assert all(text in str(caught.value) for text in ("topics-none", "nodes is 0", "topics is 0", "bulk_share is -1"))
