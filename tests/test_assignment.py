"""The planners: Fig. 16 by hand, invariants through the verifier, the same plan for any partitioning, every error."""

import numpy as np
import pytest
from chispa.dataframe_comparer import assert_df_equality

from pubsub_graph.assignment import (
    BalanceParams,
    ClosestParams,
    GreedyParams,
    Limits,
    balance,
    candidate_join,
    candidate_table,
    closest,
    closest_no_balance,
    gr,
    gr_no_latency,
    gr_star,
    make_problem,
)  # fmt: skip
from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.tables import ASSIGNMENT, BROKERS, EVENTS, SUBSCRIBERS
from pubsub_graph.verify import verify_assignment
from pubsub_graph.workloads import WorkloadParams, assignment_workload
from udfs.kernels.latency import unpack_sets

PLANNERS = {
    "gr": (gr, GreedyParams(1)),
    "gr-star": (gr_star, GreedyParams(1)),
    "gr-star sharded": (gr_star, GreedyParams(1, sharded=True, shard_rows=300)),
    "gr-no-latency": (gr_no_latency, GreedyParams(1)),
    "closest": (closest, ClosestParams(1)),
    "closest-no-balance": (closest_no_balance, ClosestParams(1)),
    "balance": (balance, BalanceParams(1)),
}


def plan_of(problem, name):
    planner, params = PLANNERS[name]
    lineage = Lineage()
    return planner(problem, params, lineage, Progress(quiet=True))


def rows_of(table):
    return sorted(tuple(tuple(x) if isinstance(x, list) else x for x in row) for row in table.collect())


@pytest.fixture(scope="module")
def workload(spark):
    made = assignment_workload(spark, WorkloadParams("set1-hl", 1500, 12, seed=4))
    return made.brokers.persist(), made.subscribers.persist()


@pytest.fixture(scope="module")
def deep_workload(spark):
    made = assignment_workload(spark, WorkloadParams("set1-ll", 1500, 24, out_degree=5, max_delay=1.0, seed=4))
    return made.brokers.persist(), made.subscribers.persist()


# ---------------------------------------------------------------- the paper's example

# One event and one network dimension; the publisher at 0, brokers at 1, 2 and 3; six subscribers, at most three a broker.
FIG_16_BROKERS = [(0, None, [0.0], None), (1, 0, [1.0], None), (2, 0, [2.0], None), (3, 0, [3.0], None)]
FIG_16_SUBSCRIBERS = [
    (1, [0.9], [5.0], [6.0], 1.2),  # only broker 1 in time, though broker 3 will hold [5, 7]
    (2, [1.1], [0.0], [1.0], 1.3),  # only broker 1
    (3, [3.0], [5.0], [7.0], 3.1),  # brokers 1 to 3 lie on one line: all reach it with latency 3
    (4, [2.1], [2.0], [3.0], 2.2),
    (5, [1.5], [0.0], [1.0], 9.0),
    (6, [2.9], [5.5], [6.5], 9.0),
]


def fig_16(spark, **limits):
    brokers = spark.createDataFrame(FIG_16_BROKERS, BROKERS)
    subscribers = spark.createDataFrame(FIG_16_SUBSCRIBERS, SUBSCRIBERS)
    return make_problem(brokers, subscribers, Limits(alpha=2, lbf=1.5, lbf_max=1.5, **limits))


def test_fig_16_candidates(spark):
    problem = fig_16(spark)
    pairs = {(row[0], row[1]): row[2] for row in candidate_join(problem).collect()}
    assert {b for s, b in pairs if s == 1} == {1} and {b for s, b in pairs if s == 2} == {1}
    assert {b for s, b in pairs if s == 3} == {1, 2, 3} and {b for s, b in pairs if s == 5} == {1, 2, 3}
    assert np.isclose(pairs[(5, 3)], 4.5)
    for row in candidate_table(problem).collect():
        allowed = unpack_sets(np.frombuffer(row["candidates"], dtype=np.uint8)[None], 3)[0]
        assert {problem.tree.leaf_ids[i] for i in np.flatnonzero(allowed)} == {b for s, b in pairs if s == row["subscriber_id"]}


def test_fig_16_last_hop(spark):
    problem = fig_16(spark, latency="last-hop")
    assert {b for s, b, _ in candidate_join(problem).collect() if s == 1} == {1, 2}  # 0.1 and 1.1; broker 3 is 2.1 away


def test_fig_16_plan_of_gr_star(spark):
    plan = plan_of(fig_16(spark), "gr-star")
    expected = spark.createDataFrame(
        [(1, 1, 1.1), (2, 1, 1.1), (3, 1, 3.0), (4, 2, 2.1), (5, 3, 4.5), (6, 2, 2.9)], ASSIGNMENT
    )  # 3 widens [5, 6] of broker 1 by one, which is then full: 5 would cost nothing there, and goes elsewhere
    found = plan.assignment.orderBy("subscriber_id")
    columns = ["subscriber_id", "broker_id"]
    assert_df_equality(found.select(columns), expected.select(columns), ignore_nullable=True)
    assert plan.feasible and plan.metrics["lbf"] == 1.5
    assert plan.metrics["bandwidth"] == (2 + 1) + (1 + 1) + 1  # [5,7] and [0,1]; [2,3] and [5.5,6.5]; [0,1]


def test_closest_serves_low_ids_first(spark):
    subscribers = [(i, [1.0 + i / 100], [0.0], [1.0], 99.0) for i in range(6)]
    problem = make_problem(
        spark.createDataFrame(FIG_16_BROKERS, BROKERS), spark.createDataFrame(subscribers, SUBSCRIBERS), Limits(lbf=1.0, lbf_max=1.0)
    )
    assert [row[1] for row in sorted(plan_of(problem, "closest").assignment.collect())] == [1, 1, 2, 2, 3, 3]
    assert [row[1] for row in sorted(plan_of(problem, "closest-no-balance").assignment.collect())] == [1] * 6


# ---------------------------------------------------------------- invariants

@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("tree", ["one-level", "multi-level"])
def test_what_a_planner_claims_is_what_the_verifier_finds(spark, workload, deep_workload, name, tree):
    brokers, subscribers = workload if tree == "one-level" else deep_workload
    limits = Limits(max_delay=0.3 if tree == "one-level" else 1.0, lbf=1.5, lbf_max=1.8)
    problem = make_problem(brokers, subscribers, limits)
    plan = plan_of(problem, name)
    report = verify_assignment(brokers, subscribers, plan.assignment, plan.filters, plan.metrics)
    broken = {check.name for check in report.checks if check.violations}
    assert broken == set(plan.metrics["violations"])
    assert report.holds == plan.feasible
    if name in ("gr-star", "gr-star sharded", "balance"):
        assert plan.feasible


def test_balance_is_never_beaten_in_load(spark, workload):
    problem = make_problem(*workload, Limits())
    best = plan_of(problem, "balance").metrics["lbf"]
    assert best <= plan_of(problem, "gr-star").metrics["lbf"] and best < 1.2


@pytest.mark.parametrize("name", PLANNERS)
def test_same_plan_for_any_number_of_partitions(spark, workload, name):
    brokers, subscribers = workload
    plans = [plan_of(make_problem(brokers, subscribers.repartition(n, "high"), Limits()), name) for n in (1, 3, 8)]
    first = rows_of(plans[0].assignment), rows_of(plans[0].filters)
    for other in plans[1:]:
        assert (rows_of(other.assignment), rows_of(other.filters)) == first


def test_events_replace_volume(spark, workload):
    brokers, subscribers = workload
    events = spark.createDataFrame([([0.0, 0.0], 1.0), ([5000.0, 5000.0], 3.0)], EVENTS)
    plan = plan_of(make_problem(brokers, subscribers, Limits(), events), "closest")
    assert 0 < plan.metrics["bandwidth"] <= plan.metrics["bandwidth_sum"] <= 12 * 3
    report = verify_assignment(brokers, subscribers, plan.assignment, plan.filters, plan.metrics, events=events)
    assert report.recomputed["bandwidth"] == pytest.approx(plan.metrics["bandwidth"])


# ---------------------------------------------------------------- edges

@pytest.mark.parametrize("name", PLANNERS)
def test_one_broker_one_subscriber(spark, name):
    brokers = spark.createDataFrame(FIG_16_BROKERS[:2], BROKERS)
    subscribers = spark.createDataFrame([(7, [0.0], [0.0], [0.0], None)], SUBSCRIBERS)
    plan = plan_of(make_problem(brokers, subscribers, Limits()), name)
    assert [row[:2] for row in plan.assignment.collect()] == [(7, 1)] and plan.feasible


def test_impossible_load_is_a_best_effort_with_the_reason(spark):
    subscribers = [(i, [1.0], [0.0], [1.0], 1.1) for i in range(6)]  # all six only at broker 1
    problem = make_problem(spark.createDataFrame(FIG_16_BROKERS, BROKERS), spark.createDataFrame(subscribers, SUBSCRIBERS), Limits())
    plan = plan_of(problem, "gr-star")
    assert not plan.feasible and plan.metrics["violations"] == {"load": 1}
    assert plan.metrics["best_lbf"] == 3.0 and "gets below 3 (brokers [1]" in plan.advice


def test_a_subscriber_that_no_broker_reaches_is_counted(spark):
    subscribers = [(1, [50.0], [0.0], [1.0], 1.0), (2, [1.0], [0.0], [1.0], None)]
    problem = make_problem(spark.createDataFrame(FIG_16_BROKERS, BROKERS), spark.createDataFrame(subscribers, SUBSCRIBERS), Limits(lbf=3, lbf_max=3))
    for name in ("gr-star", "balance"):
        plan = plan_of(problem, name)
        assert plan.metrics["violations"] == {"latency": 1} and "1 subscribers have no broker" in plan.advice


# ---------------------------------------------------------------- bad input

GOOD = (1, [0.0], [0.0], [1.0], None)
BAD_SUBSCRIBERS = {
    "1 rows with a null subscriber_id": [(None, [0.0], [0.0], [1.0], None)],
    "2 rows with a null, empty or not finite location (subscriber_id 2, 3)": [(2, None, [0.0], [1.0], None), (3, [float("nan")], [0.0], [1.0], None)],
    "1 rows with a null, empty or not finite low or high": [(2, [0.0], [float("inf")], [1.0], None)],
    "1 rows with low > high (subscriber_id 2); swap the corners": [(2, [0.0], [2.0], [1.0], None)],
    "1 rows with a low or high that has not 1 dimensions": [(2, [0.0], [0.0, 0.0], [1.0, 1.0], None)],
    "1 rows with a location that has not the brokers' 1 dimensions": [(2, [0.0, 0.0], [0.0], [1.0], None)],
    "1 rows with a negative or NaN max_latency": [(2, [0.0], [0.0], [1.0], -1.0)],
    "1 duplicate values of subscriber_id (1)": [GOOD],
    "7 rows with low > high (subscriber_id 2, 3, 4, 5, 6, ... (7 in all))": [(i, [0.0], [2.0], [1.0], None) for i in range(2, 9)],
}


@pytest.mark.parametrize("message", BAD_SUBSCRIBERS)
def test_bad_subscribers(spark, message):
    rows = spark.createDataFrame([GOOD, *BAD_SUBSCRIBERS[message]], SUBSCRIBERS).coalesce(1)
    with pytest.raises(BadInput) as caught:
        make_problem(spark.createDataFrame(FIG_16_BROKERS, BROKERS), rows)
    assert message in str(caught.value)


ROOT = (0, None, [0.0], None)
BAD_BROKERS = {
    "the table is empty": [],
    "only the publisher": [ROOT],
    "1 rows with an unknown parent_id (broker_id 1)": [ROOT, (1, 9, [0.0], None)],
    "2 brokers hang in a cycle (broker_id 1, 2)": [ROOT, (1, 2, [0.0], None), (2, 1, [0.0], None), (3, 0, [0.0], None)],
    "2 rows with a null parent_id (broker_id 0, 1)": [ROOT, (1, None, [0.0], None)],
    "no row has a null parent_id": [(0, 1, [0.0], None), (1, 0, [0.0], None)],
    "1 duplicate values of broker_id (broker_id 1)": [ROOT, (1, 0, [0.0], None), (1, 0, [0.0], None)],
    "1 rows with a null, empty or not finite location": [ROOT, (1, 0, [float("nan")], None)],
    "1 rows whose location has not 1 dimensions (broker_id 2)": [ROOT, (1, 0, [0.0], None), (2, 0, [0.0, 1.0], None)],
    "sum to 0.9": [ROOT, (1, 0, [0.0], 0.5), (2, 0, [0.0], 0.4)],
    "1 leaves whose capacity is null, zero, negative or NaN": [ROOT, (1, 0, [0.0], 1.0), (2, 0, [0.0], None)],
}


@pytest.mark.parametrize("message", BAD_BROKERS)
def test_bad_brokers(spark, message):
    brokers = spark.createDataFrame(BAD_BROKERS[message], BROKERS)
    with pytest.raises(BadInput) as caught:
        make_problem(brokers, spark.createDataFrame([GOOD], SUBSCRIBERS))
    assert message in str(caught.value)


def test_all_findings_come_at_once(spark):
    with pytest.raises(BadInput) as caught:
        make_problem(
            spark.createDataFrame([ROOT], BROKERS), spark.createDataFrame([GOOD, (1, [0.0], [3.0], [1.0], -2.0)], SUBSCRIBERS),
            events=spark.createDataFrame([([0.0, 1.0], -1.0)], EVENTS),
        )  # fmt: skip
    for part in ("only the publisher", "low > high", "negative or NaN max_latency", "duplicate values", "a point that has not 1", "negative or NaN weight"):
        assert part in str(caught.value)


def test_empty_subscribers(spark):
    with pytest.raises(BadInput, match="nothing to assign"):
        make_problem(spark.createDataFrame(FIG_16_BROKERS, BROKERS), spark.createDataFrame([], SUBSCRIBERS))


@pytest.mark.parametrize("wrong", [{"alpha": 0}, {"max_delay": -1}, {"lbf": 0.5}, {"lbf": 2, "lbf_max": 1.5}, {"latency": "both"}])
def test_bad_limits(wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        Limits(**wrong)


def test_capacity_shares_are_kept(spark):
    brokers = [(0, None, [0.0], None), (1, 0, [1.0], 0.75), (2, 0, [1.0], 0.25)]
    subscribers = [(i, [1.0], [0.0], [1.0], None) for i in range(8)]
    problem = make_problem(spark.createDataFrame(brokers, BROKERS), spark.createDataFrame(subscribers, SUBSCRIBERS), Limits(lbf=1, lbf_max=1))
    plan = plan_of(problem, "balance")
    loads = {row["broker_id"]: row["count"] for row in plan.assignment.groupBy("broker_id").count().collect()}
    assert loads == {1: 6, 2: 2} and plan.metrics["lbf"] == 1.0


# ---------------------------------------------------------------- workloads

@pytest.mark.parametrize("name", ["set1-lh", "set2", "set3", "cities"])
def test_workloads_are_the_same_for_any_partitioning_and_feasible(spark, name):
    made = assignment_workload(spark, WorkloadParams(name, 3000, 20, seed=2, events=50))
    again = assignment_workload(spark, WorkloadParams(name, 3000, 20, seed=2))
    assert rows_of(made.subscribers) == rows_of(again.subscribers.repartition(3))
    assert rows_of(made.subscribers) != rows_of(assignment_workload(spark, WorkloadParams(name, 3000, 20, seed=3)).subscribers)
    problem = make_problem(made.brokers, made.subscribers, Limits(lbf=2.5, lbf_max=2.5), made.events)
    assert made.figures["placement_met"] and plan_of(problem, "balance").feasible


def test_workload_arguments(spark):
    with pytest.raises(BadInput, match="workload 'set9' is not known; there are set1-ll"):
        WorkloadParams("set9")
    with pytest.raises(BadInput, match="not a multiple of"):
        WorkloadParams("defeats-gr-star", 100, 3)
    with pytest.raises(BadInput, match="for set 1"):
        WorkloadParams("set2", broker_distribution=1)
    europe = [
        np.mean([row["location"][1] < -40 for row in assignment_workload(spark, WorkloadParams("set1-ll", 2000, 60, broker_distribution=d)).brokers.collect()])
        for d in (1, 3)
    ]
    assert europe[0] + 0.2 < europe[1]
