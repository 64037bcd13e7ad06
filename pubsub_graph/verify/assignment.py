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
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pubsub_graph.errors import BadInput, examples
from pubsub_graph.session import require_graphframes
from pubsub_graph.tables import ASSIGNMENT, BROKERS, EVENTS, FILTERS, SUBSCRIBERS, conform, duplicated_ids
from pubsub_graph.verify.report import CheckResult, VerificationReport

__all__ = ["CheckResult", "VerificationReport", "verify_assignment"]

TOLERANCE = 1e-9  # relative and absolute, for latencies; relative, for loads
METRIC_TOLERANCE = 1e-6  # relative
SHOWN = 5
INCLUSION_EXCLUSION_LIMIT = 12
MATRIX_CELLS = 2_000_000  # subscribers x leaves held at once

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
    tree = _read_tree(brokers.collect())
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
    scan = _scan(subscribers, assignment, tree, distances, rectangles, dimension, limits.max_delay)
    load, load_measures = _check_load(tree, scan, limits.lbf_max)
    recomputed = {**_bandwidth(rectangles, events), **scan.delays(), **load_measures}
    checks = [*scan.checks(), load, nesting, complexity, shape]
    order = {name: position for position, name in enumerate(HINTS)}
    checks.sort(key=lambda check: order[check.name])
    tampered = _check_metrics(metrics, recomputed, limits, any(check.violations for check in checks))
    return VerificationReport((*checks, tampered), recomputed)


# ---------------------------------------------------------------- parameters and the tree


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


@dataclass(frozen=True)
class _Tree:
    root: int
    parents: dict[int, int]  # without the root
    locations: dict[int, list[float]]
    leaves: list[int]
    shares: np.ndarray  # kappa, in the order of ``leaves``
    depth: int


def _read_tree(rows: Sequence[Row]) -> _Tree:
    locations = {row["broker_id"]: row["location"] for row in rows}
    roots = [row["broker_id"] for row in rows if row["parent_id"] is None]
    if len(locations) != len(rows):
        repeated = [key for key, count in Counter(row["broker_id"] for row in rows).items() if count > 1]
        raise BadInput(f"brokers: broker_id occurs more than once ({examples(repeated, len(repeated))}); keep one row an id")
    if len(roots) != 1:
        raise BadInput(f"brokers: {len(roots)} rows with a null parent_id ({examples(roots, len(roots))}); exactly one is the root")
    width = len(locations[roots[0]] or ())
    bad = [key for key, at in locations.items() if not _finite(at, width)]
    if not width or bad:
        raise BadInput(f"brokers: location is null, not finite or not of {width} coordinates ({examples(bad, len(bad))})")
    parents = {row["broker_id"]: row["parent_id"] for row in rows if row["parent_id"] is not None}
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    reached, level, depth = set(roots), roots, 0
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        reached.update(level)
        depth += bool(level)
    lost = sorted(parents.keys() - reached)
    if lost:
        raise BadInput(f"brokers: {len(lost)} are not below the root ({examples(lost, len(lost))}); mend their parent_id")
    leaves = sorted(key for key in parents if key not in children)
    if not leaves:
        raise BadInput("brokers: there is no leaf below the root; at least one is needed")
    capacity = {row["broker_id"]: row["capacity"] for row in rows}
    given = [capacity[leaf] for leaf in leaves]
    if all(value is None for value in given):
        shares = np.full(len(leaves), 1.0 / len(leaves))
    elif any(value is None or not value >= 0 for value in given):
        raise BadInput("brokers: capacity must be given for every leaf, zero or more, or for none")
    else:
        shares = np.array(given, dtype=float)
        if not math.isclose(shares.sum(), 1.0, rel_tol=1e-6):
            raise BadInput(f"brokers: the capacities of the leaves sum to {shares.sum():.9g}; they are shares and must sum to 1")
    return _Tree(roots[0], parents, locations, leaves, shares, depth)


def _finite(vector: Sequence[float] | None, width: int) -> bool:
    return vector is not None and len(vector) == width and all(x is not None and math.isfinite(x) for x in vector)


# ---------------------------------------------------------------- the graph


def _graph(spark: SparkSession, tree: _Tree, rectangles: Mapping[int, np.ndarray]) -> Any:
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


def _path_latencies(graph: Any, tree: _Tree) -> dict[int, float]:
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
            if slack < 0 and _covered(low, high, outer):
                slack = 0.0
            worst = min(worst, slack)
            if slack < 0:
                count += 1
                bad.append(f"broker {row['child']} {box['low']}..{box['high']} outside parent {row['parent']}")
    return _result("nesting", count, worst, bad)


# ---------------------------------------------------------------- boxes


def _covered(low: np.ndarray, high: np.ndarray, boxes: Iterable[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Is the closed box inside the union of closed boxes? Exact, in any dimension, for zero widths too.

    A box whose intersection with [low, high] is flat in a direction where [low, high] is not cannot help (the others
    are closed and what it adds is nowhere dense), so it is dropped. If one of the rest contains [low, high], it is
    covered; else some face of the rest lies strictly inside, and the two halves are asked in turn.
    """
    wide = high > low
    useful = []
    for a, b in boxes:
        a, b = np.maximum(a, low), np.minimum(b, high)
        if (a <= b).all() and (b > a)[wide].all():
            if (a == low).all() and (b == high).all():
                return True
            useful.append((a, b))
    if not useful:
        return False
    a, b = max(useful, key=lambda pair: float(np.prod((pair[1] - pair[0])[wide])))
    axis = int(np.argmax((a > low) | (b < high)))
    cut = a[axis] if a[axis] > low[axis] else b[axis]
    left, right = high.copy(), low.copy()
    left[axis] = right[axis] = cut
    return _covered(low, left, useful) and _covered(right, high, useful)


def _union_volume(lows: np.ndarray, highs: np.ndarray) -> float:
    """Volume of a union of boxes: inclusion-exclusion for a few, slabs between the coordinates for more."""
    if len(lows) <= INCLUSION_EXCLUSION_LIMIT:
        total = 0.0
        for size in range(1, len(lows) + 1):
            for chosen in combinations(range(len(lows)), size):
                widths = highs[list(chosen)].min(axis=0) - lows[list(chosen)].max(axis=0)
                total += (-1) ** (size + 1) * float(np.prod(np.maximum(widths, 0.0)))
        return total
    return _slab_volume(lows, highs)


def _slab_volume(lows: np.ndarray, highs: np.ndarray) -> float:
    if len(lows) == 0:
        return 0.0
    if len(lows) == 1 or lows.shape[1] == 0:
        return float(np.prod(highs[0] - lows[0]))
    cuts = np.unique(np.concatenate([lows[:, 0], highs[:, 0]]))
    total, known = 0.0, {}
    for left, right in pairwise(cuts):
        active = (lows[:, 0] <= left) & (highs[:, 0] >= right)
        key = active.tobytes()
        if key not in known:
            known[key] = _slab_volume(lows[active, 1:], highs[active, 1:]) if active.any() else 0.0
        total += (right - left) * known[key]
    return float(total)


# ---------------------------------------------------------------- filters and bandwidth


def _check_filters(
    rows: Sequence[Row], tree: _Tree, dimension: int, alpha: float | None
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
        if not (_finite(low, dimension) and _finite(high, dimension) and all(a <= b for a, b in zip(low, high, strict=True))):
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
        union = sum(_union_volume(boxes[:, 0], boxes[:, 1]) for boxes in rectangles.values())
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
            points, whole = _vectors(batch.column(0), width)
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


# ---------------------------------------------------------------- one pass over the subscribers

SCAN_SCHEMA = "name string, broker bigint, number bigint, worst double, total double, shown array<bigint>"
ROW_CHECKS = (
    "missing subscribers", "duplicated subscribers", "unknown subscribers", "leaf brokers", "latency written", "latency", "coverage",
)  # fmt: skip


@dataclass(frozen=True)
class _Scan:
    """What the pass over the subscribers found: per check, and per leaf."""

    found: dict[str, tuple[int, float, list[int]]]
    loads: dict[int, int]
    subscribers: int
    assigned: int
    squared_delay: float
    greatest_delay: float

    def checks(self) -> list[CheckResult]:
        results = []
        for name in ROW_CHECKS:
            number, worst, shown = self.found.get(name, (0, math.inf, []))
            results.append(_result(name, number, worst, [f"subscriber {key}" for key in shown]))
        return results

    def delays(self) -> dict[str, float]:
        mean = self.squared_delay / self.assigned if self.assigned else 0.0
        return {"rms_delay": math.sqrt(mean), "max_delay": self.greatest_delay}


def _scan(
    subscribers: DataFrame,
    assignment: DataFrame,
    tree: _Tree,
    distances: Mapping[int, float],
    rectangles: Mapping[int, np.ndarray],
    dimension: int,
    max_delay: float | None,
) -> _Scan:
    # Copies of one subscriber are folded before the join; least and greatest tell whether they agree.
    planned = assignment.groupBy("subscriber_id").agg(
        F.count(F.lit(1)).alias("copies"),
        F.min("broker_id").alias("broker"), F.max("broker_id").alias("other_broker"),
        F.min("latency").alias("written"), F.max("latency").alias("other_written"),
    )  # fmt: skip
    joined = subscribers.withColumn("known", F.lit(True)).join(planned, "subscriber_id", "full_outer")
    columns = (
        "subscriber_id", "known", "location", "low", "high", "max_latency",
        "copies", "broker", "other_broker", "written", "other_written",
    )  # fmt: skip
    kernel = _row_checks(
        np.array(tree.leaves, dtype=np.int64),
        np.array([tree.locations[leaf] for leaf in tree.leaves], dtype=float),
        np.array([distances[leaf] for leaf in tree.leaves], dtype=float),
        [rectangles.get(leaf, np.zeros((0, 2, dimension))) for leaf in tree.leaves],
        dimension,
        max_delay,
    )
    rows = (
        joined.select(*columns)
        .mapInArrow(kernel, SCAN_SCHEMA)
        .groupBy("name", "broker")
        .agg(
            F.sum("number").alias("number"), F.min("worst").alias("worst"), F.sum("total").alias("total"),
            F.slice(F.array_sort(F.flatten(F.collect_list("shown"))), 1, SHOWN).alias("shown"),
        )
        .collect()
    )  # fmt: skip
    by_name = {row["name"]: row for row in rows if row["broker"] is None}
    if "malformed" in by_name:
        row = by_name["malformed"]
        raise BadInput(
            f"subscribers: {row['number']:,} rows whose location, low, high or max_latency is null, not finite, of the wrong "
            f"dimension, or low > high (subscriber_id {examples(row['shown'], row['number'])})"
        )
    delay, everyone = by_name.get("delay"), by_name.get("subscribers")
    return _Scan(
        {name: (by_name[name]["number"], by_name[name]["worst"], by_name[name]["shown"]) for name in ROW_CHECKS if name in by_name},
        {row["broker"]: row["number"] for row in rows if row["broker"] is not None},
        everyone["number"] if everyone else 0,
        delay["number"] if delay else 0,
        delay["total"] if delay else 0.0,
        -delay["worst"] if delay else 0.0,
    )


class _Totals:
    """Running totals of one partition; one row a name in the end."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int | None], list[Any]] = {}

    def add(self, name: str, number: int, worst: float = math.inf, total: float = 0.0, ids: Iterable[int] = (), broker: int | None = None) -> None:
        row = self.rows.setdefault((name, broker), [0, math.inf, 0.0, []])
        row[0] += int(number)
        row[1] = min(row[1], float(worst))
        row[2] += float(total)
        row[3] = sorted([*row[3], *(int(i) for i in ids)])[:SHOWN]

    def check(self, name: str, ids: np.ndarray, bad: np.ndarray, slack: np.ndarray | None = None) -> None:
        worst = math.inf if slack is None or not len(slack) else slack.min()
        self.add(name, bad.sum(), worst, ids=np.sort(ids[bad])[:SHOWN])

    def batch(self) -> pa.RecordBatch:
        keys, rows = list(self.rows), list(self.rows.values())
        return pa.record_batch(
            [
                pa.array([key[0] for key in keys], pa.string()),
                pa.array([key[1] for key in keys], pa.int64()),
                pa.array([row[0] for row in rows], pa.int64()),
                pa.array([row[1] for row in rows], pa.float64()),
                pa.array([row[2] for row in rows], pa.float64()),
                pa.array([row[3] for row in rows], pa.list_(pa.int64())),
            ],
            ["name", "broker", "number", "worst", "total", "shown"],
        )


def _vectors(column: pa.Array, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A list column as (rows, width), and which rows are whole; the others are NaN."""
    whole = pc.fill_null(pc.equal(pc.list_value_length(column), width), False).to_numpy(zero_copy_only=False)
    kept = column.filter(pa.array(whole))
    values = np.full((len(column), width), np.nan)
    values[whole] = kept.flatten().to_numpy(zero_copy_only=False).astype(float).reshape(-1, width)
    return values, whole & np.isfinite(values).all(axis=1)


def _row_checks(
    leaves: np.ndarray,
    locations: np.ndarray,
    distances: np.ndarray,
    filters: list[np.ndarray],
    dimension: int,
    max_delay: float | None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The Arrow function of the pass; ``leaves`` are sorted, the rest is in their order."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        totals = _Totals()
        for batch in batches:
            one_batch(batch, totals)
        if totals.rows:
            yield totals.batch()

    def one_batch(batch: pa.RecordBatch, totals: _Totals) -> None:
        def plain(name: str, missing: Any) -> np.ndarray:
            return pc.fill_null(batch.column(batch.schema.get_field_index(name)), missing).to_numpy(zero_copy_only=False)

        ids, known, copies = plain("subscriber_id", -1), plain("known", False).astype(bool), plain("copies", 0)
        totals.check("unknown subscribers", ids, ~known)
        totals.check("missing subscribers", ids, known & (copies == 0))
        totals.check("duplicated subscribers", ids, known & (copies > 1))
        totals.add("subscribers", known.sum())

        at, at_whole = _vectors(batch.column(2), locations.shape[1])
        low, low_whole = _vectors(batch.column(3), dimension)
        high, high_whole = _vectors(batch.column(4), dimension)
        given = batch.column(5)
        bound = given.to_numpy(zero_copy_only=False).astype(float)
        unbounded = given.is_null().to_numpy(zero_copy_only=False)
        malformed = known & ~(at_whole & low_whole & high_whole & (low <= high).all(axis=1) & (unbounded | ~np.isnan(bound)))
        if malformed.any():
            totals.check("malformed", ids, malformed)

        broker, other = plain("broker", np.iinfo(np.int64).min), plain("other_broker", np.iinfo(np.int64).min)
        leaf = np.minimum(np.searchsorted(leaves, broker), len(leaves) - 1)
        planned = known & (copies > 0) & ~malformed
        last = np.minimum(np.searchsorted(leaves, other), len(leaves) - 1)
        on_leaf = planned & (leaves[leaf] == broker) & (leaves[last] == other)
        # Contradicting copies are duplicates and no more: which copy to measure is anybody's guess.
        totals.check("leaf brokers", ids, planned & ~on_leaf)
        rows = np.flatnonzero(on_leaf & (broker == other))
        if not len(rows):
            return
        chosen = leaf[rows]
        for index, number in enumerate(np.bincount(chosen, minlength=len(leaves))):
            if number:
                totals.add("load", number, broker=int(leaves[index]))

        true, shortest = latencies(at[rows], chosen)
        allowed = np.where(unbounded[rows], (1 + max_delay) * shortest if max_delay is not None else np.inf, bound[rows])
        totals.check("latency", ids[rows], true > allowed * (1 + TOLERANCE) + TOLERANCE, allowed - true)
        error = np.zeros(len(rows))
        for name in ("written", "other_written"):
            error = np.maximum(error, np.nan_to_num(np.abs(plain(name, np.nan)[rows] - true), nan=np.inf))
        totals.check("latency written", ids[rows], error > true * TOLERANCE + TOLERANCE, -error)
        with np.errstate(divide="ignore", invalid="ignore"):
            delay = np.where(shortest > 0, true / shortest - 1, np.where(true > 0, np.inf, 0.0))
        totals.add("delay", len(rows), -delay.max(), (delay * delay).sum())

        slack = coverage(low[rows], high[rows], chosen)
        totals.check("coverage", ids[rows], slack < 0, slack)

    def latencies(at: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        true, shortest = np.empty(len(at)), np.empty(len(at))
        step = max(1, MATRIX_CELLS // len(leaves))
        for start in range(0, len(at), step):
            part = at[start : start + step]
            squares = np.zeros((len(part), len(leaves)))
            for axis in range(part.shape[1]):
                gap = part[:, axis, None] - locations[None, :, axis]
                gap *= gap
                squares += gap
            np.sqrt(squares, out=squares)
            squares += distances
            shortest[start : start + step] = squares.min(axis=1)
            true[start : start + step] = squares[np.arange(len(part)), chosen[start : start + step]]
        return true, shortest

    def coverage(low: np.ndarray, high: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        slack = np.full(len(low), -np.inf)
        order = np.argsort(chosen, kind="stable")
        starts = np.searchsorted(chosen[order], np.arange(len(filters) + 1))
        for index, boxes in enumerate(filters):
            rows = order[starts[index] : starts[index + 1]]
            if not len(rows):
                continue
            a, b = low[rows], high[rows]
            best = np.full(len(rows), -np.inf)
            corner_low, corner_high = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
            for left, right in boxes:
                best = np.maximum(best, np.minimum(a - left, right - b).min(axis=1))
                corner_low |= ((a >= left) & (a <= right)).all(axis=1)
                corner_high |= ((b >= left) & (b <= right)).all(axis=1)
            pairs = [(box[0], box[1]) for box in boxes]
            # Only where no single rectangle contains the subscription, and both its corners are covered.
            for row in np.flatnonzero((best < 0) & corner_low & corner_high):
                if _covered(a[row], b[row], pairs):
                    best[row] = 0.0
            slack[rows] = best
        return slack

    return run


# ---------------------------------------------------------------- load and metrics


def _check_load(tree: _Tree, scan: _Scan, lbf_max: float | None) -> tuple[CheckResult, dict[str, float]]:
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
