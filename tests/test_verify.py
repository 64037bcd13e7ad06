"""The verifier: a hand-made plan holds, and each way of breaking it is found by exactly the check meant for it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_graph.errors import BadInput
from pubsub_graph.tables import ASSIGNMENT, BROKERS, EVENTS, FILTERS, SUBSCRIBERS
from pubsub_graph.verify import assignment as verifier
from pubsub_graph.verify import verify_assignment
from pubsub_graph.verify.boxes import INCLUSION_EXCLUSION_LIMIT, slab_volume, union_volume
from pubsub_graph.verify.boxes import covered as is_covered
from pubsub_graph.verify.tree import read_tree

DELAY = (6 + math.sqrt(13)) / 9 - 1  # subscriber 15 on leaf 3 instead of leaf 4

# root 0 - 1 (4) - 3 (6), 4 (9); root 0 - 2 (4) - 5 (6); path latencies in brackets
PLAN = {
    "brokers": [
        (0, None, [0.0, 0.0], None), (1, 0, [0.0, 4.0], None), (2, 0, [4.0, 0.0], None),
        (3, 1, [0.0, 6.0], None), (4, 1, [3.0, 8.0], None), (5, 2, [6.0, 0.0], None),
    ],
    "subscribers": [
        (10, [0.0, 7.0], [0.5, 0.0], [2.5, 1.0], None),  # covered by two rectangles together, by none alone
        (11, [3.0, 9.0], [5.0, 5.0], [6.0, 6.0], None),
        (12, [0.0, 9.0], [0.0, 0.0], [1.0, 1.0], None),
        (13, [6.0, 1.0], [0.0, 0.0], [0.0, 4.0], None),  # flat
        (14, [9.0, 4.0], [0.0, 1.0], [1.0, 2.0], 11.0),  # no slack at all
        (15, [3.0, 8.0], [2.0, 1.0], [3.0, 2.0], None),
    ],
    "assignment": [(10, 3, 7.0), (11, 4, 10.0), (12, 3, 9.0), (13, 5, 7.0), (14, 5, 11.0), (15, 3, 6 + math.sqrt(13))],
    "filters": [
        (3, [0.0, 0.0], [2.0, 2.0]), (3, [1.0, 0.0], [3.0, 2.0]),
        (4, [5.0, 5.0], [6.0, 6.0]),
        (5, [0.0, 0.0], [1.0, 4.0]),  # inside the two of broker 2 together
        (1, [0.0, 0.0], [3.0, 2.0]), (1, [5.0, 5.0], [6.0, 6.0]),
        (2, [0.0, 0.0], [1.0, 2.0]), (2, [0.0, 2.0], [1.0, 4.0]),
    ],
    "metrics": {
        "algorithm": "hand", "seed": 1, "feasible": True, "violations": {}, "seconds": {"total": 0.0},
        "parameters": {"alpha": 2, "max_delay": 0.3, "lbf": 1.5, "lbf_max": 1.5, "latency": "path"},
        "bandwidth": 22.0, "bandwidth_sum": 24.0, "rms_delay": DELAY / math.sqrt(6), "max_delay": DELAY,
        "lbf": 1.5, "load_stdev": math.sqrt(2 / 3),
    },
}  # fmt: skip
WITHOUT_11 = {"rms_delay": DELAY / math.sqrt(5), "load_stdev": float(np.std([3, 0, 2]))}


def verify(spark, plan, **options):
    tables = [
        spark.createDataFrame(plan[name], schema)
        for name, schema in (("brokers", BROKERS), ("subscribers", SUBSCRIBERS), ("assignment", ASSIGNMENT), ("filters", FILTERS))
    ]
    return verify_assignment(*tables, plan["metrics"], **options)


def test_a_valid_plan_holds(spark):
    report = verify(spark, PLAN)
    assert report.failed == (), report.render()
    assert report.holds
    for name in verifier.MEASURES:
        assert report.recomputed[name] == pytest.approx(PLAN["metrics"][name], rel=1e-9)
    by_name = {check.name: check for check in report.checks}
    assert set(by_name) == set(verifier.HINTS)
    assert by_name["latency"].worst_slack == pytest.approx(0.0)
    assert by_name["load"].worst_slack == pytest.approx(0.0)
    assert by_name["coverage"].worst_slack == 0.0
    assert "the plan holds" in report.render()


def replaced(rows: list, key: int, **changes: object) -> list:
    """The rows with those of subscriber ``key`` changed, by position (``_1=...``)."""
    return [tuple(changes.get(f"_{i}", v) for i, v in enumerate(row)) if row[0] == key else row for row in rows]


def edit(table: str, change: Callable[[list], list], **measures: float) -> Callable[[dict], None]:
    def apply(plan: dict) -> None:
        plan[table] = change(plan[table])
        plan["metrics"].update(measures)

    return apply


def parameter(**values: float) -> Callable[[dict], None]:
    return lambda plan: plan["metrics"]["parameters"].update(values)


BREAKS = {
    "missing": ("missing subscribers", edit("assignment", lambda r: [x for x in r if x[0] != 11], **WITHOUT_11), "subscriber 11"),
    "duplicated": ("duplicated subscribers", edit("assignment", lambda r: [*r, (10, 3, 7.0)]), "subscriber 10"),
    "unknown": ("unknown subscribers", edit("assignment", lambda r: [*r, (99, 5, 7.0)]), "subscriber 99"),
    "interior broker": ("leaf brokers", edit("assignment", lambda r: replaced(r, 11, _1=1), **WITHOUT_11), "subscriber 11"),
    "unknown broker": ("leaf brokers", edit("assignment", lambda r: replaced(r, 11, _1=77), **WITHOUT_11), "subscriber 11"),
    "null broker": ("leaf brokers", edit("assignment", lambda r: replaced(r, 11, _1=None), **WITHOUT_11), "subscriber 11"),
    "beyond its max_latency": ("latency", edit("subscribers", lambda r: replaced(r, 14, _4=10.999)), "subscriber 14"),
    "beyond max_delay": ("latency", parameter(max_delay=DELAY - 0.001), "subscriber 15"),
    "latency written": ("latency written", edit("assignment", lambda r: replaced(r, 13, _2=7.001)), "subscriber 13"),
    "no latency written": ("latency written", edit("assignment", lambda r: replaced(r, 13, _2=None)), "subscriber 13"),
    "overload": ("load", parameter(lbf_max=1.49), "broker 3 serves 3"),
    "uncovered": ("coverage", edit("subscribers", lambda r: replaced(r, 12, _3=[1.0, 2.001])), "subscriber 12"),
    "uncovered between": ("coverage", edit("subscribers", lambda r: replaced(r, 13, _3=[1.001, 4.0])), "subscriber 13"),
    "nesting": (
        "nesting",
        edit("filters", lambda r: [*r[:-1], (2, [0.0, 2.5], [1.0, 4.0])], bandwidth=21.5, bandwidth_sum=23.5),
        "broker 5",
    ),
    "too many rectangles": ("filter complexity", parameter(alpha=1), "broker 1 has 2"),
    "filter at the root": ("filter complexity", edit("filters", lambda r: [*r, (0, [0.0, 0.0], [1.0, 1.0])]), "root"),
    "filter at an unknown broker": ("filter complexity", edit("filters", lambda r: [*r, (8, [0.0, 0.0], [1.0, 1.0])]), "unknown"),
    "reversed rectangle": ("filter shape", edit("filters", lambda r: [*r, (4, [1.0, 1.0], [0.0, 2.0])]), "broker 4"),
    "NaN rectangle": ("filter shape", edit("filters", lambda r: [*r, (4, [math.nan, 1.0], [2.0, 2.0])]), "broker 4"),
    "flat-dimension rectangle": ("filter shape", edit("filters", lambda r: [*r, (4, [1.0], [2.0])]), "broker 4"),
}


@pytest.fixture
def known_latencies(monkeypatch):
    """The tree is the same in every broken plan, and Pregel is most of the time: hand its (hand-computed) result in."""
    monkeypatch.setattr(verifier, "_path_latencies", lambda graph, tree: {3: 6.0, 4: 9.0, 5: 6.0})


def test_path_latencies_of_a_deep_tree(spark):
    rows = [{"broker_id": b, "parent_id": b - 1 if b else None, "location": [3.0 * b, 4.0 * b], "capacity": None} for b in range(6)]
    rows.append({"broker_id": 9, "parent_id": 2, "location": [6.0, 8.0], "capacity": None})
    tree = read_tree(rows)
    assert tree.depth == 5
    assert verifier._path_latencies(verifier._graph(spark, tree, {}), tree) == pytest.approx({5: 25.0, 9: 10.0})


@pytest.mark.parametrize("name", BREAKS)
def test_each_break_is_found_by_its_check(spark, known_latencies, name):
    check, break_it, example = BREAKS[name]
    plan = copy.deepcopy(PLAN)
    break_it(plan)
    plan["metrics"].update(feasible=False, violations={"some": 1})
    report = verify(spark, plan)
    assert report.failed == (check,), report.render()
    found = next(c for c in report.checks if c.name == check)
    assert found.violations == (3 if name == "too many rectangles" else 1)
    assert example in str(found.examples[0])
    assert "NOT hold" in report.render()


def test_claiming_feasible_in_spite_of_violations_is_tampering(spark, known_latencies):
    plan = copy.deepcopy(PLAN)
    plan["metrics"]["parameters"]["lbf_max"] = 1.49
    report = verify(spark, plan)
    assert report.failed == ("load", "metrics")
    assert "tampered" in report.checks[-1].examples[0]


def test_explicit_parameters_take_precedence(spark, known_latencies):
    assert verify(spark, PLAN, alpha=1, max_delay=0.01, lbf_max=1.0).failed == ("latency", "load", "filter complexity", "metrics")


def test_last_hop_latency_and_events(spark):
    plan = copy.deepcopy(PLAN)
    hops = {10: 1.0, 11: 1.0, 12: 3.0, 13: 1.0, 14: 5.0, 15: 3.0}
    plan["subscribers"] = replaced(plan["subscribers"], 15, _1=[0.0, 3.0])
    plan["assignment"] = [(s, b, hops[s]) for s, b, _ in plan["assignment"]]
    plan["metrics"]["parameters"]["latency"] = "last-hop"
    # 1 lies in one rectangle of 3, and in 1; 2 in both of 3, and in 1; 3 in 4 and 1; 4 nowhere; 5 in 5 and, on the seam, twice in 2
    points = [([2.5, 1.0], 1.0), ([1.5, 1.0], 2.0), ([5.5, 5.5], 3.0), ([9.0, 9.0], 4.0), ([0.5, 2.0], 10.0)]
    plan["metrics"].update(
        bandwidth=(2 * 1 + 2 * 2 + 2 * 3 + 2 * 10 + 10 * 0 + 0) / 20,
        bandwidth_sum=(2 * 1 + 3 * 2 + 2 * 3 + 3 * 10) / 20,
        rms_delay=0.0, max_delay=0.0,
    )  # fmt: skip
    # (0.5, 2) is on the edge of leaf 3's first rectangle and of broker 1's: closed boxes count it there too
    plan["metrics"]["bandwidth"] += 2 * 10 / 20
    plan["metrics"]["bandwidth_sum"] += 2 * 10 / 20
    report = verify(spark, plan, events=spark.createDataFrame(points, EVENTS))
    assert report.failed == (), report.render()


def test_bad_input_is_an_error(spark, known_latencies):
    twice = {**PLAN, "subscribers": [*PLAN["subscribers"], PLAN["subscribers"][0]]}
    with pytest.raises(BadInput, match="duplicate values of subscriber_id"):
        verify(spark, twice)
    reversed_box = {**PLAN, "subscribers": replaced(PLAN["subscribers"], 12, _2=[2.0, 0.0])}
    with pytest.raises(BadInput, match="subscriber_id 12"):
        verify(spark, reversed_box)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, None), (0, None)], "more than once"),
        ([(0, None), (1, None)], "2 rows with a null parent_id"),
        ([(0, None), (1, 2), (2, 1)], "not below the root"),
        ([(0, None)], "no leaf"),
    ],
)
def test_a_broken_tree_is_bad_input(rows, message):
    with pytest.raises(BadInput, match=message):
        read_tree([{"broker_id": b, "parent_id": p, "location": [0.0], "capacity": None} for b, p in rows])


# ---------------------------------------------------------------- metrics, without Spark

TRUE = {name: PLAN["metrics"][name] for name in verifier.MEASURES}


def metrics_check(metrics: dict):
    return verifier._check_metrics(metrics, TRUE, verifier._limits(metrics, None, None, None, None), violated=False)


def test_true_metrics_pass():
    assert metrics_check(PLAN["metrics"]).violations == 0


@pytest.mark.parametrize("field", verifier.MEASURES)
@pytest.mark.parametrize("value", [lambda x: x * (1 + 1e-5), lambda x: -x, lambda x: None, lambda x: math.nan])
def test_each_tampered_measure_is_found(field, value):
    found = metrics_check({**PLAN["metrics"], field: value(PLAN["metrics"][field])})
    assert found.violations == 1
    assert field in found.examples[0]


@pytest.mark.parametrize("field", verifier.FIELDS)
def test_each_missing_field_is_found(field):
    found = metrics_check({key: value for key, value in PLAN["metrics"].items() if key != field})
    assert f"{field} is missing" in found.examples


@pytest.mark.parametrize("name", ["alpha", "max_delay", "lbf_max"])
def test_a_missing_parameter_is_found(name):
    left = {key: value for key, value in PLAN["metrics"]["parameters"].items() if not key.startswith(name[:3])}
    assert metrics_check({**PLAN["metrics"], "parameters": left}).violations == 1


def test_feasible_beside_violations_is_a_contradiction():
    assert metrics_check({**PLAN["metrics"], "violations": {"load": 2}}).violations == 1


# ---------------------------------------------------------------- boxes against counted cells


def boxes(dimension: int, most: int, side: int = 4) -> st.SearchStrategy:
    corner = st.lists(st.integers(0, side), min_size=dimension, max_size=dimension)
    one = st.tuples(corner, corner).map(lambda p: ([min(a, b) for a, b in zip(*p)], [max(a, b) for a, b in zip(*p)]))
    return st.lists(one, min_size=1, max_size=most)


dimensions = st.integers(1, 3)


@settings(max_examples=150, deadline=None)
@given(dimensions.flatmap(lambda d: boxes(d, 18)))
def test_union_volume_is_the_number_of_cells(many):
    cells = set()
    for low, high in many:
        cells.update(product(*[range(a, b) for a, b in zip(low, high)]))
    lows, highs = (np.array([box[side] for box in many], dtype=float) for side in (0, 1))
    assert slab_volume(lows, highs) == len(cells)
    if len(many) <= INCLUSION_EXCLUSION_LIMIT:
        assert union_volume(lows, highs) == pytest.approx(len(cells), abs=1e-9)


@settings(max_examples=400, deadline=None)
@given(dimensions.flatmap(lambda d: st.tuples(boxes(d, 1, 3), boxes(d, 9, 3))))
def test_union_containment_is_that_of_all_half_points(drawn):
    ((low, high),), many = drawn
    # corners are whole numbers, so a box is covered when all its points on the half-step lattice are
    lattice = product(*[range(2 * a, 2 * b + 1) for a, b in zip(low, high)])
    covered = all(
        any(all(2 * a <= x <= 2 * b for a, x, b in zip(box[0], point, box[1])) for box in many) for point in lattice
    )
    pairs = [(np.array(a, dtype=float), np.array(b, dtype=float)) for a, b in many]
    assert is_covered(np.array(low, dtype=float), np.array(high, dtype=float), pairs) == covered
