"""Repair of an existing overlay when nodes and interests have come and gone: few links change, most stay.

1. Links whose ends are gone, or share no topic any more, go; all others stay.
2. Union-find tells the components of every topic. The largest one is the main one; the others are strays.
3. A stray sends the node that stands for the most strays. Nodes of low degree in the main components are the anchors they may
   link to. Groups are hash classes of nodes, so a node is in one group (a rare topic may send guests to others), and GM-M
   connects each group in a task: with the true degrees, from the largest degree that the overlay has.
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
from pubsub_graph.topics.measures import degrees
from pubsub_graph.topics.plan import TopicsPlan, finish
from pubsub_graph.topics.problem import TopicsProblem, check_seconds
from udfs.topics import OVERLAY, mend_group

__all__ = ["RepairParams", "repair"]

STRAYS = 500
"""Stray nodes of a group, about."""


@dataclass(frozen=True)
class RepairParams:
    """``anchors``: nodes of a topic's main component that a group's strays can choose from."""

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
    previous = conform(previous, EDGES, "edges")
    with progress.stage("links that stay"):
        topics = lineage.persist(problem.interests.groupBy("node_id").agg(F.collect_set("topic_id").alias("topics")))
        nodes = topics.count()
        one = topics.select(F.col("node_id").alias("src"), F.col("topics").alias("one"))
        other = topics.select(F.col("node_id").alias("dst"), F.col("topics").alias("other"))
        kept = previous.join(one, "src").join(other, "dst").where(F.arrays_overlap("one", "other")).select("src", "dst")
        kept = lineage.persist(kept)
        stay, before = kept.count(), previous.count()
    progress.tell("links that stay", kept=stay, removed=before - stay)
    with progress.stage("strays"):
        labelled = lineage.persist(_labelled(problem, kept))
        counts = labelled.agg(
            F.count_distinct(F.when(~F.col("main"), F.struct("topic_id", "component"))).alias("strays"),
            F.count_distinct(F.when(~F.col("main"), F.col("topic_id"))).alias("topics"),
        ).first()
        assert counts is not None
    progress.tell("strays", components=counts["strays"], topics=counts["topics"])
    added: DataFrame | None = None
    if counts["strays"]:
        with progress.stage("new links"):
            added = lineage.persist(_mended(labelled, kept, params).where("note is null").select("src", "dst").distinct())
            new = added.count()
    edges = kept if added is None else kept.unionByName(added)
    extra: dict[str, Any] = {
        "links_kept": stay,
        "links_removed": before - stay,
        "links_added": new if added is not None else 0,
        "stray_components": counts["strays"],
        "scratch_max_degree": scratch_max_degree,
    }
    return finish(
        problem, "repair", edges, nodes,
        parameters={"anchors": params.anchors, "improve": params.improve}, seed=params.seed, lineage=lineage, progress=progress,
        pn_ratio=1.0, improve_seconds=params.improve, extra=extra,
    )  # fmt: skip


def _labelled(problem: TopicsProblem, kept: DataFrame) -> DataFrame:
    """(node_id, topic_id, component, main) for the topics that are not connected."""
    components = induced_components(problem.interests, kept)
    sizes = components.groupBy("topic_id", "component").agg(F.count("*").alias("size"))
    rank = F.row_number().over(Window.partitionBy("topic_id").orderBy(F.col("size").desc(), "component"))
    parts = F.count("*").over(Window.partitionBy("topic_id"))
    ranked = sizes.select("topic_id", "component", (rank == 1).alias("main"), parts.alias("parts")).where("parts > 1").drop("parts")
    return components.join(ranked, ["topic_id", "component"])


def _mended(labelled: DataFrame, kept: DataFrame, params: RepairParams) -> DataFrame:
    degree = degrees(kept)
    stray = labelled.where(~F.col("main")).drop("main")
    often = F.count("*").over(Window.partitionBy("node_id"))
    order = Window.partitionBy("topic_id", "component").orderBy(F.col("often").desc(), "node_id")
    sent = stray.withColumn("often", often).withColumn("rank", F.row_number().over(order)).where("rank = 1").drop("often", "rank")
    stray_nodes = sent.select("node_id").distinct()
    groups = max(1, math.ceil(stray_nodes.count() / STRAYS))
    group = F.pmod(F.xxhash64(F.lit(params.seed), F.lit(12), "node_id"), F.lit(groups)).cast("int")
    strays = stray_nodes.withColumn("part", group)

    # anchors of a topic in a group: nodes of low degree that fall into it; where none does, the topic's best go there too
    main = labelled.where("main").drop("main").join(degree, "node_id", "left").withColumn("part", group).fillna(0, ["degree"])
    luck = F.xxhash64(F.lit(params.seed), F.lit(13), "node_id")
    here = F.row_number().over(Window.partitionBy("topic_id", "part").orderBy("degree", luck))
    anchors = main.withColumn("rank", here).where(F.col("rank") <= params.anchors).select("node_id", "part").distinct()
    wanted = sent.withColumn("part", group).select("topic_id", "part").distinct()
    missing = wanted.join(main.select("topic_id", "part").distinct(), ["topic_id", "part"], "left_anti")
    anywhere = F.row_number().over(Window.partitionBy("topic_id").orderBy("degree", luck))
    best = main.drop("part").withColumn("rank", anywhere).where(F.col("rank") <= params.anchors)
    guests = best.join(missing, "topic_id").select("node_id", "part")
    main = main.drop("part", "degree")

    # every node of a group with its entries: the strays it was sent for, and all main components it belongs to
    members = strays.unionByName(anchors).unionByName(guests).distinct()
    entries = main.unionByName(sent).join(members, "node_id").join(degree, "node_id", "left")
    largest = degree.agg(F.max("degree")).first()
    cap = int(largest[0] or 0) if largest is not None else 0
    rows = entries.select("part", "node_id", "topic_id", "component", F.coalesce("degree", F.lit(0)).cast("int").alias("degree"))
    return rows.groupBy("part").applyInPandas(mend_group(cap), OVERLAY)
