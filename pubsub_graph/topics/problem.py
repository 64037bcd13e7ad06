"""The topic problem: who wants what, checked."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsub_graph.errors import BadInput
from pubsub_graph.tables import INTERESTS, Check, conform, failed_checks

__all__ = ["ONE_TASK_NODES", "TopicsProblem", "check_seconds", "make_topics_problem"]

ONE_TASK_NODES = 30_000
"""Nodes that one task may merge: bounds of so many pairs take 450 MB."""


@dataclass(frozen=True)
class TopicsProblem:
    """``interests`` (node_id, topic_id); a pair that stands twice counts once. ``nodes`` and ``topics`` are estimates within a few
    per cent (HyperLogLog, the same for any partitioning): they choose sizes of steps, no result rests on them."""

    interests: DataFrame
    rows: int
    nodes: int
    topics: int


def make_topics_problem(interests: DataFrame) -> TopicsProblem:
    """Checks the table in one pass; every finding in one error."""
    interests = conform(interests, INTERESTS, "interests")
    found = interests.agg(
        F.count("*").alias("rows"),
        F.count(F.when(F.col("node_id").isNull() | F.col("topic_id").isNull(), 1)).alias("bad"),
        F.approx_count_distinct("node_id", 0.02).alias("nodes"),
        F.approx_count_distinct("topic_id", 0.02).alias("topics"),
    ).first()
    assert found is not None
    if found["rows"] == 0:
        raise BadInput("table interests is empty; it needs a row (node_id, topic_id) for every topic that a node wants")
    if found["bad"]:
        checks = [
            Check("a null node_id", F.col("node_id").isNull(), "name the node or drop the row"),
            Check("a null topic_id", F.col("topic_id").isNull(), "name the topic or drop the row"),
        ]
        raise BadInput.of(failed_checks(interests, "interests", "node_id", checks))
    return TopicsProblem(interests, found["rows"], max(1, found["nodes"]), max(1, found["topics"]))


def check_seconds(improve: float) -> list[str]:
    """The finding for a time budget that is none."""
    return [] if improve >= 0 else [f"improve is {improve}; it is a time in seconds, 0 or more"]
