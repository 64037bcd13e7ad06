"""Verify a subscriber assignment: tables and ``metrics.json`` in, a ``VerificationReport`` out.

Everything is recomputed from the definitions, with code of its own. The broker tree is a GraphFrame: Pregel carries the
path latency from the root to the leaves, and nesting is checked over the triplets (parent, edge, child). Subscribers
are read once: assignment grouped by subscriber, full outer join with the subscribers, one Arrow function that keeps
running totals per partition, one small aggregation. Only things of the size of the brokers reach the driver.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pubsub_graph.errors import BadInput
from pubsub_graph.session import require_graphframes
from pubsub_graph.tables import ASSIGNMENT, BROKERS, EVENTS, FILTERS, SUBSCRIBERS, conform, duplicated_ids
from pubsub_graph.verify.boxes import covered, union_volume
from pubsub_graph.verify.report import SHOWN, CheckResult, VerificationReport
from pubsub_graph.verify.subscribers import ROW_CHECKS, TOLERANCE, Scan, scan_subscribers, vectors
from pubsub_graph.verify.tree import Tree, is_finite, read_tree

__all__ = ["CheckResult", "VerificationReport", "verify_assignment"]

METRIC_TOLERANCE = 1e-6  # relative

HINTS = {
    "missing subscribers": "the plan leaves these subscribers without a broker",
    "duplicated subscribers": "the plan names these subscribers more than once; keep one row each",
    "unknown subscribers": "the plan names subscribers that the input does not have; is it a plan of this input?",
    "leaf brokers": "the broker is unknown or not a leaf; subscribers hang on leaves only",
    "latency written": "the latency in the plan is not the one through the tree",
    "latency": "the subscriber's broker is too far; allow a larger max_delay or move it to a nearer leaf",
    "load": "the leaf serves more than lbf_max times its share",
    "coverage": "the subscription is not inside the union of its broker's rectangles: events would be lost",
    "nesting": "a rectangle is not inside the union of its parent's rectangles: events would not reach the broker",
    "filter complexity": "more than alpha rectangles at a broker, or rectangles at the root or at an unknown broker",
    "filter shape": "a rectangle with low > high, a null, NaN or infinity, or the wrong dimension",
    "metrics": "metrics.json does not say what the tables say",
}
MEASURES = ("bandwidth", "bandwidth_sum", "rms_delay", "max_delay", "lbf", "load_stdev")
ROUNDED = ("rms_delay", "max_delay", "load_stdev")  # may be zero but for rounding
FIELDS = ("algorithm", "parameters", "seed", "feasible", "violations", "seconds", *MEASURES)


def verify_assignment(
    brokers: DataFrame,
    subscribers: DataFrame,
    assignment: DataFrame,
    filters: DataFrame,
    metrics: Mapping[str, Any],
    *,
    events: DataFrame | None = None,
    alpha: int | None = None,
    max_delay: float | None = None,
    lbf_max: float | None = None,
    last_hop: bool | None = None,
) -> VerificationReport:
    """Check a plan against its input; the parameters come from ``metrics['parameters']`` unless given here."""
    spark = subscribers.sparkSession
    require_graphframes(spark)
    brokers, subscribers = conform(brokers, BROKERS, "brokers"), conform(subscribers, SUBSCRIBERS, "subscribers")
    assignment, filters = conform(assignment, ASSIGNMENT, "assignment"), conform(filters, FILTERS, "filters")

    limits = _limits(metrics, alpha, max_delay, lbf_max, last_hop)
    tree = read_tree(brokers.collect())
    first = subscribers.select(F.size("low").alias("d")).where("d > 0").first()
    written = filters.collect()
    dimension = first["d"] if first else max((len(row["low"] or ()) for row in written), default=0)
    shape, complexity, rectangles = _check_filters(written, tree, dimension, limits.alpha)

    graph = _graph(spark, tree, rectangles)
    nesting = _check_nesting(graph, tree.root)
    distances = dict.fromkeys(tree.leaves, 0.0) if limits.last_hop else _path_latencies(graph, tree)

    findings = duplicated_ids(subscribers, "subscribers", "subscriber_id")
    if findings:
        raise BadInput.of(findings)
    scan = scan_subscribers(subscribers, assignment, tree, distances, rectangles, dimension, limits.max_delay)
    load, load_measures = _check_load(tree, scan, limits.lbf_max)
    recomputed = {**_bandwidth(rectangles, events), **scan.delays(), **load_measures}
    checks = [*_row_checks(scan), load, nesting, complexity, shape]
    order = {name: position for position, name in enumerate(HINTS)}
    checks.sort(key=lambda check: order[check.name])
    tampered = _check_metrics(metrics, recomputed, limits, any(check.violations for check in checks))
    return VerificationReport((*checks, tampered), recomputed)


# ---------------------------------------------------------------- parameters


@dataclass(frozen=True)
class _Limits:
    alpha: float | None
    max_delay: float | None
    lbf_max: float | None
    last_hop: bool
    absent: tuple[str, ...]


def _limits(metrics: Mapping[str, Any], alpha: Any, max_delay: Any, lbf_max: Any, last_hop: bool | None) -> _Limits:
    parameters = metrics.get("parameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}

    def number(given: Any, *keys: str) -> float | None:
        values = [given, *(parameters.get(key) for key in keys)]
        return next((float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)), None)

    found = {
        "alpha": number(alpha, "alpha"),
        "max_delay": number(max_delay, "max_delay"),
        "lbf_max": number(lbf_max, "lbf_max", "lbf"),
    }
    hop = last_hop if last_hop is not None else parameters.get("latency", "path") == "last-hop"
    return _Limits(**found, last_hop=hop, absent=tuple(key for key, value in found.items() if value is None))


# ---------------------------------------------------------------- the graph


def _graph(spark: SparkSession, tree: Tree, rectangles: Mapping[int, np.ndarray]) -> Any:
    """The broker tree as a GraphFrame; a vertex carries its location and its rectangles."""
    from graphframes import GraphFrame

    boxes = {key: [(pair[0].tolist(), pair[1].tolist()) for pair in value] for key, value in rectangles.items()}
    vertices = spark.createDataFrame(
        [(key, at, boxes.get(key, [])) for key, at in tree.locations.items()],
        "id bigint, location array<double>, rectangles array<struct<low: array<double>, high: array<double>>>",
    ).coalesce(1)
    edges = spark.createDataFrame([(p, c) for c, p in tree.parents.items()], "src bigint, dst bigint").coalesce(1)
    return GraphFrame(vertices, edges)


def _length(a: Column, b: Column) -> Column:
    squares = F.zip_with(a, b, lambda x, y: (x - y) * (x - y))
    return F.sqrt(F.aggregate(squares, F.lit(0.0), lambda total, x: total + x))


def _path_latencies(graph: Any, tree: Tree) -> dict[int, float]:
    """Latency from the root to each leaf: one Pregel step a level (checkpointed, or the plan grows exponentially)."""
    from graphframes.lib import Pregel

    step = Pregel.src("distance") + _length(Pregel.src("location"), Pregel.dst("location"))
    vertices = (
        graph.pregel.setMaxIter(tree.depth)
        .setCheckpointInterval(2)
        .setUseLocalCheckpoints(True)
        .withVertexColumn(
            "distance", F.when(F.col("id") == tree.root, F.lit(0.0)), F.coalesce(Pregel.msg(), F.col("distance"))
        )
        .sendMsgToDst(step)
        .aggMsgs(F.min(Pregel.msg()))
        .run()
    )
    found = {row["id"]: row["distance"] for row in vertices.select("id", "distance").collect()}
    return {leaf: found[leaf] for leaf in tree.leaves}


def _check_nesting(graph: Any, root: int) -> CheckResult:
    pairs = graph.triplets.where(F.col("src.id") != root).select(
        F.col("src.id").alias("parent"), F.col("dst.id").alias("child"),
        F.col("src.rectangles").alias("outer"), F.col("dst.rectangles").alias("inner"),
    )  # fmt: skip
    bad, count, worst = [], 0, math.inf
    for row in sorted(pairs.collect(), key=lambda r: r["child"]):
        outer = [(np.array(o["low"]), np.array(o["high"])) for o in row["outer"]]
        for box in row["inner"]:
            low, high = np.array(box["low"]), np.array(box["high"])
            slack = max((float(min((low - a).min(), (b - high).min())) for a, b in outer), default=-math.inf)
            if slack < 0 and covered(low, high, outer):
                slack = 0.0
            worst = min(worst, slack)
            if slack < 0:
                count += 1
                bad.append(f"broker {row['child']} {box['low']}..{box['high']} outside parent {row['parent']}")
    return _result("nesting", count, worst, bad)


# ---------------------------------------------------------------- filters and bandwidth


def _check_filters(
    rows: Sequence[Row], tree: Tree, dimension: int, alpha: float | None
) -> tuple[CheckResult, CheckResult, dict[int, np.ndarray]]:
    """Checks of shape and complexity, and the well-formed rectangles of each broker as an array (k, 2, dimension)."""
    kept: dict[int, list[tuple[list[float], list[float]]]] = {}
    malformed: list[str] = []
    misplaced: list[str] = []
    counts: Counter[int] = Counter()
    for row in rows:
        key, low, high = row["broker_id"], row["low"], row["high"]
        if key not in tree.parents:
            misplaced.append(f"broker {key} ({'root' if key == tree.root else 'unknown'})")
            continue
        counts[key] += 1
        if not (is_finite(low, dimension) and is_finite(high, dimension) and all(a <= b for a, b in zip(low, high, strict=True))):
            malformed.append(f"broker {key} {low}..{high}")
            continue
        kept.setdefault(key, []).append((low, high))
    crowded = [] if alpha is None else [f"broker {key} has {n}" for key, n in sorted(counts.items()) if n > alpha]
    slack = math.inf if alpha is None or not counts else alpha - max(counts.values())
    return (
        _result("filter shape", len(malformed), math.inf, malformed),
        _result("filter complexity", len(crowded) + len(misplaced), slack, sorted(misplaced) + crowded),
        {key: np.array(pairs, dtype=float) for key, pairs in kept.items()},
    )


def _bandwidth(rectangles: Mapping[int, np.ndarray], events: DataFrame | None) -> dict[str, float]:
    if events is None:
        union = sum(union_volume(boxes[:, 0], boxes[:, 1]) for boxes in rectangles.values())
        single = sum(float(np.prod(boxes[:, 1] - boxes[:, 0], axis=1).sum()) for boxes in rectangles.values())
        return {"bandwidth": float(union), "bandwidth_sum": float(single)}
    sums = conform(events, EVENTS, "events").mapInArrow(
        _event_shares(list(rectangles.values())), "weight double, inside_union double, inside_each double"
    )
    row = sums.agg(F.sum("weight"), F.sum("inside_union"), F.sum("inside_each")).first()
    assert row is not None
    if not row[0]:
        raise BadInput("events: the weights sum to 0; give positive weights, or no events table for a uniform distribution")
    return {"bandwidth": row[1] / row[0], "bandwidth_sum": row[2] / row[0]}


def _event_shares(filters: list[np.ndarray]) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def totals(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = union = single = 0.0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            width = filters[0].shape[2] if filters else len(batch.column(0)[0].as_py() or ())
            points, whole = vectors(batch.column(0), width)
            if not whole.all():
                raise ValueError(f"events: a point is null or not of {width} coordinates")
            weights = batch.column(1).to_numpy(zero_copy_only=False).astype(float)
            total += weights.sum()
            for boxes in filters:
                inside = np.zeros(len(points), dtype=bool)
                for low, high in boxes:
                    one = ((points >= low) & (points <= high)).all(axis=1)
                    single += weights[one].sum()
                    inside |= one
                union += weights[inside].sum()
        yield pa.record_batch([pa.array([x], pa.float64()) for x in (total, union, single)], ["weight", "inside_union", "inside_each"])

    return totals


# ---------------------------------------------------------------- rows, load and metrics


def _row_checks(scan: Scan) -> list[CheckResult]:
    results = []
    for name in ROW_CHECKS:
        number, worst, shown = scan.found.get(name, (0, math.inf, []))
        results.append(_result(name, number, worst, [f"subscriber {key}" for key in shown]))
    return results


def _check_load(tree: Tree, scan: Scan, lbf_max: float | None) -> tuple[CheckResult, dict[str, float]]:
    loads = np.array([scan.loads.get(leaf, 0) for leaf in tree.leaves], dtype=float)
    fair = tree.shares * scan.subscribers
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.where(loads > 0, loads / fair, 0.0)
    measures = {"lbf": float(factors.max()), "load_stdev": float(loads.std())}
    if lbf_max is None:
        return _result("load", 0, math.inf, []), measures
    bad = np.flatnonzero(loads > lbf_max * fair * (1 + TOLERANCE))
    named = [f"broker {tree.leaves[i]} serves {int(loads[i]):,}, at most {lbf_max * fair[i]:,.6g}" for i in bad]
    return _result("load", len(bad), float((lbf_max * fair - loads).min()), named), measures


def _check_metrics(
    metrics: Mapping[str, Any], recomputed: Mapping[str, float], limits: _Limits, violated: bool
) -> CheckResult:
    wrong = [f"{field} is missing" for field in FIELDS if field not in metrics]
    wrong += [f"parameters.{name} is missing: its constraint cannot be checked" for name in limits.absent]
    worst = math.inf
    for name in MEASURES:
        if name not in metrics:
            continue
        said, true = metrics[name], recomputed[name]
        if isinstance(said, bool) or not isinstance(said, int | float):
            wrong.append(f"{name} is {said!r}, the tables say {true:.9g}")
            continue
        close = said == true or abs(said - true) <= METRIC_TOLERANCE * max(abs(said), abs(true))
        rounding = name in ROUNDED and max(abs(said), abs(true)) <= TOLERANCE
        if not close and not rounding:
            wrong.append(f"{name} is {said:.9g}, the tables say {true:.9g}")
        worst = min(worst, -abs(said - true) if said != true else 0.0)
    if metrics.get("feasible") is True and violated:
        wrong.append("tampered: feasible is true, but violations were found")
    if metrics.get("feasible") is True and metrics.get("violations"):
        wrong.append(f"tampered: feasible is true beside violations {metrics['violations']!r}")
    if "feasible" in metrics and not isinstance(metrics["feasible"], bool):
        wrong.append(f"feasible is {metrics['feasible']!r}, it must be true or false")
    return _result("metrics", len(wrong), worst, wrong)


def _result(name: str, number: int, worst: float, shown: Sequence[object]) -> CheckResult:
    return CheckResult(name, number, None if worst == math.inf else float(worst), tuple(shown[:SHOWN]), HINTS[name])
