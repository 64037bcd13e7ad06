"""From links to a plan: measures, the lower bound, and whether every topic is connected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsub_graph.components import induced_components
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.topics.improve import improve
from pubsub_graph.topics.measures import degrees
from pubsub_graph.topics.problem import TopicsProblem
from udfs.topics import BOUND, bound_degree

__all__ = ["TopicsPlan", "finish", "lower_bound", "single_task"]

BOUND_PAIRS = 20_000_000
"""Pairs of nodes with a common topic that the lower bound looks at; more popular topics are left out of it."""
BOUND_NODES = 10_000
"""Up to so many nodes the bound takes all topics."""


@dataclass(frozen=True)
class TopicsPlan:
    """The links of a plan (src < dst) and its measures."""

    edges: DataFrame
    metrics: dict[str, Any]

    @property
    def feasible(self) -> bool:
        return bool(self.metrics["feasible"])


def finish(
    problem: TopicsProblem,
    algorithm: str,
    edges: DataFrame,
    nodes: int,
    *,
    parameters: dict[str, Any],
    seed: int,
    lineage: Lineage,
    progress: Progress,
    pn_ratio: float,
    improve_seconds: float = 0.0,
    extra: dict[str, Any] | None = None,
) -> TopicsPlan:
    """Measure an overlay and make the plan. ``edges`` should be kept by ``lineage``: it is read again.

    With ``improve_seconds`` the links are improved first, so long.
    """
    if improve_seconds > 0:
        edges = improve(problem, edges, improve_seconds, seed, lineage, progress)
    with progress.stage("measures"):
        row = degrees(edges).agg(F.max("degree").alias("largest"), F.sum("degree").alias("ends")).first()
        assert row is not None
        largest, count = int(row["largest"] or 0), int(row["ends"] or 0) // 2
    with progress.stage("connected topics"):
        parts = induced_components(problem.interests, edges)
        found = parts.groupBy("topic_id").agg(F.countDistinct("component").alias("parts"))
        told = found.agg(F.count("*").alias("topics"), F.count(F.when(F.col("parts") > 1, 1)).alias("apart")).first()
        assert told is not None
    with progress.stage("lower bound"):
        bound = lower_bound(problem)
    metrics: dict[str, Any] = {
        "algorithm": algorithm,
        "parameters": parameters,
        "seed": seed,
        "feasible": told["apart"] == 0,
        "violations": {"topics not connected": told["apart"]} if told["apart"] else {},
        "seconds": {},
        "nodes": nodes,
        "topics": told["topics"],
        "interests": problem.rows,
        "max_degree": largest,
        "avg_degree": 2 * count / nodes,
        "edges": count,
        "topic_connected": told["apart"] == 0,
        "pn_ratio": pn_ratio,
        "lower_bound_max_degree": bound,
        **(extra or {}),
    }
    metrics["seconds"] = {**{name: round(value, 3) for name, value in progress.seconds.items()}, "total": round(progress.elapsed(), 3)}
    return TopicsPlan(edges, metrics)


def lower_bound(problem: TopicsProblem) -> int:
    """No overlay has a lower maximum degree (udfs/kernels/degree_bound.py). The least popular topics are looked at, as many as
    ``BOUND_PAIRS`` allows; the bound needs no more than their interests, in one task."""
    sizes = problem.interests.distinct().groupBy("topic_id").agg(F.count("*").alias("size"))
    sizes = sizes.persist()
    try:
        counted = sizes.groupBy("size").count().orderBy("size").collect()
        size, count = (np.array([row[name] for row in counted], dtype=np.float64) for name in ("size", "count"))
        within = np.flatnonzero((np.cumsum(size**2 * count) <= BOUND_PAIRS) | (problem.nodes <= BOUND_NODES))
        least = 2 if size.max(initial=0) > 2 else int(size.max(initial=0)) - 1
        if not len(within) or size[within[-1]] < 2:
            return max(0, least)
        rare = sizes.where(F.col("size").between(2, int(size[within[-1]]))).select("topic_id")
        row = problem.interests.join(rare, "topic_id").groupBy(F.lit(0)).applyInPandas(bound_degree(), BOUND).first()
    finally:
        sizes.unpersist()
    return max(least, row["bound"] if row is not None else 0)


def single_task(interests: DataFrame, task: Any, schema: Any) -> DataFrame:
    """All rows as one group."""
    return interests.select("node_id", "topic_id").groupBy(F.lit(0).alias("all")).applyInPandas(task, schema)
