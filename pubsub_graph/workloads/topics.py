"""Workloads for topic-connected overlays (section VI and Lemma 8 of the divide-and-conquer paper, a sparse one, communities).

Interests are made where they are stored, each node from a hash of (seed, id); udfs/kernels/topic_workload.py says how each
workload is modelled.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pubsub_graph.errors import BadInput
from udfs.kernels.topic_workload import Communities, LemmaEight, Popular, SparseBulk
from udfs.workload import INTERESTS_GENERATED, interests_of_nodes

__all__ = ["TOPIC_WORKLOADS", "TopicWorkload", "TopicWorkloadParams", "topics_workload"]

TOPIC_WORKLOADS = ("topics-uniform", "topics-zipf", "topics-exponential", "topics-lemma8", "topics-sparse-bulk", "topics-communities")
MOST = 2**31 - 1


@dataclass(frozen=True)
class TopicWorkloadParams:
    """Sizes above the number of topics mean all topics. topics-lemma8 follows from ``topics`` alone, a power of two.

    ``mean_size`` is for the workloads by popularity and for topics-communities; ``bulk_share``, ``bulk_size`` and
    ``light_size`` are for topics-sparse-bulk.
    """

    name: str
    nodes: int = 1000
    topics: int = 200
    mean_size: float = 50.0
    bulk_share: float = 0.01
    bulk_size: int = 500
    light_size: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        findings = []
        if self.name not in TOPIC_WORKLOADS:
            findings.append(f"workload {self.name!r} is not known; there are {', '.join(TOPIC_WORKLOADS)}")
        for name in ("nodes", "topics"):
            if not 1 <= getattr(self, name) <= MOST:
                findings.append(f"{name} is {getattr(self, name)}; it must be from 1 to {MOST:,}")
        for name, least in (("mean_size", 1), ("bulk_size", 1), ("light_size", 2)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                findings.append(f"{name} is {value}; it must be at least {least}")
        if not 0 <= self.bulk_share <= 1:
            findings.append(f"bulk_share is {self.bulk_share}; it must be from 0 to 1")
        if self.name == "topics-lemma8" and self.topics >= 1 and self.topics & (self.topics - 1):
            near = 1 << (self.topics.bit_length() - 1)
            findings.append(f"topics is {self.topics}; topics-lemma8 needs a power of two, such as {near} or {2 * near}")
        if findings:
            raise BadInput.of(findings)


@dataclass(frozen=True)
class TopicWorkload:
    """The table ``interests``, and ``figures`` that say how it was made."""

    interests: DataFrame
    figures: dict[str, Any]


def topics_workload(spark: SparkSession, params: TopicWorkloadParams) -> TopicWorkload:
    """Make a workload, sharded; nothing runs before the table is used."""
    model = _model(params)
    interests = spark.range(model.nodes).mapInArrow(interests_of_nodes(model), INTERESTS_GENERATED)
    figures = {"workload": params.name, "seed": params.seed, "nodes": model.nodes, "topics": model.topics}
    return TopicWorkload(interests, figures | asdict(model))


def _model(params: TopicWorkloadParams) -> Popular | LemmaEight | SparseBulk | Communities:
    if params.name == "topics-lemma8":
        return LemmaEight(params.topics.bit_length() - 1)
    if params.name == "topics-sparse-bulk":
        bulk_size = min(params.bulk_size, params.topics)
        return SparseBulk(params.seed, params.nodes, params.topics, params.bulk_share, bulk_size, params.light_size)
    if params.name == "topics-communities":
        communities = max(1, round(math.sqrt(params.topics)))
        return Communities(params.seed, params.nodes, params.topics, communities, params.mean_size)
    return Popular(params.seed, params.nodes, params.topics, params.name.removeprefix("topics-"), params.mean_size)
