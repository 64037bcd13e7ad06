"""Closest and Closest without load balance ("Other Algorithms Tested" of Yu, Agarwal, Yang, ICDE).

Closest serves subscribers in the order of their ids: each takes the nearest leaf (last hop) with room at the largest
load factor. That sequence has one outcome, which is also the only stable matching of subscribers who prefer near
leaves with leaves that prefer low ids. So it is computed by deferred acceptance, sharded: every subscriber chooses
the nearest leaf that admits its id; a leaf with more choosers than places lowers the last id it admits; repeat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pubsub_graph.assignment.plan import AssignmentPlan, finish, leaf_filters
from pubsub_graph.assignment.problem import AssignmentProblem
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from udfs.assignment import CHOICE, PLACED, nearest_leaf, place
from udfs.kernels.tree import BrokerTree

__all__ = ["ClosestParams", "closest", "closest_no_balance"]

EVERYONE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class ClosestParams:
    seed: int = 0
    """Recorded with the plan; the algorithm draws nothing."""


def closest(problem: AssignmentProblem, params: ClosestParams, lineage: Lineage, progress: Progress) -> AssignmentPlan:
    """The nearest leaf with room at ``lbf_max``."""
    with progress.stage("choosing"):
        last_admitted = _last_admitted(problem, progress)
    return _plan(problem, "closest", last_admitted, params, lineage, progress)


def closest_no_balance(problem: AssignmentProblem, params: ClosestParams, lineage: Lineage, progress: Progress) -> AssignmentPlan:
    """The nearest leaf, whatever its load."""
    return _plan(problem, "closest-no-balance", np.full(len(problem.tree.leaves), EVERYONE), params, lineage, progress)


def _plan(
    problem: AssignmentProblem,
    algorithm: str,
    last_admitted: np.ndarray,
    params: ClosestParams,
    lineage: Lineage,
    progress: Progress,
) -> AssignmentPlan:
    limits = problem.limits
    with progress.stage("filters"):
        function = place(problem.tree, limits.max_delay, limits.last_hop, last_admitted)
        placed = lineage.persist(problem.subscribers.mapInArrow(function, PLACED))
        filters = leaf_filters(problem, placed)
    return finish(problem, algorithm, placed, filters, seed=params.seed, lineage=lineage, progress=progress)


def _last_admitted(problem: AssignmentProblem, progress: Progress) -> np.ndarray:
    """The largest id each leaf admits once no leaf has more choosers than places. Bounds only fall, so this ends."""
    capacity = BrokerTree.capacities(problem.tree.share, problem.count, problem.limits.lbf_max)
    admitted = np.full(len(capacity), EVERYONE)
    rounds = 0
    while True:
        rounds += 1
        chosen = problem.subscribers.mapInArrow(nearest_leaf(problem.tree, admitted), CHOICE).persist()
        try:
            counts = {row["leaf"]: row["count"] for row in chosen.groupBy("leaf").count().collect()}
            full = [leaf for leaf, count in counts.items() if leaf >= 0 and count > capacity[leaf]]
            progress.tell(f"round {rounds}", overfull_brokers=len(full), to_move=sum(counts[leaf] - int(capacity[leaf]) for leaf in full))
            if not full:
                return admitted
            for leaf, bound in _bounds(chosen, {leaf: int(capacity[leaf]) for leaf in full}).items():
                admitted[leaf] = bound
        finally:
            chosen.unpersist()


def _bounds(chosen: DataFrame, places: dict[int, int]) -> dict[int, int]:
    """The id of the last chooser that fits, for every overfull leaf."""
    place_of = F.create_map(*[F.lit(x) for pair in places.items() for x in pair])
    rank = F.row_number().over(Window.partitionBy("leaf").orderBy("subscriber_id"))
    last = (
        chosen.where(F.col("leaf").isin(list(places)))
        .withColumn("rank", rank)
        .where(F.col("rank") == place_of[F.col("leaf")])
        .collect()
    )
    found = {row["leaf"]: row["subscriber_id"] for row in last}
    return {leaf: found.get(leaf, np.iinfo(np.int64).min) for leaf in places}
