"""The commands, in this process: exit statuses, what is written, and that nothing is half-written."""

import json
from pathlib import Path

import pytest

from jobs import assign, compare, generate, topics, verify
from jobs.frame import open_lineage
from pubsub_graph.tables import INTERESTS


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    place = tmp_path_factory.mktemp("jobs")
    assert generate.main(["--workload", "set1-hh", "--subscribers", "2000", "--brokers", "15", "--seed", "3", "--out", f"{place}/in"]) == 0
    return place


def test_plan_verify_compare(made, capsys):
    assert assign.main(["--input", f"{made}/in", "--out", f"{made}/star", "--algorithm", "gr-star", "--preset", "set1", "--lbf-max", "1.7"]) == 0
    metrics = json.loads((made / "star" / "metrics.json").read_text())
    assert metrics["feasible"] and metrics["violations"] == {} and metrics["parameters"]["lbf_max"] == 1.7  # an argument wins
    assert {"algorithm", "seed", "seconds", "bandwidth", "bandwidth_sum", "rms_delay", "max_delay", "lbf", "load_stdev"} <= set(metrics)
    assert "total" in metrics["seconds"]
    assert verify.main(["--input", f"{made}/in", "--plan", f"{made}/star"]) == 0
    assert "the plan holds" in capsys.readouterr().out
    assert compare.main(["--plan", f"{made}/star", "--plan", f"{made}/star"]) == 0
    assert capsys.readouterr().out.count("gr-star") == 2


def test_status_3_writes_the_best_effort(made, capsys):
    status = assign.main(["--input", f"{made}/in", "--out", f"{made}/tight", "--algorithm", "gr-star", "--max-delay", "0", "--lbf", "1", "--lbf-max", "1"])
    assert status == 3
    assert json.loads((made / "tight" / "metrics.json").read_text())["feasible"] is False
    assert "no assignment within the latency limits gets below" in capsys.readouterr().err
    assert verify.main(["--input", f"{made}/in", "--plan", f"{made}/tight"]) == 3


def test_a_tampered_plan_does_not_verify(made):
    assert assign.main(["--input", f"{made}/in", "--out", f"{made}/forged", "--algorithm", "closest-no-balance", "--lbf", "9", "--lbf-max", "9"]) in (0, 3)
    path = Path(f"{made}/forged/metrics.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"bandwidth": 1.0, "feasible": True}))
    assert verify.main(["--input", f"{made}/in", "--plan", f"{made}/forged"]) == 3


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--algorithm", "magic"], "invalid choice: 'magic'"),
        (["--algorithm", "gr", "--lbf", "0.5"], "lbf is 0.5"),
        (["--algorithm", "gr", "--preset", "nope"], "no preset 'nope'"),
        (["--algorithm", "closest", "--sharded"], "--sharded is for gr"),
        (["--algorithm", "gr", "--conf", "oops"], "is not KEY=VALUE"),
        (["--algorithm", "gr", "--shard-rows", "0"], "shard_rows is 0"),
    ],
)
def test_status_2_writes_nothing(made, capsys, arguments, message):
    assert assign.main(["--input", f"{made}/in", "--out", f"{made}/none", *arguments]) == 2
    assert message in capsys.readouterr().err and not (made / "none").exists()


def test_missing_input_is_status_2(made, capsys):
    assert assign.main(["--input", f"{made}/nowhere", "--out", f"{made}/none", "--algorithm", "gr"]) == 2
    assert "there is no table 'brokers'" in capsys.readouterr().err
    assert verify.main(["--input", f"{made}/in", "--plan", f"{made}/nowhere"]) == 2


def test_catalog_tables_end_to_end(spark, capsys):
    spark.sql("CREATE DATABASE IF NOT EXISTS house")
    try:
        assert generate.main(["--workload", "set3", "--subscribers", "500", "--brokers", "5", "--tables", "house"]) == 0
        assert assign.main(["--tables", "house", "--algorithm", "balance", "--lbf", "2", "--lbf-max", "3"]) == 0
        assert spark.table("house.assignment").count() == 500
        again = ["--tables", "house", "--algorithm", "slp", "--effort", "0.02", "--lbf", "2", "--lbf-max", "3", "--quiet"]
        assert assign.main([*again, "--start", "nowhere"]) == 2 and "there is no table 'assignment' in nowhere" in capsys.readouterr().err
        assert assign.main([*again, "--start", "house"]) == 0 and spark.table("house.assignment").count() == 500
    finally:
        spark.sql("DROP DATABASE house CASCADE")


def test_rounds_survive_a_lost_executor_where_there_is_shared_storage(spark, tmp_path):
    assert open_lineage(spark).mode == "local"
    spark.conf.set("spark.checkpoint.dir", str(tmp_path))
    try:
        lineage = open_lineage(spark)
        assert lineage.mode == "reliable" and lineage.cut(spark.range(4)).count() == 4
    finally:
        spark.conf.unset("spark.checkpoint.dir")


def test_a_catalog_overlay_is_repaired_in_its_place(spark, capsys):
    spark.sql("CREATE DATABASE IF NOT EXISTS links")
    try:
        assert generate.main(["--workload", "topics-zipf", "--nodes", "60", "--topics", "12", "--tables", "links"]) == 0
        assert topics.main(["--tables", "links", "--algorithm", "gm-m"]) == 0
        before = {tuple(row) for row in spark.table("links.edges").collect()}
        spark.createDataFrame([(1000, 3), (1000, 5)], INTERESTS).write.insertInto("links.interests")
        assert topics.main(["--tables", "links", "--previous", "nowhere"]) == 2
        assert "there is no table" in capsys.readouterr().err
        assert topics.main(["--tables", "links", "--previous", "links"]) == 0
        after = {tuple(row) for row in spark.table("links.edges").collect()}
        assert before < after and 1000 in {end for link in after for end in link}
        assert verify.main(["--tables", "links"]) == 0
    finally:
        spark.sql("DROP DATABASE links CASCADE")


def test_a_script_or_wheel_task_raises_its_status(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["assign", "--algorithm", "magic"])
    with pytest.raises(SystemExit) as caught:
        assign.main()
    assert caught.value.code == 2
