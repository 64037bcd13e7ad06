"""From places to a plan: filters where the algorithm has none of its own, measures, and why a plan is not feasible."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pubsub_graph.assignment.candidates import candidate_table, distinct_sets
from pubsub_graph.assignment.problem import AssignmentProblem
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.tables import FILTERS
from udfs.assignment import LEAF_BOXES, leaf_boxes
from udfs.kernels.boxes import event_share, union_volume, volumes
from udfs.kernels.flow import Balance, best_balance
from udfs.kernels.greedy import Filters
from udfs.kernels.measure import Measure
from udfs.kernels.nesting import nest

__all__ = ["AssignmentPlan", "event_measure", "event_sample", "finish", "gathered", "leaf_filters", "nested_filters"]

TOLERANCE = 1e-9
CELLS = 256
"""Boxes a leaf's subscriptions are gathered into, about, before they are merged to alpha."""


@dataclass(frozen=True)
class AssignmentPlan:
    """The tables of a plan and its measures. ``advice`` says what fails and what would help, when it is not feasible."""

    assignment: DataFrame
    filters: DataFrame
    metrics: dict[str, Any]
    advice: str = ""

    @property
    def feasible(self) -> bool:
        return bool(self.metrics["feasible"])


def leaf_filters(problem: AssignmentProblem, placed: DataFrame) -> Filters:
    """Filters for places chosen without looking at subscriptions.

    A grouped aggregation gathers the subscriptions of a leaf by grid cell (the wide ones apart) into their minimum
    enclosing boxes, which does not depend on the partitions; a kernel merges those to alpha rectangles a leaf, and
    interior brokers cover their children, from the bottom up.
    """
    boxes = gathered(problem, placed, "leaf").groupBy("leaf").applyInPandas(leaf_boxes(problem.limits.alpha), LEAF_BOXES).collect()
    return nested_filters(
        problem, np.array([row["leaf"] for row in boxes]), np.array([row["low"] for row in boxes]), np.array([row["high"] for row in boxes])
    )


def gathered(problem: AssignmentProblem, placed: DataFrame, *key: str) -> DataFrame:
    """(key, low, high): minimum enclosing boxes of the subscriptions by key and grid cell, the wide ones apart."""
    dims = len(problem.event_low)
    cells = max(2, round(CELLS ** (1 / dims)))
    cell = []
    wide: Column = F.lit(False)
    for k in range(dims):
        width = max((problem.event_high[k] - problem.event_low[k]) / cells, 1e-300)
        low, high = F.col("low")[k], F.col("high")[k]
        cell.append(F.floor(((low + high) / 2 - problem.event_low[k]) / width).alias(f"cell_{k}"))
        wide = wide | (high - low > 2 * width)
    return (
        placed.groupBy(*key, *cell, wide.alias("wide"))
        .agg(
            F.array(*[F.min(F.col("low")[k]) for k in range(dims)]).alias("low"),
            F.array(*[F.max(F.col("high")[k]) for k in range(dims)]).alias("high"),
        )
        .select(*key, "low", "high")
    )


def nested_filters(problem: AssignmentProblem, leaf: NDArray[np.int64], low: NDArray[np.float64], high: NDArray[np.float64]) -> Filters:
    """Filters of every broker from the leaves' rectangles (``leaf`` numbers them as the tree does)."""
    return nest(problem.tree, leaf, low, high, problem.limits.alpha)


def event_sample(problem: AssignmentProblem) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """(points, weights) of the event sample, which is small by contract; None when events are uniform over the volume."""
    if problem.events is None:
        return None
    rows = problem.events.collect()
    return np.array([row["point"] for row in rows]), np.array([row["weight"] for row in rows])


def event_measure(problem: AssignmentProblem) -> Measure:
    """What a rectangle costs: its share of the event sample, or its volume."""
    sample = event_sample(problem)
    if sample is None:
        return Measure.volume()
    return Measure.events(*sample, np.array(problem.event_low), np.array(problem.event_high))


def finish(
    problem: AssignmentProblem,
    algorithm: str,
    placed: DataFrame,
    filters: Filters,
    *,
    seed: int,
    lineage: Lineage,
    progress: Progress,
    extra: dict[str, Any] | None = None,
    best: Balance | None = None,
) -> AssignmentPlan:
    """Measure places and filters (one pass) and make the plan. ``placed`` should be kept by ``lineage``: it is read again.

    ``best`` is what a flow on candidate sets found, if the planner has run it; else it is run when the advice needs it.
    """
    tree, limits = problem.tree, problem.limits
    delay = F.when(F.col("shortest") > 0, F.col("latency") / F.col("shortest") - 1).otherwise(
        F.when(F.col("latency") > 0, F.lit(float("inf"))).otherwise(0.0)
    )
    excess = F.col("latency") - F.col("limit") * (1 + TOLERANCE) - TOLERANCE
    with progress.stage("measures"):
        rows = (
            placed.groupBy("leaf")
            .agg(
                F.count("*").alias("load"),
                F.sum(delay * delay).alias("squares"),
                F.max(delay).alias("delay"),
                F.count(F.when(excess > 0, 1)).alias("late"),
            )
            .orderBy("leaf")
            .collect()
        )
        load = np.zeros(len(tree.leaves), dtype=np.int64)
        for row in rows:
            load[row["leaf"]] = row["load"]
        late = sum(row["late"] for row in rows)
        factor = load / (tree.share * problem.count)
        overloaded = int((factor > limits.lbf_max * (1 + TOLERANCE) + 1e-9).sum())
        node, rectangle = np.nonzero(np.arange(limits.alpha)[None, :] < filters.count[:, None])
        bandwidth, bandwidth_sum = _bandwidth(problem, filters)
    violations = {kind: count for kind, count in (("latency", late), ("load", overloaded)) if count}
    metrics: dict[str, Any] = {
        "algorithm": algorithm,
        "parameters": asdict(limits),
        "seed": seed,
        "feasible": not violations,
        "violations": violations,
        "seconds": {},
        "subscribers": problem.count,
        "leaf_brokers": len(tree.leaves),
        "bandwidth": bandwidth,
        "bandwidth_sum": bandwidth_sum,
        "rms_delay": float(np.sqrt(sum(row["squares"] for row in rows) / problem.count)),
        "max_delay": float(max(row["delay"] for row in rows)),
        "lbf": float(factor.max()),
        "load_stdev": float(load.std()),
        **(extra or {}),
    }
    advice = ""
    if violations:
        with progress.stage("why it is not feasible"):
            advice = _advice(problem, late, factor, overloaded, best or _best(problem), metrics)
    metrics["seconds"] = {**{name: round(value, 3) for name, value in progress.seconds.items()}, "total": round(progress.elapsed(), 3)}
    spark = problem.subscribers.sparkSession
    ids = spark.createDataFrame([(i, int(b)) for i, b in enumerate(tree.leaf_ids)], "leaf int, broker_id bigint")
    assignment = placed.join(F.broadcast(ids), "leaf").select("subscriber_id", "broker_id", "latency")
    rectangles = [
        (int(tree.broker_id[i]), filters.low[i, r].tolist(), filters.high[i, r].tolist()) for i, r in zip(node, rectangle, strict=True)
    ]
    return AssignmentPlan(assignment, spark.createDataFrame(rectangles, FILTERS), metrics, advice)


def _bandwidth(problem: AssignmentProblem, filters: Filters) -> tuple[float, float]:
    """(volume of the unions, sum of the rectangles' volumes), summed over brokers; shares of the event sample if there is one."""
    points, weights = event_sample(problem) or (None, None)
    union, total = 0.0, 0.0
    for node in np.flatnonzero(filters.count):
        low, high = filters.low[node, : filters.count[node]], filters.high[node, : filters.count[node]]
        if points is None or weights is None:
            union += union_volume(low, high)
            total += float(volumes(low, high).sum())
        else:
            union += event_share(low, high, points, weights)
            total += sum(event_share(low[k : k + 1], high[k : k + 1], points, weights) for k in range(len(low)))
    return union, total


def _best(problem: AssignmentProblem) -> Balance:
    sets = distinct_sets(candidate_table(problem), len(problem.tree.leaves))
    return best_balance(sets.allowed, sets.counts, problem.tree.share)


def _advice(problem: AssignmentProblem, late: int, factor: np.ndarray, overloaded: int, best: Balance, metrics: dict[str, Any]) -> str:
    """What fails, by how much, and what would help: the best load factor any plan can reach, from a flow."""
    limits, lines = problem.limits, []
    metrics["best_lbf"] = best.lbf
    metrics["unreachable_subscribers"] = best.unmet
    if late:
        lines.append(f"latency: {late:,} of {problem.count:,} subscribers are served later than their limit.")
        lines.append(
            f"  {best.unmet:,} subscribers have no broker within their limit; raise max_latency or max_delay, or add brokers near them."
            if best.unmet
            else "  every subscriber has a broker within its limit: an algorithm that keeps it (gr-star, balance) serves all in time."
        )
    if overloaded:
        lines.append(f"load: {overloaded} of {len(factor)} brokers carry more than lbf_max {limits.lbf_max:g} times their share (worst {factor.max():.3g}).")
        if best.lbf <= limits.lbf_max:
            lines.append(f"  the best reachable load balance factor is {best.lbf:.4g}, so feasible plans may exist: try gr-star or balance.")
        else:
            tight = problem.tree.leaf_ids[best.tight_leaves[:5]].tolist()
            lines.append(
                f"  no assignment within the latency limits gets below {best.lbf:.4g} (brokers {tight} are the bottleneck): "
                "raise lbf_max to that, allow more delay, or add capacity there."
            )
    return "\n".join(lines)
