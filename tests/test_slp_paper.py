"""slp-paper: the search for a certificate, its draws, the flow among siblings, and whole plans through the verifier."""

import importlib
import json
import math

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import functions as F

from jobs import assign, generate
from pubsub_graph.assignment import Limits, SlpPaperParams, make_problem, slp_paper
from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.sampling import Draw, draws_per_group, reservoir_per_group
from pubsub_graph.tables import BROKERS, EVENTS, SUBSCRIBERS
from pubsub_graph.verify import verify_assignment
from pubsub_graph.workloads import WorkloadParams, assignment_workload
from udfs.kernels.certificate import REPEATS, Search, attempts, least_key, pool_slice, sample_size
from udfs.kernels.cover import any_cover, cover_sets
from udfs.kernels.latency import pack_sets
from udfs.kernels.measure import Measure
from udfs.kernels.rising import rising_flow, spill
from udfs.kernels.tree import BrokerTree
from udfs.slp_paper import Sample, filter_assign

MODULE = importlib.import_module("pubsub_graph.assignment.slp_paper")  # the package has the function of this name
QUICK = SlpPaperParams(1, epsilon=0.3, sample=100)
"""A sample this large ends after few iterations."""


def plan_of(problem, params=QUICK):
    with Lineage() as lineage:
        plan = slp_paper(problem, params, lineage, Progress(quiet=True))
        rows = (sorted(tuple(row) for row in plan.assignment.collect()), sorted(map(str, plan.filters.collect())))
        return plan, rows


def star(brokers, share=None):
    """A publisher with ``brokers`` brokers around it."""
    count = brokers + 1
    return BrokerTree(np.arange(count), np.array([-1, *[0] * brokers]), np.zeros((count, 1)), np.full(brokers, 1 / brokers) if share is None else share)


# ---------------------------------------------------------------- the search for a certificate


def test_sizes_are_the_printed_ones():
    assert sample_size(4) == round(40 * math.log(4)) and sample_size(32) == round(320 * math.log(32)) and sample_size(1) == 1
    assert attempts(1) == 1 and attempts(100_000) == 12  # j from 0 to ln |S|
    assert Search(100_000, 0.1).most_iterations == int(16 * math.log(25_000))


def test_weights_double_where_phi_does_not_cover():
    search = Search(1000, 0.1)
    first = search.judge({(0, 0): 930, (0, 1): 50, (0, 2): 20})
    assert first.valid and first.then == "keep" and first.uncovered == 20 and first.violating == pytest.approx(0.07)
    assert search.exponents == {0: 930, 1: 70} and (search.g, search.iteration) == (4, 2)
    second = search.judge({(0, 0): 930, (1, 0): 40, (1, 2): 30})
    assert second.violating == pytest.approx(60 / 1070) and search.exponents == {0: 930, 1: 40, 2: 30}


def test_an_invalid_iteration_is_repeated_and_a_stage_given_up():
    search = Search(1000, 0.1)
    search.judge({(0, 0): 950, (0, 2): 50})
    for number in range(REPEATS):
        judgement = search.judge({(0, 0): 750, (0, 2): 200, (1, 0): 50})  # 200 of 1050
        assert not judgement.valid and judgement.iteration == 2
        assert judgement.then == ("reset" if number == REPEATS - 1 else "undo")
        assert search.exponents == ({0: 1000} if number == REPEATS - 1 else {0: 950, 1: 50})
    assert (search.g, search.iteration, search.repeats) == (8, 1, 0)


def test_the_expanded_filters_end_the_search_even_of_an_invalid_iteration():
    search = Search(1000, 0.1)
    assert search.judge({(0, 0): 500, (0, 1): 500}).then == "end" and search.outcome == "covered"


def test_stages_double_until_they_exceed_the_group():
    search, stages = Search(40, 0.1), []
    while not search.outcome:
        stages.append((search.g, search.iteration))
        before = dict(search.exponents)
        seen = {(exponent, 0): count for exponent, count in before.items()}
        seen[0, 0] -= 1
        seen[0, 2] = 1  # another one each time: the total weight stays small
        search.judge(seen)
        if search.exponents.get(0) == 1:
            search.exponents = {0: 40}
    assert search.outcome == "exhausted" and {g for g, _ in stages} == {4, 8, 16, 32}
    assert [max(i for h, i in stages if h == g) for g in (4, 8, 16)] == [int(4 * g * math.log(40 / g)) for g in (4, 8, 16)]
    assert Search(3, 0.1).g == 3 and Search(1, 0.1).most_iterations == 1
    with pytest.raises(ValueError, match="39 subscribers were judged, the group has 40"):
        Search(40, 0.1).judge({(0, 0): 39})


@pytest.mark.parametrize("size", [1, 50, 700])
def test_rows_above_the_least_key_are_enough_and_few(size):
    exponents = {0: 5000, 1: 800, 5: 60, 40: 3}
    weight = np.repeat([2.0**e for e in exponents], list(exponents.values()))
    for seed in range(20):
        key = np.log(np.random.default_rng(seed).random(len(weight))) / weight
        above = (key > least_key(exponents, size)).sum()
        assert size <= above <= size + 16 * math.sqrt(size) + 80
    assert least_key({0: 100}, 100) == -math.inf


def test_slices_of_the_pool():
    ids = np.arange(100, 160)
    rank = np.zeros(60, dtype=np.int64)
    rank[:50] = np.random.default_rng(1).permutation(50) + 1  # the last ten are not in the pool
    slices = [pool_slice(ids, rank, 20, attempt, seed=3) for attempt in range(4)]
    assert (rank[slices[0]] <= 20).all() and set(rank[slices[1]]) == set(range(21, 41))
    assert [s.sum() for s in slices] == [20, 20, 20, 20] and not any(s[50:].any() for s in slices)
    assert (slices[2] != slices[3]).any()  # the pool is used up: shuffled anew, and from the ids alone
    again = np.random.default_rng(2).permutation(60)
    assert (pool_slice(ids[again], rank[again], 20, 3, seed=3) == slices[3][again]).all()
    assert pool_slice(ids, rank, 70, 0, seed=3).sum() == 50


# ---------------------------------------------------------------- flow, cover, FilterAssignHelper


def test_the_flow_takes_the_first_factor_that_places_everyone():
    allowed, counts = np.array([[True, False], [True, True]]), np.array([70, 30])
    tree, betas = star(2), [1.0, 1.2, 1.39, 1.41, 1.6]
    flow, beta, left = rising_flow(tree, 0, 100, 100, allowed, counts, betas)
    assert (beta, left) == (1.41, 0) and flow.tolist() == [[70, 0], [0, 30]]
    flow, beta, left = rising_flow(tree, 0, 100, 100, allowed, counts, betas[:3])
    assert (beta, left) == (1.39, 1) and flow.sum() == 99


def test_spill_places_everyone_where_allowed_and_fills_room_first():
    allowed = np.array([[True, True, False], [False, True, True], [True, False, False]])
    flow = spill(star(3), 0, 90, 90, allowed, np.array([20, 40, 30]), 1.0)
    assert (flow[~allowed] == 0).all() and flow.sum(1).tolist() == [20, 40, 30] and flow.sum(0).tolist() == [30, 30, 30]
    flow = spill(star(3), 0, 90, 90, allowed, np.array([10, 20, 60]), 1.0)
    assert flow[2].tolist() == [60, 0, 0] and flow.sum() == 90


def test_any_cover_is_that_of_the_cover_sets():
    rng = np.random.default_rng(5)
    low, size = rng.random((300, 2)), rng.random((300, 2)) * 0.2
    box_low, target = rng.random((40, 2)) * 0.8, rng.integers(0, 11, 40)
    box_high = box_low + rng.random((40, 2)) * 0.6
    near = pack_sets(rng.random((300, 11)) < 0.3)
    expected = cover_sets(near, low, low + size, target, box_low, box_high).any(1)
    assert 30 < expected.sum() < 270
    assert (any_cover(near, low, low + size, target, box_low, box_high) == expected).all()


def group(rows=80, seed=0):
    rng = np.random.default_rng(seed)
    low = rng.random((rows, 2)) * 10
    return pd.DataFrame(
        {
            "subscriber_id": np.arange(rows), "node": 0, "near": [bytes([7])] * rows, "location": list(rng.random((rows, 2))),
            "low": list(low), "high": list(low + 1), "q": [float(i + 1) if i < 30 else None for i in range(rows)],
            "pool": [float(i - 19) if i >= 20 else None for i in range(rows)],
        }
    )  # fmt: skip


def helper(lbf, rows=80):
    samples = {0: Sample(rows, 30, 2, 5)}
    return filter_assign(star(3), np.array([1, 2, 3]), samples, alpha=3, lbf=lbf, super_subscriptions=5, total=rows, measure=Measure.volume())


def test_filters_cover_q_and_the_first_slice_whatever_the_order_of_rows():
    table = group()
    chosen = helper(1.5)(table)
    note = json.loads(chosen["note"].iloc[0])
    assert note["attempt"] == 1 and note["rows"] == 50 and 0 < note["bound"] <= note["value"] * (1 + 1e-9)
    low, high = np.stack(table["low"].to_list()), np.stack(table["high"].to_list())
    box_low, box_high = np.stack(chosen["low"].to_list()), np.stack(chosen["high"].to_list())
    inside = ((box_low[None] <= low[:, None]) & (high[:, None] <= box_high[None])).all(2).any(1)
    assert inside[:50].all()
    pd.testing.assert_frame_equal(helper(1.5)(table.sample(frac=1, random_state=3)), chosen)


def test_no_solution_is_one_row_without_a_rectangle():
    chosen = helper(0.5)(group())  # capacities of half the rows
    assert len(chosen) == 1 and chosen["target"].isna().all()
    note = json.loads(chosen["note"].iloc[0])
    assert note["bound"] is None and note["attempt"] == 2


def test_draws_in_one_pass_are_the_reservoirs(spark):
    rows = [(i, i % 2, float(2 ** (i % 5))) for i in range(3000)]
    table = spark.createDataFrame(rows, "id long, node int, weight double").repartition(3)
    exponents = {node: {e: len([1 for i in range(3000) if i % 2 == node and i % 5 == e]) for e in range(5)} for node in (0, 1)}
    draws = {
        "q": Draw({0: 60, 1: 20}, {node: least_key(exponents[node], size) for node, size in ((0, 60), (1, 20))}, 4, "weight"),
        "pool": Draw({0: 5000, 1: 10}, {0: least_key({0: 1500}, 5000), 1: least_key({0: 1500}, 10)}, 5),
    }
    found = draws_per_group(table, "node", "id", 9, draws, 4).collect()
    assert sorted(row["pool"] for row in found if row["node"] == 0 and row["pool"]) == list(range(1, 1501))  # more than there are: all
    assert sorted(row["q"] for row in found if row["node"] == 1 and row["q"]) == list(range(1, 21))
    for node, size in ((0, 60), (1, 20)):
        expected = reservoir_per_group(table, size, "node", "id", 9, weight="weight", round_number=4).where(F.col("node") == node)
        assert {row["id"] for row in found if row["node"] == node and row["q"]} == {row["id"] for row in expected.collect()}


def test_lineage_drops_one_table(spark):
    with Lineage() as lineage:
        first, second = lineage.cut(spark.range(5)), lineage.persist(spark.range(7))
        lineage.drop(first)
        lineage.drop(spark.range(3))  # not ours
        assert lineage._kept == [second] and second.count() == 7 and second.is_cached


# ---------------------------------------------------------------- whole plans


@pytest.fixture(scope="module")
def flat(spark):
    made = assignment_workload(spark, WorkloadParams("set1-hl", 1500, 8, seed=4))
    return made.brokers.persist(), made.subscribers.persist()


@pytest.fixture(scope="module")
def flat_plan(flat):
    brokers, subscribers = flat
    return plan_of(make_problem(brokers, subscribers.repartition(1), Limits()))


def test_a_one_level_plan_holds(flat, flat_plan):
    plan, _ = flat_plan
    report = verify_assignment(*flat, plan.assignment, plan.filters, plan.metrics)
    assert report.holds and plan.feasible and plan.metrics["bottom"] == []
    log = plan.metrics["log"]
    assert plan.metrics["iterations"] == len(log) and log[-1]["uncovered"] == 0 and len(log) > 1 and all(entry["uncovered"] for entry in log[:-1])
    assert plan.metrics["fractional_bound"] == log[-1]["bound"] and 0 < plan.metrics["fractional_bound"] < plan.metrics["bandwidth"]
    assert all(entry["lp_gap"] == pytest.approx(0, abs=1e-6) for entry in log)  # eight brokers: solved exactly


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [3, 8])
def test_same_plan_for_any_number_of_partitions(flat, flat_plan, partitions):
    brokers, subscribers = flat
    plan, rows = plan_of(make_problem(brokers, subscribers.repartition(partitions, "high"), Limits()))
    assert rows == flat_plan[1] and plan.metrics["log"] == flat_plan[0].metrics["log"]


@pytest.mark.slow
def test_a_deep_plan_keeps_all_but_load(spark):
    made = assignment_workload(spark, WorkloadParams("set1-ll", 1500, 24, out_degree=5, max_delay=1.0, seed=4))
    problem = make_problem(made.brokers, made.subscribers, Limits(max_delay=1.0))
    plan, _ = plan_of(problem)
    report = verify_assignment(made.brokers, made.subscribers, plan.assignment, plan.filters, plan.metrics)
    broken = {check.name for check in report.checks if check.violations}
    assert broken == set(plan.metrics["violations"]) and broken <= {"load"}
    assert plan.feasible or plan.metrics["bottom"]
    stages = plan.metrics["stages"]
    inner = problem.tree.broker_id[np.setdiff1d(np.arange(len(problem.tree.parent)), problem.tree.leaves)]
    assert {stage["node"] for stage in stages} == set(inner.tolist()) and stages[0]["subscribers"] == 1500
    assert "fractional_bound" not in plan.metrics and plan.metrics["root_bound"] > 0


@pytest.mark.slow
def test_weights_lead_the_search_to_an_end(spark):
    """Few sampled rows: several iterations, in which weights must reach those that the filters miss."""
    rng = np.random.default_rng(7)
    low = np.round(rng.random((400, 2)) * 100, 3)
    low[0] = [900.0, 900.0]  # alone: a sample that misses it has no rectangle near it
    rows = [(i, [float(x)], low[i].tolist(), (low[i] + 1).tolist(), 99.0) for i, x in enumerate(rng.random(400))]
    brokers = [(0, None, [0.0], None), (1, 0, [0.0], None), (2, 0, [1.0], None)]
    problem = make_problem(spark.createDataFrame(brokers, BROKERS), spark.createDataFrame(rows, SUBSCRIBERS), Limits())
    plan, _ = plan_of(problem, SlpPaperParams(3))
    log = plan.metrics["log"]
    assert plan.feasible and 1 < len(log) < 60 and any(entry["valid"] and entry["uncovered"] for entry in log)


# ---------------------------------------------------------------- edges


def test_one_broker_and_a_sample_larger_than_the_table(spark):
    brokers = spark.createDataFrame([(0, None, [0.0], None), (1, 0, [1.0], None)], BROKERS)
    rows = [(i, [0.0], [float(i)], [i + 1.0], None) for i in range(3)]
    plan, (assignment, _) = plan_of(make_problem(brokers, spark.createDataFrame(rows, SUBSCRIBERS), Limits()), SlpPaperParams())
    assert [row[:2] for row in assignment] == [(0, 1), (1, 1), (2, 1)] and plan.feasible
    assert plan.metrics["iterations"] == 1 and plan.metrics["bandwidth"] == 3.0  # Q is everyone, so the first filters cover


@pytest.mark.slow
def test_events_replace_volume(spark):
    brokers = spark.createDataFrame([(0, None, [0.0], None), (1, 0, [1.0], None), (2, 0, [1.0], None)], BROKERS)
    rows = [(i, [0.0], [float(i)], [i + 1.0], None) for i in range(6)]
    events = spark.createDataFrame([([0.5], 3.0), ([5.5], 1.0)], EVENTS)
    plan, _ = plan_of(make_problem(brokers, spark.createDataFrame(rows, SUBSCRIBERS), Limits(alpha=1), events))
    assert plan.feasible and 0 < plan.metrics["bandwidth"] <= 2


def test_an_impossible_load_is_a_best_effort_without_a_program(spark, monkeypatch):
    brokers = [(0, None, [0.0], None), (1, 0, [1.0], None), (2, 0, [2.0], None), (3, 0, [3.0], None)]
    rows = [(i, [1.0], [0.0], [1.0], 1.1) for i in range(6)]  # all six only at broker 1
    monkeypatch.setattr(MODULE, "_Descent", None)
    plan, _ = plan_of(make_problem(spark.createDataFrame(brokers, BROKERS), spark.createDataFrame(rows, SUBSCRIBERS), Limits()))
    assert not plan.feasible and plan.metrics["violations"] == {"load": 1} and plan.metrics["iterations"] == 0
    assert "best 3" in plan.metrics["bottom"][0]["reason"] and "gets below 3 (brokers [1]" in plan.advice


@pytest.mark.slow
def test_bottom_still_gives_a_complete_plan(spark, monkeypatch):
    """Where no filters are found the flow runs on the children in time."""
    monkeypatch.setattr(MODULE, "filter_assign", lambda *args, **kwargs: helper(0.5))
    brokers = [(0, None, [0.0], None), *[(i, 0, [1.0], None) for i in (1, 2, 3)]]
    rows = [(i, [0.0], [float(i % 5)], [i % 5 + 1.0], None) for i in range(80)]
    plan, (assignment, _) = plan_of(make_problem(spark.createDataFrame(brokers, BROKERS), spark.createDataFrame(rows, SUBSCRIBERS), Limits()))
    assert len(assignment) == 80 and plan.feasible and "fractional_bound" not in plan.metrics
    assert [entry["node"] for entry in plan.metrics["bottom"]] == [0] and "no filters" in plan.metrics["bottom"][0]["reason"]


@pytest.mark.parametrize(
    "name, value", [("epsilon", 0), ("epsilon", 1), ("epsilon", math.nan), ("gamma", 0), ("gamma", 1.5), ("sample", 0), ("super_subscriptions", 0)]
)
def test_bad_parameters(name, value):
    with pytest.raises(BadInput, match=f"{name} is {value}"):
        SlpPaperParams(**{name: value})


def test_the_command(spark, tmp_path, capsys):
    place = str(tmp_path)
    assert generate.main(["--workload", "set1-ll", "--subscribers", "60", "--brokers", "4", "--seed", "3", "--out", f"{place}/in"]) == 0
    common = ["--input", f"{place}/in", "--algorithm", "slp-paper", "--seed", "2", "--lbf", "2", "--lbf-max", "3"]
    assert assign.main([*common, "--out", f"{place}/plan", "--epsilon", "0.2"]) == 0
    metrics = json.loads((tmp_path / "plan" / "metrics.json").read_text())
    assert metrics["algorithm"] == "slp-paper" and metrics["feasible"] and metrics["fractional_bound"] > 0
    assert "slp-paper: bandwidth" in capsys.readouterr().out
    assert assign.main([*common, "--out", f"{place}/none", "--epsilon", "2"]) == 2
    assert "epsilon is 2.0" in capsys.readouterr().err and not (tmp_path / "none").exists()
    assert assign.main([*common, "--out", f"{place}/tight", "--max-delay", "0", "--lbf", "1", "--lbf-max", "1"]) == 3
