"""The verifier of overlays: a hand-made one holds, and each way of breaking it is found by exactly the check meant for it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from jobs import verify as job
from pubsub_graph.errors import BadInput
from pubsub_graph.tables import EDGES, INTERESTS, Tables
from pubsub_graph.verify import topics as verifier
from pubsub_graph.verify import verify_topics

# topic 10: 1 - 2 - 3 - 4; topic 20: 3 - 4 - 5; topic 30: 6 alone; topic 40: 1 - 6
PLAN = {
    "interests": [(1, 10), (2, 10), (3, 10), (4, 10), (3, 20), (4, 20), (5, 20), (6, 30), (1, 40), (6, 40), (2, 10)],
    "edges": [(1, 2), (2, 3), (3, 4), (4, 5), (1, 6)],
    "metrics": {
        "algorithm": "hand", "parameters": {}, "seed": 1, "feasible": True, "violations": {}, "seconds": {"total": 0.0},
        "max_degree": 2, "avg_degree": 10 / 6, "edges": 5, "topic_connected": True, "pn_ratio": None, "lower_bound_max_degree": 2,
    },
}  # fmt: skip
BROKEN = {"feasible": False, "topic_connected": False, "violations": {"topics": 1}}


def verify(spark, plan):
    return verify_topics(spark.createDataFrame(plan["interests"], INTERESTS), spark.createDataFrame(plan["edges"], EDGES), plan["metrics"])


@pytest.fixture(params=["copied", "shared"])
def route(request, monkeypatch):
    """Both ways of bringing edges to topics."""
    monkeypatch.setattr(verifier, "_copying_is_cheaper", lambda sizes: request.param == "copied")


def check(report, name):
    return next(found for found in report.checks if found.name == name)


def test_a_valid_plan_holds(spark, route):
    report = verify(spark, PLAN)
    assert report.holds, report.render()
    assert {found.name for found in report.checks} == set(verifier.HINTS)
    assert report.recomputed == {
        "max_degree": 2, "avg_degree": pytest.approx(10 / 6), "edges": 5, "topic_connected": 1, "needless_edges": 0,
    }  # fmt: skip
    assert check(report, "topics connected").worst_slack == 0
    assert "the plan holds" in report.render()


def edges(change: Callable[[list], list], **measures: object) -> Callable[[dict], None]:
    def apply(plan: dict) -> None:
        plan["edges"] = change(plan["edges"])
        plan["metrics"].update(measures)

    return apply


BREAKS = {
    "null end": ("missing ends", edges(lambda r: [*r, (4, None)]), "(4, None)"),
    "loop": ("loops", edges(lambda r: [*r, (4, 4)]), "(4, 4)"),
    "backwards": ("edge order", edges(lambda r: [(2, 1), *r[1:]]), "(2, 1)"),
    "twice": ("duplicated edges", edges(lambda r: [*r, (2, 3)]), "(2, 3)"),
    "unknown": ("unknown nodes", edges(lambda r: [*r, (5, 99)], edges=6, avg_degree=2.0), "node 99"),
    "cut": (
        "topics connected",
        edges(lambda r: [e for e in r if e != (2, 3)], edges=4, avg_degree=8 / 6, **BROKEN),
        "topic 10 has 2 components",
    ),
    "through a stranger": (
        "topics connected",
        edges(lambda r: [*[e for e in r if e != (2, 3)], (2, 5)], edges=5, **BROKEN),
        "topic 10 has 2 components",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_break_is_found_by_its_check(spark, name):
    kind, break_it, example = BREAKS[name]
    plan = copy.deepcopy(PLAN)
    break_it(plan)
    report = verify(spark, plan)
    assert report.failed == (kind,), report.render()
    assert check(report, kind).violations == 1
    assert check(report, kind).examples[0] == example
    assert "NOT hold" in report.render()


def test_a_split_topic_is_found_either_way(spark, route):
    plan = copy.deepcopy(PLAN)
    BREAKS["through a stranger"][1](plan)
    report = verify(spark, plan)
    assert report.failed == ("topics connected",), report.render()
    assert check(report, "topics connected").worst_slack == -1
    assert report.recomputed["needless_edges"] == 1  # (2, 5) joins nobody; (3, 4) is a bridge of topic 20 still


def test_a_needless_link_is_told_and_no_violation(spark, route):
    plan = copy.deepcopy(PLAN)
    edges(lambda r: [*r, (5, 6)], edges=6, avg_degree=2.0)(plan)
    report = verify(spark, plan)
    assert report.holds, report.render()
    assert report.recomputed["needless_edges"] == 1
    assert check(report, "needless edges").examples == ("1 edges, such as (5, 6)",)


def test_a_link_that_closes_a_circle_is_needless_unless_a_topic_needs_it(spark, route):
    plan = copy.deepcopy(PLAN)
    edges(lambda r: [*r, (1, 4)], edges=6, avg_degree=2.0, max_degree=3)(plan)  # topic 10: 1 - 2 - 3 - 4 - 1; topic 20 needs (3, 4)
    report = verify(spark, plan)
    assert report.holds, report.render()
    assert check(report, "needless edges").examples == ("3 edges, such as (1, 2), (1, 4), (2, 3)",)


@pytest.mark.parametrize("seed", range(2))
def test_random_overlays_against_networkx(spark, route, monkeypatch, seed):
    monkeypatch.setattr(verifier, "TASK_TOPICS", 5)
    rng = np.random.default_rng(seed)
    has = rng.random((40, 23)) < 0.2
    interests = [(int(v) - 7, int(t) * 1000) for v, t in zip(*np.nonzero(has))]
    links = sorted({(int(min(a, b)) - 7, int(max(a, b)) - 7) for a, b in rng.integers(0, 40, (160, 2)) if a != b})
    split = 0
    needed = set()
    for t in range(23):
        members = {int(v) - 7 for v in np.flatnonzero(has[:, t])}
        graph = nx.Graph(links).subgraph(members).copy()
        graph.add_nodes_from(members)
        split += bool(members) and nx.number_connected_components(graph) > 1
        needed |= {tuple(sorted(edge)) for edge in nx.bridges(graph)}
    report = verify(spark, {"interests": interests, "edges": links, "metrics": {}})
    assert check(report, "topics connected").violations == split > 0
    assert report.recomputed["needless_edges"] == len(links) - len(needed) > 0
    assert needed


@pytest.mark.parametrize("seed", range(20))
def test_bridges_against_networkx(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    links = np.array(sorted({(int(min(a, b)), int(max(a, b))) for a, b in rng.integers(0, n, (int(rng.integers(0, 50)), 2)) if a != b}), dtype=np.int64)
    links = links.reshape(-1, 2)
    half = n // 2  # two graphs side by side
    links = links[(links < half).all(1) | (links >= half).all(1)]
    graph = nx.Graph(links.tolist())
    graph.add_nodes_from(range(n))
    numbers, bridge = verifier._look(np.array([0, half, n]), links[:, 0], links[:, 1])
    assert {tuple(edge) for edge in links[bridge].tolist()} == {tuple(sorted(edge)) for edge in nx.bridges(graph)}
    parts = [graph.subgraph(range(half)), graph.subgraph(range(half, n))]
    assert numbers.tolist() == [nx.number_connected_components(part) for part in parts]


def test_null_interests_are_bad_input(spark):
    with pytest.raises(BadInput, match="1 rows with a null"):
        verify(spark, {**PLAN, "interests": [*PLAN["interests"], (None, 10)]})


def test_an_empty_overlay(spark):
    report = verify(spark, {**PLAN, "edges": []})
    assert report.failed == ("topics connected", "metrics")
    assert check(report, "topics connected").violations == 3


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_topics_looked_at_together_or_not(monkeypatch, most):
    monkeypatch.setattr(verifier, "TASK_EDGES", most)
    rng = np.random.default_rng(4)
    pairs = sorted({(int(t), int(v)) for t, v in zip(rng.integers(0, 9, 60), rng.integers(0, 15, 60))})
    links = sorted({(int(min(a, b)), int(max(a, b))) for a, b in rng.integers(0, 16, (40, 2)) if a != b})
    keyed = [(t, a, b) for t in range(9) for a, b in links if (t, a) in pairs and (t, b) in pairs]

    def found(count, edges):
        rows = [(t, v, None) for t, v in pairs] + edges
        columns = [pa.array(column, pa.int64()) for column in zip(*rows)]
        batches = pa.table(dict(zip(("topic_id", "a", "b"), columns))).to_batches()
        return sorted(tuple(row.values()) for batch in count(batches) for row in batch.to_pylist())

    copied = found(verifier._count_in_all_edges, [(None, a, b) for a, b in links])
    assert copied == found(verifier._count_in_shared_edges, keyed)
    assert {t: parts for is_edge, t, parts in copied if not is_edge} == {
        t: nx.number_connected_components(graph_of(pairs, keyed, t)) for t in {t for t, _ in pairs}
    }


def graph_of(pairs, keyed, topic):
    graph = nx.Graph([(a, b) for t, a, b in keyed if t == topic])
    graph.add_nodes_from(v for t, v in pairs if t == topic)
    return graph


@pytest.mark.parametrize("count", [verifier._count_in_all_edges, verifier._count_in_shared_edges])
def test_a_task_may_have_edges_and_no_topic(count):
    rows = pa.table({"topic_id": pa.array([None], pa.int64()), "a": [1], "b": [2]}).to_batches()
    assert [row for batch in count(rows) for row in batch.to_pylist()] == []
    assert list(count([])) == []


def test_copies_of_few_topics_and_joins_of_many():
    few = verifier._Sizes(pairs=50_000_000, topics=200, nodes=1_000_000, edges=3_000_000)
    many = verifier._Sizes(pairs=5_000_000, topics=10_000, nodes=100_000, edges=1_300_000)
    assert verifier._copying_is_cheaper(few) and few.tasks == 13
    assert not verifier._copying_is_cheaper(many)


# ---------------------------------------------------------------- metrics, without Spark

TRUE = {"max_degree": 2.0, "avg_degree": 10 / 6, "edges": 5.0, "topic_connected": 1.0}


def test_true_metrics_pass():
    assert verifier._check_metrics(PLAN["metrics"], TRUE).violations == 0


@pytest.mark.parametrize("field", verifier.MEASURES)
@pytest.mark.parametrize("value", [lambda x: x * (1 + 1e-5), lambda x: -x, lambda x: None, lambda x: math.nan, lambda x: True])
def test_each_tampered_measure_is_found(field, value):
    found = verifier._check_metrics({**PLAN["metrics"], field: value(PLAN["metrics"][field])}, TRUE)
    assert found.violations == 1
    assert field in found.examples[0]


@pytest.mark.parametrize("field", verifier.FIELDS)
def test_each_missing_field_is_found(field):
    found = verifier._check_metrics({key: value for key, value in PLAN["metrics"].items() if key != field}, TRUE)
    assert found.examples == (f"{field} is missing",)


@pytest.mark.parametrize(
    "change", [{"lower_bound_max_degree": 3}, {"lower_bound_max_degree": None}, {"topic_connected": False}, {"feasible": False}, {"violations": {"a": 1}}]
)
def test_each_contradiction_is_found(change):
    assert verifier._check_metrics({**PLAN["metrics"], **change}, TRUE).violations == 1


# ---------------------------------------------------------------- the job


def test_the_job_chooses_by_the_plan(spark, tmp_path, capsys):
    def written(name: str, plan: dict) -> str:
        Tables(spark, f"{tmp_path}/{name}").write({"edges": spark.createDataFrame(plan["edges"], EDGES)}, plan["metrics"])
        return f"{tmp_path}/{name}"

    given = f"{tmp_path}/in"
    Tables(spark, given).write({"interests": spark.createDataFrame(PLAN["interests"], INTERESTS)}, {}, "workload.json")
    assert job.main(["--input", given, "--plan", written("good", PLAN)]) == 0
    assert "the plan holds" in capsys.readouterr().out
    assert job.main(["--input", given, "--plan", written("cut", {**PLAN, "edges": PLAN["edges"][1:]})]) == 3
    assert "topic 10 has 2 components" in capsys.readouterr().out
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.json").write_text("{}")
    assert job.main(["--input", given, "--plan", f"{tmp_path}/other"]) == 2
    assert "no table 'edges' and no table 'assignment'" in capsys.readouterr().err
