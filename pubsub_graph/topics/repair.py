"""Repair of an existing overlay when nodes and interests have come and gone: few links change, most stay.

1. Links whose ends are gone, or share no topic any more, go; all others stay.
2. Union-find tells the components of every topic. The largest one is the main one; the others are strays.
3. A stray sends the node that stands for the most strays, of those with room for links. Anchors are nodes of main components
   that have room and want much of what is asked for. Groups are hash classes of nodes, and GM-M connects each group in a task: with
   the true degrees, and with the largest degree that the overlay had as the first cap. A node is in one group, but a topic that
   a group lacks sends guests there, perhaps the same to several, which know nothing of each other's links.
4. A node at the cap that wants something new may have to go beyond it. Such nodes exchange some of their links for links of
   others, so that the overlay keeps the largest degree it had, where a few rounds find a way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pubsub_graph.components import induced_components
from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.tables import EDGES, conform
from pubsub_graph.topics.improve import improve, relieve
from pubsub_graph.topics.measures import degrees
from pubsub_graph.topics.plan import TopicsPlan, finish
from pubsub_graph.topics.problem import TopicsProblem, check_seconds
from udfs.topics import OVERLAY, mend_group

__all__ = ["RepairParams", "repair"]

STRAYS = 500
"""Stray nodes of a group, about."""


@dataclass(frozen=True)
class RepairParams:
    """``anchors``: nodes of a topic's main component that a group's strays can choose from. ``improve``: seconds of ruin and
    recreate afterwards, which touches as many links as it finds better ones."""

    seed: int = 0
    anchors: int = 8
    improve: float = 0.0

    def __post_init__(self) -> None:
        findings = check_seconds(self.improve)
        if self.anchors < 1:
            findings.append(f"anchors is {self.anchors}; it must be at least 1")
        if findings:
            raise BadInput.of(findings)


def repair(
    problem: TopicsProblem,
    params: RepairParams,
    lineage: Lineage,
    progress: Progress,
    previous: DataFrame,
    scratch_max_degree: int | None = None,
) -> TopicsPlan:
    """The overlay ``previous`` (src, dst), repaired. ``scratch_max_degree``: the largest degree of the last plan from scratch."""
    ends = F.least("src", "dst").alias("src"), F.greatest("src", "dst").alias("dst")
    with progress.stage("links that stay"):
        previous = lineage.cut(conform(previous, EDGES, "edges").where("src <> dst").select(*ends).distinct())
        largest = degrees(previous).agg(F.max("degree")).first()
        cap = int(largest[0] or 0) if largest is not None else 0
        topics = lineage.persist(problem.interests.groupBy("node_id").agg(F.collect_set("topic_id").alias("topics")))
        nodes = topics.count()
        one = topics.select(F.col("node_id").alias("src"), F.col("topics").alias("one"))
        other = topics.select(F.col("node_id").alias("dst"), F.col("topics").alias("other"))
        kept = previous.join(one, "src").join(other, "dst").where(F.arrays_overlap("one", "other")).select("src", "dst")
        kept = lineage.cut(kept)
        may_stay, before = kept.count(), previous.count()
    progress.tell("links that may stay", links=may_stay, gone=before - may_stay)
    with progress.stage("strays"):
        labelled = lineage.persist(induced_components(problem.interests, kept))
        sizes = labelled.groupBy("topic_id", "component").agg(F.count("*").alias("size"))
        rank = F.row_number().over(Window.partitionBy("topic_id").orderBy(F.col("size").desc(), "component"))
        parts = lineage.cut(sizes.select("topic_id", "component", (rank == 1).alias("main")))
        counts = parts.where(~F.col("main")).agg(F.count("*").alias("strays"), F.count_distinct("topic_id").alias("topics")).first()
        assert counts is not None
    progress.tell("strays", components=counts["strays"], topics=counts["topics"])
    edges = kept
    if counts["strays"]:
        with progress.stage("new links"):
            degree = lineage.cut(degrees(kept))
            added = _mended(labelled, parts, degree, cap, params, lineage).where("note is null").select("src", "dst").distinct()
            edges = lineage.cut(kept.unionByName(added))
        with progress.stage("relief"):
            edges = relieve(problem, edges, cap, params.seed, lineage, progress)
    if params.improve > 0:
        edges = improve(problem, edges, params.improve, params.seed, lineage, progress)
    with progress.stage("what changed"):
        stay, now = edges.join(previous, ["src", "dst"], "left_semi").count(), edges.count()
    extra: dict[str, Any] = {
        "links_kept": stay,
        "links_removed": before - stay,
        "links_added": now - stay,
        "stray_components": counts["strays"],
        "scratch_max_degree": scratch_max_degree,
    }
    return finish(
        problem, "repair", edges, nodes,
        parameters={"anchors": params.anchors, "improve": params.improve}, seed=params.seed, lineage=lineage, progress=progress,
        pn_ratio=1.0, extra=extra,
    )  # fmt: skip


def _mended(labelled: DataFrame, parts: DataFrame, degree: DataFrame, cap: int, params: RepairParams, lineage: Lineage) -> DataFrame:
    luck = F.xxhash64(F.lit(params.seed), F.lit(13), "node_id")

    stray = labelled.join(parts.where(~F.col("main")).drop("main"), ["topic_id", "component"]).join(degree, "node_id", "left").fillna(0, ["degree"])
    often = F.count("*").over(Window.partitionBy("node_id"))
    order = Window.partitionBy("topic_id", "component").orderBy(F.col("degree") >= cap, F.col("often").desc(), "degree", luck, "node_id")
    sent = stray.withColumn("often", often).withColumn("rank", F.row_number().over(order)).where("rank = 1").drop("often", "rank", "degree")
    sent = lineage.cut(sent)
    groups = max(1, math.ceil(sent.select("node_id").distinct().count() / STRAYS))
    group = F.pmod(F.xxhash64(F.lit(params.seed), F.lit(12), "node_id"), F.lit(groups)).cast("int")
    wanted = sent.select("topic_id", group.alias("part")).distinct()

    # anchors of a topic in a group: nodes that fall into it; where none does, the topic's best go there too
    asked = parts.where(~F.col("main")).select("topic_id").distinct()
    mains = parts.where("main").join(asked, "topic_id", "left_semi").drop("main")
    main = labelled.join(mains, ["topic_id", "component"]).withColumn("part", group)
    here = main.join(wanted, ["topic_id", "part"])
    asks = here.groupBy("node_id").agg(F.count("*").alias("asks")).join(degree, "node_id", "left").fillna(0, ["degree"])
    worth = asks.select("node_id", (F.col("asks") * F.greatest(cap - F.col("degree"), F.lit(0))).alias("worth"), "degree")
    rank = F.row_number().over(Window.partitionBy("topic_id", "part").orderBy(F.col("worth").desc(), "degree", luck, "node_id"))
    anchors = here.join(worth, "node_id").withColumn("rank", rank).where(F.col("rank") <= params.anchors).select("node_id", "part").distinct()
    missing = wanted.join(main.select("topic_id", "part").distinct(), ["topic_id", "part"], "left_anti")
    anywhere = F.row_number().over(Window.partitionBy("topic_id").orderBy("degree", luck, "node_id"))
    best = main.drop("part").join(missing.select("topic_id").distinct(), "topic_id", "left_semi").join(degree, "node_id", "left")
    best = best.fillna(0, ["degree"]).withColumn("rank", anywhere).where(F.col("rank") <= params.anchors)
    guests = best.join(missing, "topic_id").select("node_id", "part")

    # every node of a group with its entries: all main components it belongs to, and the strays it was sent for
    members = sent.select("node_id", group.alias("part")).unionByName(anchors).unionByName(guests).distinct()
    entries = main.drop("part").join(members, "node_id").unionByName(sent.withColumn("part", group))
    rows = entries.join(degree, "node_id", "left").fillna(0, ["degree"])
    rows = rows.select("part", "node_id", "topic_id", "component", F.col("degree").cast("int"))
    return rows.groupBy("part").applyInPandas(mend_group(cap), OVERLAY)
