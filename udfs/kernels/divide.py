"""Divide and conquer for topic-connected overlays (Algorithms 7 to 13 of Chen, Vitenberg, Jacobsen), in one process.

Nodes are divided into partitions, each is connected by GM-M, and GM-M combines them; bulk subscribers, and in DCBR-M
representatives, take part in the combining. Links and connections that exist already are handed to GM-M as degrees and
components: the nodes of a partition are in one component for every topic they share. That holds also where they are
connected through nodes which are not representatives, and it makes the paper's set of potential links superfluous: a link
inside a partition contributes nothing.

T_out of Algorithm 12 includes the topics of bulk nodes: taken literally, a topic that one partition shares with
bulk nodes only would stay apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.hashing import hash_ids
from udfs.kernels.merge import Interests, merge_greedily
from udfs.kernels.representatives import representatives

__all__ = ["Divided", "Division", "bulk_nodes", "choose_parts", "combine", "dcb_m", "dcbr_m", "divide", "naive", "ring"]

Ints = NDArray[np.int64]
Links = NDArray[np.int32]


@dataclass(frozen=True)
class Division:
    """The bulk nodes, and the partitions of the others."""

    bulk: Ints
    parts: list[Ints]


@dataclass(frozen=True)
class Divided:
    """An overlay, the largest degree after the conquer phase, how many representatives there were, and the partitions."""

    links: Links
    conquered_degree: int
    representatives: int
    parts: int
    bulk: int
    pn_ratio: float


def bulk_nodes(interests: Interests, share: float) -> Ints:
    """Nodes above the threshold η, the least subscription size that makes at most ``share`` of all nodes bulk."""
    sizes = np.diff(interests.start)
    most = int(share * len(sizes) + 1e-9)
    if most <= 0:
        return np.empty(0, dtype=np.int64)
    threshold = np.sort(sizes)[::-1][most] if most < len(sizes) else -1
    return np.flatnonzero(sizes > threshold)


def divide(interests: Interests, ids: Ints, bulk_share: float, parts: int, seed: int) -> Division:
    """Bulk nodes apart, the others in ``parts`` random partitions of equal size (by hash of their ids)."""
    bulk = bulk_nodes(interests, bulk_share)
    light = np.setdiff1d(np.arange(interests.nodes), bulk)
    light = light[np.argsort(hash_ids(seed, 7, ids[light]), kind="stable")]
    parts = max(1, min(parts, len(light)))
    return Division(bulk, [np.sort(part) for part in np.array_split(light, parts) if len(part)])


def conquer(interests: Interests, division: Division) -> Links:
    """The links of GM-M in every partition (Algorithm 8)."""
    links = [part[merge_greedily(interests.of(part))].reshape(-1, 2) for part in division.parts]
    return np.concatenate([*links, np.empty((0, 2), dtype=np.int64)]).astype(np.int32)


def combine(interests: Interests, division: Division, inner: Links, taking_part: Ints) -> Links:
    """The links of GM-M among the nodes ``taking_part`` when partitions are connected already."""
    group = np.full(interests.nodes, -1)
    for number, part in enumerate(division.parts):
        group[part] = number
    group[division.bulk] = len(division.parts) + np.arange(len(division.bulk))
    some = interests.of(taking_part)
    degree = np.bincount(inner.ravel(), minlength=interests.nodes)
    made = merge_greedily(some, group[taking_part][some.node], degree[taking_part], int(degree.max(initial=0)))
    return taking_part[made].astype(np.int32).reshape(-1, 2)


def part_representatives(interests: Interests, division: Division, coverage: int) -> list[Ints]:
    """A rep-set of every partition for the topics that occur outside it."""
    wanted = np.zeros((len(division.parts), interests.topics), dtype=bool)
    for number, part in enumerate(division.parts):
        wanted[number, interests.of(part).topic] = True
    by_bulk = np.zeros(interests.topics, dtype=bool)
    by_bulk[interests.of(division.bulk).topic] = True
    elsewhere = by_bulk | (wanted.sum(0) > 1)
    return [part[representatives(interests.of(part), elsewhere & wanted[i], coverage)] for i, part in enumerate(division.parts)]


def dcb_m(interests: Interests, ids: Ints, *, bulk_share: float, parts: int, seed: int) -> Divided:
    """Algorithm 9: all nodes take part in the combining."""
    division = divide(interests, ids, bulk_share, parts, seed)
    inner = conquer(interests, division)
    outer = combine(interests, division, inner, np.arange(interests.nodes))
    return _divided(interests, division, inner, outer, np.arange(interests.nodes - len(division.bulk)), 1.0)


def dcbr_m(interests: Interests, ids: Ints, *, bulk_share: float, coverage: int, parts: int, seed: int) -> Divided:
    """Algorithm 11: bulk nodes and representatives take part in the combining."""
    division = divide(interests, ids, bulk_share, parts, seed)
    inner = conquer(interests, division)
    chosen = np.concatenate([*part_representatives(interests, division, coverage), np.empty(0, dtype=np.int64)]).astype(np.int64)
    outer = combine(interests, division, inner, np.sort(np.concatenate([division.bulk, chosen])))
    return _divided(interests, division, inner, outer, chosen, _pn_ratio(interests.nodes, division, len(chosen)))


def naive(interests: Interests, ids: Ints, *, parts: int, seed: int) -> Divided:
    """Algorithm 7, which divides at random and sets no bulk nodes apart, with the combining of Algorithm 10."""
    return dcb_m(interests, ids, bulk_share=0.0, parts=parts, seed=seed)


def ring(interests: Interests, ids: Ints, seed: int) -> Links:
    """RingPT: the nodes of each topic form a ring, in an order of its own (by hash); rings that share links share them."""
    topic = interests.topic.astype(np.int64)
    order = np.lexsort((hash_ids(seed, 8, ids[interests.node] * (interests.topics + 1) + topic), topic))
    node, topic = interests.node[order], topic[order]
    first, last = (np.searchsorted(topic, np.arange(interests.topics), side=side) for side in ("left", "right"))
    after = np.arange(1, len(node) + 1)
    after[last[last > first] - 1] = first[last > first]
    pairs = np.sort(np.stack([node, node[after]], axis=1), axis=1) if len(node) else np.empty((0, 2), dtype=np.int64)
    return np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0).astype(np.int32)


def choose_parts(interests: Interests, ids: Ints, *, bulk_share: float, coverage: int, seed: int, least: Literal["time", "pn-ratio"]) -> int:
    """The number of partitions with the least estimated time (Lemma 16) or potential neighbour ratio (Equation 12).

    Only representatives are computed, as section V proposes: for a growing series of p until the measure has risen twice, then
    between the neighbours of the best.
    """
    known: dict[int, float] = {}

    def measure(parts: int) -> float:
        if parts not in known:
            division = divide(interests, ids, bulk_share, parts, seed)
            chosen = sum(len(part) for part in part_representatives(interests, division, coverage))
            light, bulk = interests.nodes - len(division.bulk), len(division.bulk)
            if least == "time":
                known[parts] = float(bulk + chosen) ** 4 + float(light) ** 4 / parts**3
            else:
                known[parts] = _pn_ratio(interests.nodes, division, chosen)
        return known[parts]

    most = max(1, interests.nodes - len(bulk_nodes(interests, bulk_share)))
    series = [1]
    while series[-1] < most and (len(series) < 4 or not measure(series[-1]) > measure(series[-2]) > measure(series[-3])):
        series.append(min(most, max(series[-1] + 1, round(series[-1] * 1.5))))
    best = min(series, key=lambda parts: (measure(parts), parts))
    at = series.index(best)
    low, high = series[max(0, at - 1)], series[min(len(series) - 1, at + 1)]
    step = max(1, (high - low) // 8)
    return min([best, *range(low, high + 1, step)], key=lambda parts: (measure(parts), parts))


def _pn_ratio(nodes: int, division: Division, chosen: int) -> float:
    """Equation 12."""
    light, parts = nodes - len(division.bulk), max(1, len(division.parts))
    return (light / parts + len(division.bulk) + chosen * (parts - 1) / parts) / max(nodes, 1)


def _divided(interests: Interests, division: Division, inner: Links, outer: Links, chosen: Ints, pn_ratio: float) -> Divided:
    conquered = int(np.bincount(inner.ravel(), minlength=1).max())
    return Divided(np.concatenate([inner, outer]), conquered, len(chosen), len(division.parts), len(division.bulk), pn_ratio)
