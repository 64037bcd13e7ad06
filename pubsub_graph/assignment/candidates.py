"""Candidate brokers: the leaves a subscriber may be assigned to within its latency limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from pubsub_graph.assignment.problem import AssignmentProblem
from udfs.assignment import CANDIDATES, PAIRS, candidate_pairs, candidate_sets
from udfs.kernels.latency import unpack_sets

__all__ = ["CandidateSets", "candidate_join", "candidate_table", "distinct_sets"]


@dataclass(frozen=True)
class CandidateSets:
    """The distinct candidate sets of a table; subscribers with the same set are interchangeable."""

    keys: list[bytes]
    allowed: NDArray[np.bool_]
    counts: NDArray[np.int64]


def candidate_table(problem: AssignmentProblem) -> DataFrame:
    """The subscribers with their candidate leaves as a bitmap column: one pass, no row explosion."""
    limits = problem.limits
    return problem.subscribers.mapInArrow(candidate_sets(problem.tree, limits.max_delay, limits.last_hop), CANDIDATES)


def candidate_join(problem: AssignmentProblem) -> DataFrame:
    """(subscriber_id, broker_id, latency), one row a candidate: for users and tests, not for planners."""
    limits = problem.limits
    return problem.subscribers.mapInArrow(candidate_pairs(problem.tree, limits.max_delay, limits.last_hop), PAIRS)


def distinct_sets(candidates: DataFrame, leaves: int) -> CandidateSets:
    """One grouped aggregation; what reaches the driver is a row a set, not a row a subscriber."""
    rows = candidates.groupBy("candidates").count().orderBy("candidates").collect()
    keys = [bytes(row["candidates"]) for row in rows]
    packed = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)
    return CandidateSets(keys, unpack_sets(packed, leaves), np.array([row["count"] for row in rows], dtype=np.int64))
