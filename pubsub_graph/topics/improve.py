"""Ruin and recreate within a time budget, on a finished overlay; the result is never worse.

Up to 30,000 nodes one task works on the whole overlay. Beyond that a round takes some nodes of the largest degree with their
neighbours, finds out by union-find what the rest of the overlay connects, and one task works on the links among them.
"""

from __future__ import annotations

import json
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsub_graph.components import induced_components
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.topics.measures import degrees
from pubsub_graph.topics.problem import ONE_TASK_NODES, TopicsProblem
from udfs.topics import LINK, OVERLAY, REPRESENTATIVE, improve_part

__all__ = ["improve"]

BUSY_NODES = 400
PART_NODES = 2_500
LEAST_SECONDS = 5.0


def improve(problem: TopicsProblem, edges: DataFrame, seconds: float, seed: int, lineage: Lineage, progress: Progress) -> DataFrame:
    """Better links, or the same. The clock decides how far it gets, so a repetition need not give the same links."""
    end, round_number = time.perf_counter() + seconds, 0
    while True:
        left = end - time.perf_counter()
        if round_number and left < LEAST_SECONDS:
            return edges
        with progress.stage("improving"):
            small = problem.nodes <= ONE_TASK_NODES
            inner, entries = _everything(problem, edges) if small else _part(problem, edges, seed, round_number, lineage)
            share = left if small else max(LEAST_SECONDS, min(left / 2, 60.0))
            rows = entries.unionByName(inner, allowMissingColumns=True)
            outcome = lineage.persist(rows.groupBy(F.lit(0)).applyInPandas(improve_part(share, seed + round_number), OVERLAY))
            note = outcome.where("note is not null").first()
            assert note is not None
            better = outcome.where("note is null").select("src", "dst")
            if small:
                edges = better
            else:
                was = inner.select(F.col("a").alias("src"), F.col("b").alias("dst"))
                edges = lineage.persist(edges.join(was, ["src", "dst"], "left_anti").unionByName(better))
            largest = degrees(edges).agg(F.max("degree")).first()
        progress.tell(f"improvement {round_number + 1}", max_degree=largest[0] if largest else 0, **json.loads(note["note"]))
        round_number += 1
        if small:
            return edges


def _links(edges: DataFrame) -> DataFrame:
    return edges.select(F.lit(LINK).alias("kind"), F.col("src").alias("a"), F.col("dst").alias("b"))


def _everything(problem: TopicsProblem, edges: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Every link, and every node with nothing outside."""
    entries = problem.interests.distinct().select(
        F.lit(REPRESENTATIVE).alias("kind"), F.col("node_id").alias("a"), F.col("topic_id").alias("b"),
        F.col("node_id").alias("component"), F.lit(0).alias("degree"),
    )  # fmt: skip
    return _links(edges), entries


def _part(problem: TopicsProblem, edges: DataFrame, seed: int, round_number: int, lineage: Lineage) -> tuple[DataFrame, DataFrame]:
    """The links among some busy nodes and their neighbours, and those nodes with what the other links connect."""
    drawn = F.xxhash64(F.lit(seed), F.lit(round_number), "node_id")
    busy = degrees(edges).orderBy(F.col("degree").desc(), drawn).limit(BUSY_NODES).select("node_id")
    both = edges.unionByName(edges.select(F.col("dst").alias("src"), F.col("src").alias("dst")))
    near = both.join(F.broadcast(busy), both["src"] == busy["node_id"]).select(F.col("dst").alias("node_id")).distinct()
    near = near.join(busy, "node_id", "left_anti").orderBy(drawn).limit(PART_NODES - BUSY_NODES)
    nodes = lineage.persist(busy.unionByName(near))
    some = F.broadcast(nodes)
    inner = edges.join(some.withColumnRenamed("node_id", "src"), "src", "left_semi").join(some.withColumnRenamed("node_id", "dst"), "dst", "left_semi")
    inner = lineage.persist(inner.select("src", "dst"))
    rest = edges.join(inner, ["src", "dst"], "left_anti")
    components = induced_components(problem.interests, rest).join(some, "node_id", "left_semi")
    outside = degrees(rest).join(some, "node_id", "left_semi")
    entries = components.join(outside, "node_id", "left").select(
        F.lit(REPRESENTATIVE).alias("kind"), F.col("node_id").alias("a"), F.col("topic_id").alias("b"),
        "component", F.coalesce("degree", F.lit(0)).cast("int").alias("degree"),
    )  # fmt: skip
    return _links(inner), entries
