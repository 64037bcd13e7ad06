"""From rectangles to a plan for everyone: the covering test, a flow on cover sets, places, and filters shrunk to what they serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsub_graph.assignment.candidates import CandidateSets, hand_back, sets_of
from pubsub_graph.assignment.plan import AssignmentPlan, event_sample, finish, gathered, nested_filters
from pubsub_graph.assignment.problem import AssignmentProblem
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from udfs.assignment import LEAF_BOXES, PLACED, place
from udfs.kernels.flow import Balance, assign_sets
from udfs.kernels.greedy import Filters
from udfs.kernels.tree import BrokerTree
from udfs.slp import COVER, COVERED, SEATED, Boxes, best_boxes, cover_counts, covered_by, seat

__all__ = ["Survey", "settle", "shrunk_filters", "survey"]


@dataclass(frozen=True)
class Survey:
    """What one pass with the filters broadcast found: cover sets with their sizes, and who is not covered."""

    sets: CandidateSets
    """The non-empty cover sets."""
    uncovered: int
    lost: DataFrame
    """The uncovered subscribers, with their candidates."""
    _kept: DataFrame

    def release(self) -> None:
        self._kept.unpersist()


def survey(candidates: DataFrame, boxes: Boxes, leaves: int) -> Survey:
    """One pass over the subscribers. Sets are counted within partitions first, so little is shuffled or kept."""
    kept = candidates.mapInArrow(cover_counts(boxes), COVER).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        sets = sets_of(kept.where("rows is not null").groupBy("cover").agg(F.sum("rows").alias("count")), "cover", leaves)
    except BaseException:
        kept.unpersist()
        raise
    some = np.flatnonzero(sets.allowed.any(1))
    covered = CandidateSets([sets.keys[i] for i in some], sets.allowed[some], sets.counts[some])
    lost = kept.where("subscriber_id is not null").drop("cover", "rows")
    return Survey(covered, int(sets.counts.sum() - covered.counts.sum()), lost, kept)


def settle(
    problem: AssignmentProblem,
    algorithm: str,
    candidates: DataFrame,
    boxes: Boxes,
    seen: Survey,
    lbf: float,
    *,
    seed: int,
    lineage: Lineage,
    progress: Progress,
    extra: dict[str, Any],
    best: Balance,
) -> AssignmentPlan:
    """The plan whose leaves have the rectangles ``boxes``: subscribers go where the flow at ``lbf`` sends their cover set.

    Subscribers without cover or beyond the flow take the leaf that is fastest for them: the best effort.
    """
    tree, limits = problem.tree, problem.limits
    with progress.stage("flow"):
        flow, _, _ = assign_sets(seen.sets.allowed, seen.sets.counts, BrokerTree.capacities(tree.share, problem.count, lbf))
    with progress.stage("places"):
        given = hand_back(candidates.mapInArrow(covered_by(boxes), COVERED), "cover", seen.sets, flow)
        placed = given.mapInArrow(place(tree, limits.max_delay, limits.last_hop), PLACED)
        seated = lineage.persist(placed.mapInArrow(seat(boxes), SEATED))
    with progress.stage("filters"):
        filters = shrunk_filters(problem, seated)
    return finish(problem, algorithm, seated.drop("slot"), filters, seed=seed, lineage=lineage, progress=progress, extra=extra, best=best)


def shrunk_filters(problem: AssignmentProblem, seated: DataFrame) -> Filters:
    """Filter adjustment (section IV-C) on everyone: one grouped aggregation, a task a leaf, interior brokers bottom-up."""
    sample = event_sample(problem)
    choose = best_boxes(problem.limits.alpha, *(sample or ()))
    rows = gathered(problem, seated, "leaf", "slot").groupBy("leaf").applyInPandas(choose, LEAF_BOXES).collect()
    return nested_filters(
        problem, np.array([row["leaf"] for row in rows]), np.array([row["low"] for row in rows]), np.array([row["high"] for row in rows])
    )
