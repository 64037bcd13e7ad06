"""Balance: the assignment with the best possible load balance factor ("Other Algorithms Tested" of Yu, Agarwal, Yang, ICDE).

Subscribers with the same candidate set are interchangeable, so the flow runs on (set, leaf) with the sizes of the
sets: exact, and small. A running number within each set hands the flow back to the subscribers in a join.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pubsub_graph.assignment.candidates import CandidateSets, candidate_table, distinct_sets
from pubsub_graph.assignment.plan import AssignmentPlan, finish, leaf_filters
from pubsub_graph.assignment.problem import AssignmentProblem
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from udfs.assignment import PLACED, place
from udfs.kernels.flow import best_balance

__all__ = ["BalanceParams", "balance", "hand_back"]


@dataclass(frozen=True)
class BalanceParams:
    seed: int = 0
    """Recorded with the plan; the algorithm draws nothing."""


def balance(problem: AssignmentProblem, params: BalanceParams, lineage: Lineage, progress: Progress) -> AssignmentPlan:
    """The least load balance factor that the latency limits allow, proved by the flow that fails one step below it."""
    limits, tree = problem.limits, problem.tree
    with progress.stage("candidate sets"):
        candidates = candidate_table(problem)
        sets = distinct_sets(candidates, len(tree.leaves))
    progress.tell("candidate sets", sets=len(sets.keys))
    with progress.stage("flow"):
        best = best_balance(sets.allowed, sets.counts, tree.share)
    progress.tell("flow", best_lbf=best.lbf, unreachable=best.unmet)
    with progress.stage("filters"):
        given = hand_back(candidates, sets, best.flow)
        placed = lineage.persist(given.mapInArrow(place(tree, limits.max_delay, limits.last_hop), PLACED))
        filters = leaf_filters(problem, placed)
    extra = {
        "candidate_sets": len(sets.keys),
        "best_lbf": best.lbf,
        "unreachable_subscribers": best.unmet,
        "bottleneck_brokers": tree.leaf_ids[best.tight_leaves].tolist(),
    }
    return finish(problem, "balance", placed, filters, seed=params.seed, lineage=lineage, progress=progress, extra=extra)


def hand_back(candidates: DataFrame, sets: CandidateSets, flow: np.ndarray) -> DataFrame:
    """``candidates`` with the column ``leaf``: of a set's subscribers, in the order of ids, the first go to the first
    leaf with flow, and so on; -1 for those without a place."""
    rows = []
    for key, given in zip(sets.keys, flow, strict=True):
        used = np.flatnonzero(given)
        rows.append((bytearray(key), used.tolist(), np.cumsum(given[used]).tolist()))
    shares = candidates.sparkSession.createDataFrame(rows, "candidates binary, leaves array<int>, last array<bigint>")
    number = F.row_number().over(Window.partitionBy("candidates").orderBy("subscriber_id"))
    passed = F.size(F.filter("last", lambda end: end < F.col("number")))
    return (
        candidates.withColumn("number", number)
        .join(F.broadcast(shares), "candidates")
        .withColumn("leaf", F.when(passed < F.size("leaves"), F.col("leaves")[passed]).otherwise(-1))
        .drop("candidates", "leaves", "last", "number")
    )
