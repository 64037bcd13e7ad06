"""Candidate brokers: the leaves a subscriber may be assigned to within its latency limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pubsub_graph.assignment.problem import AssignmentProblem
from udfs.assignment import CANDIDATES, PAIRS, candidate_pairs, candidate_sets
from udfs.kernels.latency import unpack_sets

__all__ = ["CandidateSets", "candidate_join", "candidate_table", "distinct_sets", "hand_back", "sets_of"]


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
    return sets_of(candidates.groupBy("candidates").count(), "candidates", leaves)


def sets_of(counted: DataFrame, key: str, leaves: int) -> CandidateSets:
    """The sets of a table (``key`` as a bitmap, ``count``), in the order of their bitmaps."""
    rows = counted.orderBy(key).collect()
    keys = [bytes(row[key]) for row in rows]
    packed = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)
    return CandidateSets(keys, unpack_sets(packed, leaves), np.array([row["count"] for row in rows], dtype=np.int64))


def hand_back(table: DataFrame, key: str, sets: CandidateSets, flow: np.ndarray) -> DataFrame:
    """``table`` with the column ``leaf`` in place of its sets ``key``: of a set's subscribers, in the order of ids, the first go to the first
    leaf with flow, and so on; -1 for those without a place."""
    rows = []
    for name, given in zip(sets.keys, flow, strict=True):
        used = np.flatnonzero(given)
        rows.append((bytearray(name), used.tolist(), np.cumsum(given[used]).tolist()))
    shares = table.sparkSession.createDataFrame(rows, f"{key} binary, leaves array<int>, last array<bigint>")
    number = F.row_number().over(Window.partitionBy(key).orderBy("subscriber_id"))
    passed = F.size(F.filter("last", lambda end: end < F.col("number")))
    return (
        table.withColumn("number", number)
        .join(F.broadcast(shares), key, "left")
        .withColumn("leaf", F.when(passed < F.size("leaves"), F.col("leaves")[passed]).otherwise(-1))
        .drop(key, "leaves", "last", "number")
    )
