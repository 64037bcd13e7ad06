"""Topic planners on DataFrames: the verifier agrees with every plan, a seed gives one overlay, repairs touch little, errors say what to do."""

import json

import pytest
from chispa import assert_df_equality

from jobs import topics
from pubsub_graph.components import induced_components
from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.tables import EDGES, INTERESTS, Tables
from pubsub_graph.topics import (
    DivideParams,
    RepairParams,
    RingParams,
    ShardedParams,
    contributions,
    dcb_m,
    dcbr_m,
    degrees,
    gm_m,
    improve,
    lower_bound,
    make_topics_problem,
    naive,
    repair,
    ring,
    sharded,
)  # fmt: skip
from pubsub_graph.topics.improve import relieve
from pubsub_graph.topics.sharded import _packed, _Part
from pubsub_graph.verify import verify_topics
from pubsub_graph.workloads import TopicWorkloadParams, topics_workload

PLANNERS = {
    "gm-m": (gm_m, DivideParams(1)),
    "dcb-m": (dcb_m, DivideParams(1, parts=4)),
    "dcbr-m": (dcbr_m, DivideParams(1)),
    "naive": (naive, DivideParams(1, parts=4)),
    "ring": (ring, RingParams(1)),
    "sharded": (sharded, ShardedParams(1, shards=7)),
}


def planned(interests, planner, params, *more):
    return planner(make_topics_problem(interests), params, Lineage(), Progress(quiet=True), *more)


def links(plan):
    return sorted(map(tuple, plan.edges.collect()))


@pytest.fixture(scope="module")
def zipf(spark):
    return topics_workload(spark, TopicWorkloadParams("topics-zipf", 700, 60, 20.0, seed=3)).interests.persist()


@pytest.fixture(scope="module")
def overlay(zipf):
    return planned(zipf, sharded, ShardedParams(1, shards=7))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if name in ("dcb-m", "naive") else []) for name in PLANNERS])
def test_the_verifier_agrees(zipf, name):
    planner, params = PLANNERS[name]
    plan = planned(zipf, planner, params)
    report = verify_topics(zipf, plan.edges, plan.metrics)
    assert report.holds and plan.feasible and plan.metrics["topic_connected"], report.render()
    assert plan.metrics["algorithm"] == name and plan.metrics["nodes"] == 700
    assert 2 <= plan.metrics["lower_bound_max_degree"] <= plan.metrics["max_degree"]
    assert 0 < plan.metrics["pn_ratio"] <= 1


@pytest.mark.slow
def test_degrees_compare_as_the_paper_says(zipf, overlay):
    best, divided, rings = (planned(zipf, *PLANNERS[name]).metrics["max_degree"] for name in ("gm-m", "dcbr-m", "ring"))
    assert best <= divided < rings / 2
    assert overlay.metrics["max_degree"] <= best + 3
    assert overlay.metrics["avg_degree"] < planned(zipf, *PLANNERS["dcbr-m"]).metrics["avg_degree"]


def test_shards_are_combined_in_levels(zipf, monkeypatch):
    monkeypatch.setitem(sharded.__globals__, "GROUP_NODES", 100)
    monkeypatch.setitem(sharded.__globals__, "MERGED_NODES", 90)  # groups of two shards are connected topic class by topic class
    plan = planned(zipf, sharded, ShardedParams(1, shards=12, coverage=40, bulk_share=0.0))
    assert verify_topics(zipf, plan.edges, plan.metrics).holds
    assert len(plan.metrics["levels"]) >= 4 and plan.feasible
    assert plan.metrics["levels"][0]["parts"] == 12 and plan.metrics["levels"][-1]["parts"] == 1


@pytest.mark.parametrize("name", ["sharded", pytest.param("ring", marks=pytest.mark.slow)])
def test_same_seed_same_overlay_for_any_number_of_partitions(zipf, name):
    planner, params = PLANNERS[name]
    first, *others = [links(planned(zipf.repartition(n, "topic_id"), planner, params)) for n in (1, 3, 8)]
    assert all(other == first for other in others)
    assert links(planned(zipf, planner, type(params)(2, *list(vars(params).values())[1:]))) != first


def test_bulk_nodes_are_set_apart_where_they_would_be_hubs(spark):
    sparse = TopicWorkloadParams("topics-sparse-bulk", 1200, 300, bulk_share=0.01, bulk_size=150, light_size=3.0, seed=2)
    interests = topics_workload(spark, sparse).interests.persist()
    apart = planned(interests, sharded, ShardedParams(1, shards=6))
    mixed = planned(interests, sharded, ShardedParams(1, shards=6, bulk_share=0.0))
    assert apart.metrics["bulk_above"] is not None and mixed.metrics["bulk_above"] is None
    assert apart.metrics["max_degree"] < mixed.metrics["max_degree"]
    assert verify_topics(interests, apart.edges, apart.metrics).holds


def test_edge_cases(spark):
    def plan_of(rows):
        return planned(spark.createDataFrame(rows, INTERESTS), sharded, ShardedParams(1, shards=3))

    alone = plan_of([(5, 1)])
    assert links(alone) == [] and alone.feasible and alone.metrics["lower_bound_max_degree"] == 0
    assert links(plan_of([(5, 1), (9, 1)])) == [(5, 9)]
    assert links(plan_of([(5, 1), (9, 1), (5, 1), (7, 2)])) == [(5, 9)]  # a pair counts once, who shares nothing stays alone
    assert plan_of([(v, t) for v in range(9) for t in range(3)]).metrics["max_degree"] == 2  # all alike: a path will do


def test_groups_have_at_least_two_parts():
    parts = [_Part(i, 10, chosen, 1) for i, chosen in enumerate([400, 400, 400, 2000, 2000, 5])]
    assert [[p.number for p in group] for group in _packed(parts, 1000)] == [[0, 1], [2, 3], [4, 5]]
    assert [len(group) for group in _packed(parts[:5], 1000)] == [2, 3]
    assert len(_packed(parts[:1], 1000)) == 1


# ---------------------------------------------------------------- improvement


def test_improvement_of_everything(zipf, overlay):
    better = planned(zipf, sharded, ShardedParams(1, shards=7, improve=6.0))
    assert verify_topics(zipf, better.edges, better.metrics).holds
    assert (better.metrics["max_degree"], better.metrics["edges"]) <= (overlay.metrics["max_degree"], overlay.metrics["edges"])
    assert better.metrics["edges"] < overlay.metrics["edges"]


@pytest.mark.slow
def test_improvement_of_a_part_at_a_time(zipf, monkeypatch):
    """As for large overlays: some busy nodes with their neighbours, the rest by union-find."""
    plain = planned(zipf, *PLANNERS["dcbr-m"])
    for name, value in {"ONE_TASK_NODES": 10, "BUSY_NODES": 40, "PART_NODES": 200, "LEAST_SECONDS": 2.0}.items():
        monkeypatch.setitem(improve.__globals__, name, value)
    better = planned(zipf, dcbr_m, DivideParams(1, improve=4.0))
    assert verify_topics(zipf, better.edges, better.metrics).holds
    assert (better.metrics["max_degree"], better.metrics["edges"]) <= (plain.metrics["max_degree"], plain.metrics["edges"])


# ---------------------------------------------------------------- repair


def test_a_repair_touches_little(spark, zipf, overlay):
    """Some interests go, others come, nodes go and come: the overlay is mended, not planned anew."""
    gone = zipf.where("(node_id * 31 + topic_id * 17) % 97 <> 0 and node_id % 100 <> 3")
    come = spark.createDataFrame([(v, t) for v in range(0, 700, 9) for t in (1, 40, 59)] + [(5000 + v, t) for v in range(6) for t in (2, 30, 58)], INTERESTS)
    now = gone.union(come.where("node_id % 100 <> 3")).distinct().persist()
    plan = planned(now, repair, RepairParams(1), overlay.edges, overlay.metrics["max_degree"])
    assert plan.feasible and verify_topics(now, plan.edges, plan.metrics).holds
    m = plan.metrics
    assert m["links_kept"] + m["links_removed"] == overlay.metrics["edges"] and m["links_kept"] + m["links_added"] == m["edges"]
    before, after = set(links(overlay)), set(links(plan))
    assert len(before - after) == m["links_removed"] and len(after - before) == m["links_added"]
    gone_ends = {link for link in before if any(node % 100 == 3 for node in link)}
    assert gone_ends <= before - after and len(before - after - gone_ends) <= 60  # the others share no topic now, or were exchanged
    assert gone_ends and m["links_kept"] > 0.9 * len(before) and m["links_added"] < 0.15 * len(before)
    assert m["max_degree"] == m["scratch_max_degree"] == overlay.metrics["max_degree"]


@pytest.fixture(scope="module")
def demanding(spark, zipf, overlay):
    """The busiest nodes want topics that none of their neighbours wants: each must take a link, and has to give others away."""
    wants, near = {}, {}
    for v, t in zipf.collect():
        wants.setdefault(v, set()).add(t)
    for a, b in links(overlay):
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    busy = sorted((v for v in near if len(near[v]) == overlay.metrics["max_degree"]), key=lambda v: len(wants[v]))[:3]
    new = [(v, t) for v in busy for t in range(60) if t not in wants[v] and not any(t in wants[w] for w in near[v])][:9]
    assert new
    return zipf.union(spark.createDataFrame(new, INTERESTS)).persist()


@pytest.mark.parametrize("part", [2500, pytest.param(60, marks=pytest.mark.slow)])
def test_a_repair_relieves_nodes_that_had_to_go_beyond_the_cap(demanding, overlay, monkeypatch, part):
    """Also where a part of relief is not the whole overlay, and strays fall into several groups."""
    largest, now = overlay.metrics["max_degree"], demanding
    if part < 700:
        monkeypatch.setitem(relieve.__globals__, "PART_NODES", part)
        monkeypatch.setitem(relieve.__globals__, "RELIEVED_NODES", 2)
        monkeypatch.setitem(repair.__globals__, "STRAYS", 1)
    plan = planned(now, repair, RepairParams(1), overlay.edges, largest)
    assert verify_topics(now, plan.edges, plan.metrics).holds and plan.metrics["max_degree"] == largest
    assert 0 < plan.metrics["links_removed"] <= 15
    monkeypatch.setitem(repair.__globals__, "relieve", lambda problem, edges, *rest: edges)
    assert planned(now, repair, RepairParams(1), overlay.edges, largest).metrics["max_degree"] > largest


def test_ids_beyond_the_whole_numbers_of_floating_point(spark, demanding, overlay):
    """2^60 + v: a null in a column of ids would make pandas round them, and different nodes one."""
    far = 2**60
    now = demanding.selectExpr(f"node_id + {far} AS node_id", f"topic_id + {far} AS topic_id").persist()
    previous = overlay.edges.selectExpr(f"src + {far} AS src", f"dst + {far} AS dst")
    plan = planned(now, repair, RepairParams(1, improve=1.0), previous, overlay.metrics["max_degree"])
    assert verify_topics(now, plan.edges, plan.metrics).holds and plan.metrics["links_kept"] > 0.5 * overlay.metrics["edges"]


def test_a_previous_overlay_may_be_untidy(spark):
    interests = spark.createDataFrame([(1, 7), (2, 7), (3, 7), (3, 8), (4, 8)], INTERESTS)
    previous = spark.createDataFrame([(2, 1), (1, 2), (1, 1), (3, 99), (1, 4), (None, 2)], EDGES)
    plan = planned(interests, repair, RepairParams(1), previous)
    assert plan.feasible and verify_topics(interests, plan.edges, plan.metrics).holds
    assert (1, 2) in links(plan) and (3, 4) in links(plan)
    assert (plan.metrics["links_kept"], plan.metrics["links_removed"]) == (1, 2)  # (1, 2) once; 99 is unknown, 1 and 4 share nothing


def test_same_seed_same_repair_for_any_number_of_partitions(demanding, overlay):
    """Strays, anchors and helpers all have to be chosen, and links exchanged."""
    now = demanding.where("(node_id * 13 + topic_id * 7) % 31 <> 0 or topic_id > 50")
    previous = overlay.edges.persist()
    plans = [planned(now.repartition(n, "topic_id"), repair, RepairParams(1), previous.repartition(n), 7) for n in (1, 8)]
    assert links(plans[0]) == links(plans[1])
    assert plans[0].metrics["stray_components"] > 20 and plans[0].metrics["links_removed"] > 0


def test_nothing_to_repair_changes_nothing(zipf, overlay):
    plan = planned(zipf, repair, RepairParams(1), overlay.edges)
    assert links(plan) == links(overlay) and plan.metrics["links_added"] == plan.metrics["links_removed"] == 0


@pytest.mark.slow
def test_repair_from_no_links_at_all(spark, zipf):
    plan = planned(zipf, repair, RepairParams(1), spark.createDataFrame([], EDGES))
    assert plan.feasible and verify_topics(zipf, plan.edges, plan.metrics).holds


# ---------------------------------------------------------------- measures


def test_contributions_count_topics_that_are_apart(spark):
    interests = spark.createDataFrame([(1, 7), (1, 8), (2, 7), (2, 8), (3, 7), (4, 9)], INTERESTS)
    labelled = induced_components(interests, spark.createDataFrame([(1, 3)], EDGES))
    asked = spark.createDataFrame([(1, 2), (1, 3), (2, 3), (1, 4)], EDGES)
    expected = spark.createDataFrame([(1, 2, 2, 2), (1, 3, 1, 0), (2, 3, 1, 1), (1, 4, 0, 0)], "src long, dst long, topics long, contribution long")
    assert_df_equality(contributions(labelled, asked), expected, ignore_row_order=True, ignore_nullable=True)
    counted = spark.createDataFrame([(1, 3), (2, 2), (3, 2), (4, 1)], "node_id long, degree long")
    assert_df_equality(degrees(asked), counted, ignore_row_order=True, ignore_nullable=True)


def test_the_bound_leaves_popular_topics_out(zipf, monkeypatch):
    problem = make_topics_problem(zipf)
    whole = lower_bound(problem)
    monkeypatch.setattr("pubsub_graph.topics.plan.BOUND_NODES", 0)
    monkeypatch.setattr("pubsub_graph.topics.plan.BOUND_PAIRS", 100_000)
    assert 2 <= lower_bound(problem) <= whole
    monkeypatch.setattr("pubsub_graph.topics.plan.BOUND_PAIRS", 0)
    assert lower_bound(problem) == 2


# ---------------------------------------------------------------- bad input and the job


def test_bad_input(spark, monkeypatch, zipf):
    with pytest.raises(BadInput, match=r"2 rows with a null node_id"):
        make_topics_problem(spark.createDataFrame([(None, 1), (None, 2), (3, None)], INTERESTS))
    with pytest.raises(BadInput, match="interests is empty"):
        make_topics_problem(spark.createDataFrame([], INTERESTS))
    with pytest.raises(BadInput, match="no column topic_id"):
        make_topics_problem(spark.createDataFrame([(1, 2)], "node_id long, subject long"))
    monkeypatch.setattr("pubsub_graph.topics.paper.ONE_TASK_NODES", 100)
    with pytest.raises(BadInput, match="take --algorithm sharded"):
        planned(zipf, *PLANNERS["gm-m"])


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (DivideParams, {"bulk_share": 1.0}), (DivideParams, {"coverage": 0}), (DivideParams, {"parts": 0}), (DivideParams, {"least": "cost"}),
        (DivideParams, {"improve": -1}), (ShardedParams, {"shards": 0}), (ShardedParams, {"coverage": 0}), (ShardedParams, {"bulk_share": -0.1}),
        (RingParams, {"improve": -1}), (RepairParams, {"anchors": 0}), (RepairParams, {"improve": -1}),
    ],
)  # fmt: skip
def test_bad_parameters(kind, wrong):
    name = next(iter(wrong))
    with pytest.raises(BadInput, match="partitions" if name in ("parts", "shards") else name):
        kind(**wrong)


def test_the_job_plans_and_repairs(spark, zipf, tmp_path, capsys):
    Tables(spark, str(tmp_path / "input")).write({"interests": zipf}, {}, "workload.json")
    assert topics.main(["--input", str(tmp_path / "input"), "--out", str(tmp_path / "plan"), "--algorithm", "sharded", "--seed", "1", "--partitions", "5"]) == 0
    said = capsys.readouterr()
    assert "every topic connected" in said.out and "shards connected: shards 5" in said.err
    metrics = json.loads((tmp_path / "plan" / "metrics.json").read_text())
    assert metrics["algorithm"] == "sharded" and metrics["parameters"]["shards"] == 5
    again = ["--input", str(tmp_path / "input"), "--out", str(tmp_path / "again"), "--previous", str(tmp_path / "plan"), "--quiet"]
    assert topics.main(again) == 0
    assert f"links kept {metrics['edges']:,}, removed 0, added 0" in capsys.readouterr().out
    assert topics.main(["--input", str(tmp_path / "input"), "--out", str(tmp_path / "no"), "--algorithm", "gm-m", "--coverage", "-1"]) == 2
    assert "coverage is -1" in capsys.readouterr().err and not (tmp_path / "no").exists()
    assert topics.main(["--input", str(tmp_path / "nowhere"), "--out", str(tmp_path / "no")]) == 2
