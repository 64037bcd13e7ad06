"""Ruin and recreate on a finished overlay: ``improve`` within a time budget and never worse, ``relieve`` busy nodes by few links.

A round takes some busy nodes with their neighbours and some others, finds out by union-find what the rest of the overlay connects,
and one task works on the links among them. Up to 30,000 nodes ``improve`` takes the whole overlay at once.
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
from udfs.topics import LINK, OVERLAY, REPRESENTATIVE, improve_part, relieve_part

__all__ = ["improve", "relieve"]

BUSY_NODES = 400
PART_NODES = 2_500
LEAST_SECONDS = 5.0
RELIEVED_NODES = 150
"""Busy nodes of a round of relief: their neighbours fit into a part, beside others that may take links."""
RELIEF_ROUNDS = 5


def improve(problem: TopicsProblem, edges: DataFrame, seconds: float, seed: int, lineage: Lineage, progress: Progress) -> DataFrame:
    """Better links, or the same. The clock decides how far it gets, so a repetition need not give the same links."""
    end, round_number = time.perf_counter() + seconds, 0
    while True:
        left = end - time.perf_counter()
        if round_number and left < LEAST_SECONDS:
            return edges
        with progress.stage("improving"):
            small = problem.nodes <= ONE_TASK_NODES
            inner, entries = _everything(problem, edges) if small else _busy_part(problem, edges, seed, round_number, lineage)
            share = left if small else max(LEAST_SECONDS, min(left / 2, 60.0))
            rows = entries.unionByName(inner)
            # cut, not persisted: what the clock has decided must not be computed anew
            outcome = lineage.cut(rows.groupBy(F.lit(0)).applyInPandas(improve_part(share, seed + round_number), OVERLAY))
            note = outcome.where("note is not null").first()
            assert note is not None
            better = outcome.where("note is null").select("src", "dst")
            edges = better if small else _exchanged(edges, inner, better, lineage)
            largest = degrees(edges).agg(F.max("degree")).first()
        progress.tell(f"improvement {round_number + 1}", max_degree=largest[0] if largest else 0, **json.loads(note["note"]))
        round_number += 1
        if small:
            return edges


def relieve(problem: TopicsProblem, edges: DataFrame, cap: int, seed: int, lineage: Lineage, progress: Progress) -> DataFrame:
    """Links under which fewer nodes have more than ``cap``, none where a few rounds find a way; most links stay as they are.

    Where more nodes are above it than the rounds can take, the overlay has outgrown the cap, and nothing is exchanged.
    """
    left = 0
    for round_number in range(RELIEF_ROUNDS):
        above = degrees(edges).where(F.col("degree") > cap)
        row = above.agg(F.sum(F.col("degree") - cap).alias("links"), F.count("*").alias("nodes")).first()
        assert row is not None
        was, left = left, int(row["links"] or 0)
        if left in (0, was) or cap < 2 or row["nodes"] > RELIEF_ROUNDS * RELIEVED_NODES:
            return edges
        progress.tell(f"relief {round_number + 1}", links_too_many=left)
        drawn = F.xxhash64(F.lit(seed), F.lit(14), F.lit(round_number), "node_id")
        busy = above.orderBy(F.col("degree").desc(), drawn, "node_id").limit(RELIEVED_NODES).select("node_id")
        others = problem.interests.select("node_id").distinct().orderBy(drawn, "node_id").limit(PART_NODES // 2)
        near = _neighbours(edges, busy).join(busy, "node_id", "left_anti").orderBy(drawn, "node_id").limit(PART_NODES)
        inner, entries = _part(problem, edges, busy, near.unionByName(others), lineage)
        rows = entries.unionByName(inner)
        outcome = rows.groupBy(F.lit(0)).applyInPandas(relieve_part(cap, seed + round_number), OVERLAY)
        better = lineage.cut(outcome.where("note is null").select("src", "dst"))
        edges = _exchanged(edges, inner, better, lineage)
    return edges


def _exchanged(edges: DataFrame, inner: DataFrame, better: DataFrame, lineage: Lineage) -> DataFrame:
    was = inner.select(F.col("a").alias("src"), F.col("b").alias("dst"))
    return lineage.cut(edges.join(was, ["src", "dst"], "left_anti").unionByName(better))


def _links(edges: DataFrame) -> DataFrame:
    """As rows of ``_part_of_overlay``; without nulls, for which pandas would turn ids into floating-point numbers."""
    return edges.select(
        F.lit(LINK).alias("kind"), F.col("src").alias("a"), F.col("dst").alias("b"), F.lit(0).cast("bigint").alias("component"), F.lit(0).alias("degree")
    )


def _everything(problem: TopicsProblem, edges: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Every link, and every node with nothing outside."""
    entries = problem.interests.distinct().select(
        F.lit(REPRESENTATIVE).alias("kind"), F.col("node_id").alias("a"), F.col("topic_id").alias("b"),
        F.col("node_id").alias("component"), F.lit(0).alias("degree"),
    )  # fmt: skip
    return _links(edges), entries


def _busy_part(problem: TopicsProblem, edges: DataFrame, seed: int, round_number: int, lineage: Lineage) -> tuple[DataFrame, DataFrame]:
    """The part of some nodes of the largest degree and of their neighbours."""
    drawn = F.xxhash64(F.lit(seed), F.lit(round_number), "node_id")
    busy = degrees(edges).orderBy(F.col("degree").desc(), drawn, "node_id").limit(BUSY_NODES).select("node_id")
    near = _neighbours(edges, busy).orderBy(drawn, "node_id").limit(PART_NODES - BUSY_NODES)
    return _part(problem, edges, busy, near, lineage)


def _neighbours(edges: DataFrame, nodes: DataFrame) -> DataFrame:
    """(node_id) of the nodes linked to one of ``nodes``."""
    both = edges.unionByName(edges.select(F.col("dst").alias("src"), F.col("src").alias("dst")))
    return both.join(F.broadcast(nodes), both["src"] == nodes["node_id"]).select(F.col("dst").alias("node_id")).distinct()


def _part(problem: TopicsProblem, edges: DataFrame, busy: DataFrame, others: DataFrame, lineage: Lineage) -> tuple[DataFrame, DataFrame]:
    """The links among some nodes, and those nodes with what the other links connect."""
    nodes = lineage.cut(busy.unionByName(others).distinct())
    some = F.broadcast(nodes)
    inner = edges.join(some.withColumnRenamed("node_id", "src"), "src", "left_semi").join(some.withColumnRenamed("node_id", "dst"), "dst", "left_semi")
    inner = lineage.cut(inner.select("src", "dst"))
    rest = edges.join(inner, ["src", "dst"], "left_anti")
    components = induced_components(problem.interests, rest).join(some, "node_id", "left_semi")
    outside = degrees(rest).join(some, "node_id", "left_semi")
    entries = components.join(outside, "node_id", "left").select(
        F.lit(REPRESENTATIVE).alias("kind"), F.col("node_id").alias("a"), F.col("topic_id").alias("b"),
        "component", F.coalesce("degree", F.lit(0)).cast("int").alias("degree"),
    )  # fmt: skip
    return _links(inner), entries
