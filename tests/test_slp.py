"""SLP on DataFrames: what it claims is what the verifier finds, it beats Gr*, it keeps its bound, and every option does something."""

import dataclasses
import json

import numpy as np
import pytest

from jobs import assign
from pubsub_graph.assignment import GreedyParams, Limits, SlpParams, gr_star, make_problem, slp
from pubsub_graph.assignment.candidates import candidate_table
from pubsub_graph.assignment.settle import survey
from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.tables import BROKERS, EVENTS, SUBSCRIBERS, Tables
from pubsub_graph.verify import verify_assignment
from pubsub_graph.workloads import WorkloadParams, assignment_workload
from udfs.kernels.latency import unpack_sets
from udfs.slp import Boxes

QUICK = SlpParams(seed=1, effort=0.5, tries=1)
LINE = [(0, None, [0.0], None), (1, 0, [1.0], None), (2, 0, [2.0], None), (3, 0, [3.0], None)]


def planned(problem, params=QUICK, previous=None):
    return slp(problem, params, Lineage(), Progress(quiet=True), previous)


def rows_of(table):
    return sorted(tuple(tuple(x) if isinstance(x, list) else x for x in row) for row in table.collect())


def kept(spark, params):
    made = assignment_workload(spark, params)
    return made.brokers.persist(), made.subscribers.persist()


@pytest.fixture(scope="module")
def flat(spark):
    return kept(spark, WorkloadParams("set1-hl", 2500, 12, seed=4))


@pytest.fixture(scope="module")
def deep(spark):
    return kept(spark, WorkloadParams("set1-ll", 2500, 24, out_degree=5, max_delay=1.0, seed=4))


@pytest.fixture(scope="module")
def sampled(spark):
    """More subscribers than the coreset takes whole."""
    return kept(spark, WorkloadParams("set1-hl", 30_000, 12, seed=4))


def holds(tables, plan, events=None):
    report = verify_assignment(*tables, plan.assignment, plan.filters, plan.metrics, events=events)
    assert report.holds == plan.feasible, report.render()
    return report


@pytest.mark.parametrize("tree", ["flat", pytest.param("deep", marks=pytest.mark.slow)])
def test_verified_below_gr_star_and_above_its_bound(spark, request, tree):
    tables = request.getfixturevalue(tree)
    problem = make_problem(*tables, Limits(max_delay=0.3 if tree == "flat" else 1.0))
    plan = planned(problem)
    assert plan.feasible and plan.metrics["lbf"] <= 1.5
    holds(tables, plan)
    greedy = gr_star(problem, GreedyParams(), Lineage(), Progress(quiet=True)).metrics
    assert plan.metrics["bandwidth"] < 0.95 * greedy["bandwidth"]
    assert 0.3 * plan.metrics["bandwidth_sum"] < plan.metrics["fractional_bound"] <= plan.metrics["bandwidth_sum"] * (1 + 1e-9)
    assert plan.metrics["gap"] == pytest.approx(plan.metrics["bandwidth"] / plan.metrics["fractional_bound"] - 1)
    if tree == "deep":
        nodes = [note["node"] for note in plan.metrics["linear_programs"]]
        assert nodes[0] == 0 and len(nodes) == len(set(nodes)) > 3  # every subtree once, the root's children first


def test_a_coreset_serves_everyone(spark, sampled):
    problem = make_problem(*sampled, Limits())
    plan = planned(problem, dataclasses.replace(QUICK, effort=2.0))
    assert plan.metrics["coreset_rows"] < 10_000 and plan.metrics["uncovered"] == 0
    assert plan.feasible and plan.metrics["lbf"] <= 1.5
    holds(sampled, plan)
    assert plan.metrics["rounds"][0]["uncovered"] > 0  # the first plan of the sample misses someone: rounds mend that


@pytest.mark.parametrize("tree", ["flat", pytest.param("deep", marks=pytest.mark.slow)])
def test_same_plan_for_any_number_of_partitions(spark, request, tree):
    brokers, subscribers = request.getfixturevalue(tree)
    limits = Limits(max_delay=0.3 if tree == "flat" else 1.0)
    params = dataclasses.replace(QUICK, effort=0.05, tries=2)
    plans = [planned(make_problem(brokers, subscribers.repartition(n, "high"), limits), params) for n in (1, 3, 8)]
    first = rows_of(plans[0].assignment), rows_of(plans[0].filters)
    for other in plans[1:]:
        assert (rows_of(other.assignment), rows_of(other.filters)) == first
    another = planned(make_problem(brokers, subscribers, limits), dataclasses.replace(params, seed=2))
    assert rows_of(another.filters) != first[1]


@pytest.mark.parametrize(("brokers", "lbf"), [(3, 1.0), (15, 1.2), *[pytest.param(*case, marks=pytest.mark.slow) for case in ((15, 1.0), (10, 1.5))]])
def test_optimal_where_gr_star_is_defeated(spark, brokers, lbf):
    tables = kept(spark, WorkloadParams("defeats-gr-star", 40 * 4 * brokers, brokers))
    plan = planned(make_problem(*tables, Limits(lbf=lbf, lbf_max=lbf)))
    holds(tables, plan)
    # a broker has the home of alpha + 1 squares: the two 10 apart in one rectangle of 11 x 11, two alone
    assert plan.feasible and plan.metrics["bandwidth"] == pytest.approx(brokers * (11 * 11 + 1 + 1))
    assert plan.metrics["fractional_bound"] == pytest.approx(plan.metrics["bandwidth"], rel=1e-3)
    factors = [note["lbf"] for note in plan.metrics["linear_programs"]]
    assert factors == pytest.approx([1.0] if lbf == 1.0 else [(1 + lbf) / 2, 1.0])


@pytest.mark.slow
def test_events_are_planned_for(spark, flat):
    brokers, subscribers = flat
    problem = make_problem(brokers, subscribers, Limits())
    by_volume = planned(problem)
    hot = [row["low"] for row in subscribers.orderBy("subscriber_id").limit(400).collect()]
    events = spark.createDataFrame([(point, 1.0) for point in hot], EVENTS)
    measured = make_problem(brokers, subscribers, Limits(), events)
    by_events = planned(measured)
    report = holds(flat, by_events, events)
    from pubsub_graph.assignment.plan import event_sample
    from udfs.kernels.boxes import event_share

    points, weights = event_sample(measured)
    through = 0.0
    for broker in {row["broker_id"] for row in by_volume.filters.collect()}:
        boxes = [row for row in by_volume.filters.collect() if row["broker_id"] == broker]
        through += event_share(np.array([b["low"] for b in boxes]), np.array([b["high"] for b in boxes]), points, weights)
    assert report.recomputed["bandwidth"] < through


@pytest.mark.parametrize("dims", [3, pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_subscriptions_of_other_dimensions(spark, flat, dims):
    """Boxes in d dimensions: the flat workload's places, with subscriptions around points of a few clusters."""
    brokers, subscribers = flat
    rng = np.random.default_rng(dims)
    centre = rng.uniform(0, 100, (8, dims))
    rows = []
    for row in subscribers.orderBy("subscriber_id").collect():
        middle = centre[row["subscriber_id"] % 8] + rng.normal(0, 4, dims)
        half = rng.uniform(1, 5, dims)
        rows.append((row["subscriber_id"], row["location"], (middle - half).tolist(), (middle + half).tolist(), row["max_latency"]))
    tables = brokers, spark.createDataFrame(rows, SUBSCRIBERS)
    problem = make_problem(*tables, Limits())
    plan = planned(problem)
    assert plan.feasible
    holds(tables, plan)
    greedy = gr_star(problem, GreedyParams(), Lineage(), Progress(quiet=True)).metrics
    assert plan.metrics["bandwidth"] < greedy["bandwidth"]
    assert 0 < plan.metrics["fractional_bound"] <= plan.metrics["bandwidth_sum"] * (1 + 1e-9)


@pytest.mark.slow
def test_last_hop_latency(spark, flat):
    problem = make_problem(*flat, Limits(latency="last-hop", max_delay=2.0))
    holds(flat, planned(problem))


@pytest.mark.slow
def test_a_time_limit_still_gives_a_complete_plan(spark, sampled):
    problem = make_problem(*sampled, Limits())
    plan = planned(problem, dataclasses.replace(QUICK, effort=500.0, time_limit=15.0))
    assert plan.metrics["time_limit_reached"] and plan.metrics["uncovered"] == 0 and plan.metrics["seconds"]["total"] < 150
    holds(sampled, plan)


@pytest.mark.slow
def test_a_plan_to_start_from_is_not_lost(spark, flat):
    problem = make_problem(*flat, Limits())
    good = planned(problem, dataclasses.replace(QUICK, effort=1.5))
    again = planned(problem, dataclasses.replace(QUICK, effort=0.0), good.assignment)
    alone = planned(problem, dataclasses.replace(QUICK, effort=0.0))
    assert again.metrics["bandwidth"] <= 1.02 * good.metrics["bandwidth"] < alone.metrics["bandwidth"]
    partly = planned(problem, dataclasses.replace(QUICK, effort=0.0), good.assignment.where("subscriber_id % 3 > 0"))
    holds(flat, partly)


@pytest.mark.slow
def test_more_tries_keep_the_best(spark, flat):
    problem = make_problem(*flat, Limits())
    costs = [planned(problem, dataclasses.replace(QUICK, effort=0.2, tries=tries)).metrics["rounds"][0]["plan"] for tries in (1, 4)]
    assert costs[1] <= costs[0]


# ---------------------------------------------------------------- infeasible settings


def test_an_impossible_load_is_said_before_any_linear_program(spark):
    subscribers = spark.createDataFrame([(i, [1.0], [0.0], [1.0], 1.1) for i in range(6)], SUBSCRIBERS)
    problem = make_problem(spark.createDataFrame(LINE, BROKERS), subscribers, Limits())
    plan = planned(problem)
    assert not plan.feasible and plan.metrics["violations"] == {"load": 1} and plan.metrics["best_lbf"] == 3.0
    assert "linear_programs" not in plan.metrics and "gets below 3 (brokers [1]" in plan.advice


def test_unreachable_subscribers_are_counted(spark):
    rows = [(1, [50.0], [0.0], [1.0], 1.0), (2, [1.0], [0.0], [1.0], None)]
    problem = make_problem(spark.createDataFrame(LINE, BROKERS), spark.createDataFrame(rows, SUBSCRIBERS), Limits(lbf=3, lbf_max=3))
    plan = planned(problem)
    assert plan.metrics["unreachable_subscribers"] == 1 and "linear_programs" not in plan.metrics


def test_one_broker_one_subscriber(spark):
    problem = make_problem(
        spark.createDataFrame(LINE[:2], BROKERS), spark.createDataFrame([(7, [0.0], [0.0], [0.0], None)], SUBSCRIBERS), Limits()
    )
    plan = planned(problem)
    assert [row[:2] for row in plan.assignment.collect()] == [(7, 1)] and plan.feasible


@pytest.mark.parametrize("wrong", [{"effort": -1}, {"tries": 0}, {"sample": 0}, {"super_subscriptions": 0}, {"gamma": 0}, {"gamma": 1.5}, {"time_limit": 0}])
def test_bad_parameters(wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        SlpParams(**wrong)


# ---------------------------------------------------------------- the survey and the job


def test_a_survey_counts_what_a_loop_counts(spark, flat):
    problem = make_problem(*flat, Limits())
    candidates = candidate_table(problem)
    rng = np.random.default_rng(5)
    low = rng.uniform(0, 8000, (30, 2))
    boxes = Boxes(rng.integers(0, 12, 30), low, low + rng.uniform(500, 5000, (30, 2)))
    seen = survey(candidates, boxes, 12)
    expected: dict[tuple[int, ...], int] = {}
    for row in candidates.collect():
        allowed = unpack_sets(np.frombuffer(row["candidates"], dtype=np.uint8)[None], 12)[0]
        inside = ((np.array(row["low"]) >= boxes.low) & (np.array(row["high"]) <= boxes.high)).all(1)
        cover = tuple(sorted({int(t) for t in boxes.target[inside] if allowed[t]}))
        expected[cover] = expected.get(cover, 0) + 1
    found = {tuple(np.flatnonzero(allowed).tolist()): int(count) for allowed, count in zip(seen.sets.allowed, seen.sets.counts, strict=True)}
    assert seen.uncovered == expected.pop((), 0) == seen.lost.count() and found == expected
    seen.release()


def test_the_job_writes_a_plan_and_starts_from_it(spark, flat, tmp_path, capsys):
    brokers, subscribers = flat
    Tables(spark, str(tmp_path / "input")).write({"brokers": brokers, "subscribers": subscribers}, {}, "workload.json")
    common = ["--input", str(tmp_path / "input"), "--algorithm", "slp", "--seed", "1", "--effort", "0.2", "--tries", "1"]
    assert assign.main([*common, "--out", str(tmp_path / "plan")]) == 0
    said = capsys.readouterr().err
    assert "round 1: coreset 2,500, uncovered" in said and "bound" in said
    metrics = json.loads((tmp_path / "plan" / "metrics.json").read_text())
    assert metrics["algorithm"] == "slp" and metrics["fractional_bound"] > 0 and metrics["seconds"]["rounds"] > 0
    assert assign.main([*common, "--out", str(tmp_path / "again"), "--start", str(tmp_path / "plan"), "--quiet"]) == 0
    assert assign.main([*common, "--out", str(tmp_path / "no"), "--gamma", "7"]) == 2
    assert "gamma is 7.0" in capsys.readouterr().err and not (tmp_path / "no").exists()
