"""Overlays for any number of nodes: shards connected side by side, then their representatives, then theirs, until one group is left.

What differs from the paper's DCBR-M is told in udfs/kernels/shards.py. The interests are shuffled once, by shard. A step
returns its links, and a row for every topic of its representatives; the driver sees one summary a shard or group.

Bulk subscribers: left among the others, they carry a shard at a low degree where interests are dense and become hubs where
they are sparse (Lemma 8). Two shards are planned both ways first, and the way with the lower degree is taken.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.topics.plan import TopicsPlan, finish
from pubsub_graph.topics.problem import TopicsProblem, check_seconds
from udfs.topics import LINK, REPRESENTATIVE, STEP, SUMMARY, TRIAL, combine_groups, conquer_shards, try_bulk

__all__ = ["ShardedParams", "sharded"]

SHARD_NODES = 2_000
GROUP_NODES = 1_000
"""Representatives that are combined in one task, about; more where two parts have more."""
BULK_GROUP_NODES = 2_500
"""The same for the first combining, when bulk nodes take part."""
MERGED_NODES = 6_000
"""Nodes that are merged at once; a larger group is connected topic class by topic class."""
SAMPLE_SHARDS = 2
BROADCAST_TOPICS = 500_000
MOST_TASKS = 1_000


@dataclass(frozen=True)
class ShardedParams:
    """``shards`` None: one for 2,000 nodes. ``coverage``: representatives of a topic in a shard or group. ``bulk_share``: most
    nodes that may be set apart as bulk subscribers; 0: none, and no trial."""

    seed: int = 0
    shards: int | None = None
    coverage: int = 6
    bulk_share: float = 0.2
    improve: float = 0.0

    def __post_init__(self) -> None:
        findings = check_seconds(self.improve)
        if self.shards is not None and self.shards < 1:
            findings.append(f"partitions is {self.shards}; it must be at least 1")
        if self.coverage < 1:
            findings.append(f"coverage is {self.coverage}; it must be at least 1")
        if not 0 <= self.bulk_share < 1:
            findings.append(f"bulk_share is {self.bulk_share}; it is a share of the nodes, 0 or more and below 1")
        if findings:
            raise BadInput.of(findings)


@dataclass(frozen=True)
class _Part:
    """A shard or group on the driver: nodes of its step, representatives it sends on, its largest degree."""

    number: int
    nodes: int
    chosen: int
    degree: int


def sharded(problem: TopicsProblem, params: ShardedParams, lineage: Lineage, progress: Progress) -> TopicsPlan:
    """Connect shards, then combine. Same seed, same overlay for any number of Spark partitions: shards are hash classes of ids."""
    shards = params.shards or max(1, math.ceil(problem.nodes / SHARD_NODES))
    shard = F.pmod(F.xxhash64(F.lit(params.seed), F.lit(11), "node_id"), F.lit(shards)).cast("int")
    rows = problem.interests.withColumn("part", shard)
    with progress.stage("bulk trial"):
        bulk_size = _bulk_size(rows, params) if params.bulk_share > 0 else None
    progress.tell("bulk nodes", handling="among the others" if bulk_size is None else f"apart above {bulk_size} topics")

    with progress.stage("shards"):
        shared = _occurs_elsewhere(rows, "topic_id", "part", problem.topics) if shards > 1 else rows.withColumn("outside", F.lit(False))
        shared = shared.repartition(min(shards, MOST_TASKS), "part")  # a task a shard, about: no core waits for a long one
        step = shared.groupBy("part").applyInPandas(conquer_shards(params.coverage, bulk_size), STEP)
        steps = [lineage.persist(step)]
        parts = _summaries(steps[-1])
    nodes = sum(part.nodes for part in parts)
    largest = max(part.degree for part in parts)
    known = max(part.nodes for part in parts)
    levels: list[dict[str, Any]] = [_told("shards", parts, largest)]
    progress.tell("shards connected", shards=len(parts), nodes=nodes, max_degree=largest, representatives=sum(p.chosen for p in parts))

    with progress.stage("combining"):
        while len(parts) > 1:
            room = BULK_GROUP_NODES if bulk_size is not None and len(steps) == 1 else GROUP_NODES
            groups = _packed(parts, room)
            into = rows.sparkSession.createDataFrame(
                [(part.number, number) for number, group in enumerate(groups) for part in group], "part int, into int"
            )
            chosen = steps[-1].where(F.col("kind") == REPRESENTATIVE).join(F.broadcast(into), "part").drop("kind")
            last = len(groups) == 1
            chosen = chosen.withColumn("outside", F.lit(False)) if last else _occurs_elsewhere(chosen, "b", "into", problem.topics)
            task = combine_groups(largest, params.coverage, MERGED_NODES)
            steps.append(lineage.persist(chosen.repartition(min(len(groups), MOST_TASKS), "into").groupBy("into").applyInPandas(task, STEP)))
            parts = _summaries(steps[-1], len(groups))
            largest = max(largest, *(part.degree for part in parts))
            known += max(part.nodes for part in parts)
            levels.append(_told(f"level {len(steps) - 1}", parts, largest))
            progress.tell(f"level {len(steps) - 1}", groups=len(groups), max_degree=largest, representatives=sum(p.chosen for p in parts))

    links = [step.where(F.col("kind") == LINK).select(F.col("a").alias("src"), F.col("b").alias("dst")) for step in steps]
    edges = reduce(DataFrame.union, links)
    extra = {"shards": shards, "bulk_above": bulk_size, "levels": levels}
    parameters = {name: value for name, value in asdict(params).items() if name != "seed"}
    return finish(
        problem, "sharded", edges, nodes, parameters=parameters, seed=params.seed, lineage=lineage, progress=progress,
        pn_ratio=min(1.0, known / nodes), improve_seconds=params.improve, extra=extra,
    )  # fmt: skip


def _bulk_size(rows: DataFrame, params: ShardedParams) -> int | None:
    """The subscription size above which nodes are set apart, if that gave the lower degree on a sample; two tasks side by side."""
    sample = rows.where(F.col("part") < SAMPLE_SHARDS).withColumnRenamed("part", "shard")
    both = sample.withColumn("variant", F.explode(F.array(F.lit(0), F.lit(1))))
    task = try_bulk(params.coverage, params.bulk_share, MERGED_NODES)
    found = {row["variant"]: row for row in both.groupBy("variant").applyInPandas(task, TRIAL).collect()}
    if not found or found[1]["max_degree"] >= found[0]["max_degree"]:
        return None
    return int(found[1]["bulk_size"])


def _occurs_elsewhere(rows: DataFrame, topic: str, part: str, topics: int) -> DataFrame:
    """``rows`` with a column ``outside``: whether another part has the topic too."""
    spread = rows.select(topic, part).distinct().groupBy(topic).agg((F.count("*") > 1).alias("outside"))
    return rows.join(F.broadcast(spread) if topics <= BROADCAST_TOPICS else spread, topic)


def _summaries(step: DataFrame, expected: int = 0) -> list[_Part]:
    found = step.where(F.col("kind") == SUMMARY).orderBy("part").collect()
    parts = [_Part(row["part"], row["a"], row["b"], row["degree"]) for row in found]
    known = {part.number for part in parts}
    return [*parts, *(_Part(number, 0, 0, 0) for number in range(expected) if number not in known)]


def _packed(parts: list[_Part], room: int) -> list[list[_Part]]:
    """Neighbours together, at least two to a group and as many as ``room`` allows."""
    groups: list[list[_Part]] = [[]]
    for part in parts:
        full = len(groups[-1]) >= 2 and sum(p.chosen for p in groups[-1]) + part.chosen > room
        if full:
            groups.append([])
        groups[-1].append(part)
    if len(groups) > 1 and len(groups[-1]) == 1:
        lone = groups.pop()
        groups[-1] += lone
    return groups


def _told(what: str, parts: list[_Part], largest: int) -> dict[str, Any]:
    return {
        "step": what, "parts": len(parts), "most_nodes": max(part.nodes for part in parts),
        "representatives": sum(part.chosen for part in parts), "max_degree": largest,
    }  # fmt: skip
