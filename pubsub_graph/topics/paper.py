"""GM-M, DCB-M, DCBR-M, naive divide-and-conquer and RingPT (Chen, Vitenberg, Jacobsen, Algorithms 1 to 13).

The greedy ones look at all pairs of nodes, so one task plans all nodes, as the paper does; beyond 30,000 nodes the
sharded planner is for that. RingPT needs no more than an order within each topic and runs at any size.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from pyspark.sql import Window
from pyspark.sql import functions as F

from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.topics.plan import TopicsPlan, finish, single_task
from pubsub_graph.topics.problem import ONE_TASK_NODES, TopicsProblem, check_seconds
from udfs.topics import OVERLAY, whole_overlay

__all__ = ["DivideParams", "RingParams", "dcb_m", "dcbr_m", "gm_m", "naive", "ring"]


@dataclass(frozen=True)
class DivideParams:
    """``bulk_share``: most nodes that count as bulk subscribers (the paper's η, as a share); ``coverage``: its λ;
    ``parts``: its p, None: the one of least ``least`` (estimated running time, or potential neighbour ratio).
    ``improve``: seconds of ruin and recreate."""

    seed: int = 0
    bulk_share: float = 0.2
    coverage: int = 3
    parts: int | None = None
    least: Literal["time", "pn-ratio"] = "time"
    improve: float = 0.0

    def __post_init__(self) -> None:
        findings = check_seconds(self.improve)
        if not 0 <= self.bulk_share < 1:
            findings.append(f"bulk_share is {self.bulk_share}; it is a share of the nodes, 0 or more and below 1")
        if self.coverage < 1:
            findings.append(f"coverage is {self.coverage}; it must be at least 1")
        if self.parts is not None and self.parts < 1:
            findings.append(f"partitions is {self.parts}; it must be at least 1")
        if self.least not in ("time", "pn-ratio"):
            findings.append(f"least is {self.least!r}; it must be time or pn-ratio")
        if findings:
            raise BadInput.of(findings)


@dataclass(frozen=True)
class RingParams:
    seed: int = 0
    improve: float = 0.0

    def __post_init__(self) -> None:
        if findings := check_seconds(self.improve):
            raise BadInput.of(findings)


def gm_m(problem: TopicsProblem, params: DivideParams, lineage: Lineage, progress: Progress) -> TopicsPlan:
    """Algorithm 2 on all nodes: the lowest maximum degree of the paper's algorithms."""
    return _whole(problem, "gm-m", params, lineage, progress)


def dcb_m(problem: TopicsProblem, params: DivideParams, lineage: Lineage, progress: Progress) -> TopicsPlan:
    """Algorithm 9: partitions of lightweight nodes, all nodes combined."""
    return _whole(problem, "dcb-m", params, lineage, progress)


def dcbr_m(problem: TopicsProblem, params: DivideParams, lineage: Lineage, progress: Progress) -> TopicsPlan:
    """Algorithm 11: partitions of lightweight nodes, bulk nodes and representatives combined."""
    return _whole(problem, "dcbr-m", params, lineage, progress)


def naive(problem: TopicsProblem, params: DivideParams, lineage: Lineage, progress: Progress) -> TopicsPlan:
    """Algorithm 7: partitions of all nodes, bulk subscribers among them; then all nodes combined."""
    return _whole(problem, "naive", params, lineage, progress)


def ring(problem: TopicsProblem, params: RingParams, lineage: Lineage, progress: Progress) -> TopicsPlan:
    """RingPT: the nodes of each topic form a ring, in a random order (by hash) of its own."""
    with progress.stage("rings"):
        order = Window.partitionBy("topic_id").orderBy(F.xxhash64(F.lit(params.seed), "topic_id", "node_id"), "node_id")
        whole = Window.partitionBy("topic_id").orderBy(F.xxhash64(F.lit(params.seed), "topic_id", "node_id"), "node_id")
        whole = whole.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
        after = F.coalesce(F.lead("node_id").over(order), F.first("node_id").over(whole))
        pairs = problem.interests.distinct().select("node_id", after.alias("after")).where("node_id <> after")
        edges = lineage.persist(pairs.select(F.least("node_id", "after").alias("src"), F.greatest("node_id", "after").alias("dst")).distinct())
        nodes = problem.interests.select("node_id").distinct().count()
    return finish(
        problem, "ring", edges, nodes, parameters={"improve": params.improve}, seed=params.seed, lineage=lineage, progress=progress,
        pn_ratio=1.0, improve_seconds=params.improve,
    )  # fmt: skip


def _whole(problem: TopicsProblem, algorithm: str, params: DivideParams, lineage: Lineage, progress: Progress) -> TopicsPlan:
    if problem.nodes > ONE_TASK_NODES:
        raise BadInput(
            f"{algorithm} compares all pairs of nodes in one task, and there are about {problem.nodes:,} nodes "
            f"(at most {ONE_TASK_NODES:,}); take --algorithm sharded"
        )
    task = whole_overlay(
        algorithm, bulk_share=params.bulk_share, coverage=params.coverage, parts=params.parts, least=params.least, seed=params.seed
    )
    with progress.stage("overlay"):
        outcome = lineage.persist(single_task(problem.interests, task, OVERLAY))
        row = outcome.where("note is not null").first()
        assert row is not None
        note = json.loads(row["note"])
    progress.tell("overlay", **note)
    edges = outcome.where("note is null").select("src", "dst")
    parameters = {name: value for name, value in asdict(params).items() if name != "seed"} if algorithm != "gm-m" else {"improve": params.improve}
    nodes, pn_ratio = note.pop("nodes"), note.pop("pn_ratio")
    return finish(
        problem, algorithm, edges, nodes,
        parameters=parameters, seed=params.seed, lineage=lineage, progress=progress, pn_ratio=pn_ratio,
        improve_seconds=params.improve, extra=note,
    )  # fmt: skip
