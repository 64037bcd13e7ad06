"""Who is interested in which topics: the workloads for topic-connected overlays, as flat (node, topic) pairs.

Every node is a function of (seed, id) alone, so any shard can make its own rows. Topics are drawn by weight without
replacement in the Gumbel form of Efraimidis-Spirakis: the ``size`` largest of log w - log(-log u) have the law of
the ``size`` largest u^(1/w), and no weight underflows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.hashing import normals, uniforms
from udfs.kernels.workload import zipf_cumulative

__all__ = ["DISTRIBUTIONS", "Communities", "LemmaEight", "Popular", "SparseBulk", "TopicModel", "marked", "sample_topics"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pairs = tuple[Ints, Ints]

DISTRIBUTIONS = ("uniform", "zipf", "exponential")
CHUNK = 1 << 17
"""Entries of the (nodes, topics) matrix at a time: a megabyte an array."""
GUMBEL_RANGE = 42.0
"""-log(-log u) spans less than this for u of 53 bits: a weight smaller by e^42 is never drawn first."""
BULK, SIZE, DRAW, HOME, SECOND, WHICH_SECOND, SIZE_NORMAL, TOPIC = 1, 2, 3, 4, 5, 6, 10, 20


class TopicModel(Protocol):
    """Makes the interests of any nodes. Ids are 0 to ``nodes`` - 1 and 0 to ``topics`` - 1."""

    @property
    def nodes(self) -> int: ...

    @property
    def topics(self) -> int: ...

    def rows(self, ids: Ints) -> Pairs: ...


def marked(seed: int, stream: int, ids: Ints, nodes: int, count: int) -> NDArray[np.bool_]:
    """Which ids belong to a set of exactly ``count`` of the ``nodes``: one, by hash, in each of ``count`` runs of equal length."""
    run = ((ids + 1) * count - 1) // nodes
    start, end = run * nodes // max(count, 1), (run + 1) * nodes // max(count, 1)
    return (count > 0) & (ids == start + np.floor(uniforms(seed, stream, run) * (end - start)).astype(np.int64))


def sample_topics(seed: int, ids: Ints, size: Ints, log_weight: Floats) -> Pairs:
    """``size`` topics for each id, by weight without replacement; ``log_weight`` is an array of topics, or of (ids, topics)."""
    if not len(ids):
        return ids, ids
    topics, most = log_weight.shape[-1], int(size.max())
    key = log_weight - np.log(-np.log(uniforms(seed, DRAW, (ids[:, None] << 32) + np.arange(topics))))
    top = np.sort(np.partition(key, topics - most, axis=1)[:, topics - most :], axis=1)
    least = top[np.arange(len(ids)), most - size]
    row, topic = np.nonzero(key >= least[:, None])
    return ids[row], topic


def _in_chunks(ids: Ints, topics: int, rows: Callable[[Ints], Pairs]) -> Pairs:
    step = max(1, CHUNK // topics)
    parts = [rows(ids[at : at + step]) for at in range(0, len(ids), step)] or [(ids, ids)]
    return np.concatenate([node for node, _ in parts]), np.concatenate([topic for _, topic in parts])


def _between(u: Floats, low: int, high: int) -> Ints:
    """Integers from ``low`` to ``high``, both included."""
    return low + np.floor(u * (high - low + 1)).astype(np.int64)


@dataclass(frozen=True)
class Popular:
    """The workload of section VI of the divide-and-conquer paper: topics of uniform, Zipf (2.0) or exponential popularity.

    Exactly a fifth of the nodes are bulk subscribers with U[80, 90] topics, the others have U[10, 72]: Pareto's rule, the
    printed minimum 10, maximum 90 and mean 50. Another ``mean_size`` scales the four limits. Topic 0 is the most popular.
    """

    seed: int
    nodes: int
    topics: int
    distribution: str = "uniform"
    mean_size: float = 50.0

    def sizes(self, ids: Ints) -> Ints:
        light_low, light_high, bulk_low, bulk_high = (max(1, round(limit * self.mean_size / 50)) for limit in (10, 72, 80, 90))
        bulk = marked(self.seed, BULK, ids, self.nodes, round(self.nodes / 5))
        u = uniforms(self.seed, SIZE, ids)
        size = np.where(bulk, _between(u, bulk_low, bulk_high), _between(u, light_low, light_high))
        return np.minimum(size, self.topics)

    @property
    def log_weight(self) -> Floats:
        rank = np.arange(1, self.topics + 1, dtype=float)
        return {"uniform": 0.0 * rank, "zipf": -2.0 * np.log(rank), "exponential": -0.1 * rank}[self.distribution]

    def rows(self, ids: Ints) -> Pairs:
        size = self.sizes(ids)
        weight = self.log_weight
        if len(ids):  # what lies too far below the last of the most popular ones is never drawn
            weight = weight[weight >= weight[size.max() - 1] - GUMBEL_RANGE]
        return _in_chunks(ids, len(weight), lambda part: sample_topics(self.seed, part, self.sizes(part), weight))


@dataclass(frozen=True)
class LemmaEight:
    """The instance of Lemma 8, on which random partitions cost a factor of order |T|; the optimum has maximum degree 3.

    m = 2^levels topics and a binary tree of nodes in heap order: the j-th of the 2^i nodes of layer i, from 0, wants the
    j-th of 2^i equal parts of the topics. (The printed general set counts j from 0 too, though its range says from 1.)
    """

    levels: int

    @property
    def nodes(self) -> int:
        return 2 * self.topics - 1

    @property
    def topics(self) -> int:
        return 1 << self.levels

    def rows(self, ids: Ints) -> Pairs:
        layer = np.frexp((ids + 1).astype(float))[1].astype(np.int64) - 1
        size = self.topics >> layer
        first = (ids + 1 - (1 << layer)) * size
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        return np.repeat(ids, size), np.repeat(first, size) + within


@dataclass(frozen=True)
class SparseBulk:
    """Few bulk subscribers among light ones with hardly anything in common: the hard case for mixing them in one partition.

    Exactly round(bulk_share * nodes) nodes want ``bulk_size`` topics, the others 2 to 2 light_size - 2; topics are equally
    likely.
    """

    seed: int
    nodes: int
    topics: int
    bulk_share: float = 0.01
    bulk_size: int = 500
    light_size: float = 5.0

    def sizes(self, ids: Ints) -> Ints:
        bulk = marked(self.seed, BULK, ids, self.nodes, round(self.bulk_share * self.nodes))
        light = _between(uniforms(self.seed, SIZE, ids), 2, max(2, round(2 * self.light_size - 2)))
        return np.minimum(np.where(bulk, self.bulk_size, light), self.topics)

    def rows(self, ids: Ints) -> Pairs:
        weight = np.zeros(self.topics)
        return _in_chunks(ids, self.topics, lambda part: sample_topics(self.seed, part, self.sizes(part), weight))


@dataclass(frozen=True)
class Communities:
    """Models groups, forums or feeds as people use them: interests correlate because people share communities.

    Communities have Zipf-distributed sizes; a topic belongs to one, and 3 in 10 topics to a second. A node has a home
    community, chosen in proportion to size, and 3 in 10 nodes have a second. A draw takes a topic of the node's
    communities, by its popularity in them, 9 times in 10, and one from everywhere otherwise; popularity is Zipf (1.0) in
    both. Subscription sizes are log-normal with mean ``mean_size`` (before they are cut at the number of topics): most
    nodes want little, a few want almost everything.
    """

    seed: int
    nodes: int
    topics: int
    communities: int
    mean_size: float = 50.0
    overlap: float = 0.3
    local_share: float = 0.9
    spread: float = 1.0

    def _community(self, stream: int, ids: Ints) -> Ints:
        return np.searchsorted(zipf_cumulative(self.communities, 1.0)[:-1], uniforms(self.seed, stream, ids), side="right")

    @cached_property
    def members(self) -> NDArray[np.bool_]:
        """(communities, topics): what belongs where. The first topics found the communities, so none is empty."""
        topic = np.arange(self.topics)
        member = np.zeros((self.communities, self.topics), dtype=bool)
        member[np.where(topic < self.communities, topic, self._community(TOPIC, topic)), topic] = True
        twice = topic[uniforms(self.seed, TOPIC + 1, topic) < self.overlap]
        member[self._community(TOPIC + 2, twice), twice] = True
        return member

    @cached_property
    def popularity(self) -> tuple[Floats, Floats]:
        """The chance of each topic everywhere, and in each community."""
        order = np.argsort(uniforms(self.seed, TOPIC + 3, np.arange(self.topics)))
        everywhere, local = np.empty(self.topics), np.empty((self.communities, self.topics))
        everywhere[order] = 1.0 / np.arange(1, self.topics + 1)
        member = self.members[:, order]
        local[:, order] = member / np.maximum(member.cumsum(axis=1), 1)
        return everywhere / everywhere.sum(), local / local.sum(axis=1, keepdims=True)

    def homes(self, ids: Ints) -> Pairs:
        """The home community and the second one; where there is none, the home again."""
        home = self._community(HOME, ids)
        return home, np.where(uniforms(self.seed, SECOND, ids) < self.overlap, self._community(WHICH_SECOND, ids), home)

    def sizes(self, ids: Ints) -> Ints:
        normal = normals(self.seed, SIZE_NORMAL, ids, 1)[:, 0]
        size = np.rint(self.mean_size * np.exp(self.spread * normal - self.spread**2 / 2))
        return np.clip(size, 1, self.topics).astype(np.int64)

    def rows(self, ids: Ints) -> Pairs:
        everywhere, local = self.popularity

        def chunk(part: Ints) -> Pairs:
            home, second = self.homes(part)
            weight = self.local_share * (local[home] + local[second]) / 2 + (1 - self.local_share) * everywhere
            return sample_topics(self.seed, part, self.sizes(part), np.log(weight))

        return _in_chunks(ids, self.topics, chunk)
