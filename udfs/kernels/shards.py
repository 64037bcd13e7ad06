"""Overlays of any size, a shard at a time: connect a shard, choose who stands for it, combine the representatives of shards.

Past the paper's DCBR-M: links that no topic needs are dropped as soon as a shard or a group is connected; representatives are
nodes with room for links first; groups of shards are combined, and groups of groups, so that no step sees all nodes; the
cap on degrees starts from the largest degree so far anywhere, so a step uses up what others have paid for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.merge import Interests, merge_greedily
from udfs.kernels.prune import needed_links
from udfs.kernels.representatives import representatives

__all__ = ["Combined", "combine_group", "conquer_shard"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Combined:
    """New links, the degrees they lead to, and the nodes that go on to the next step."""

    links: NDArray[np.int32]
    degree: Ints
    chosen: Ints


def conquer_shard(interests: Interests, outside: NDArray[np.bool_], coverage: int, bulk_size: int | None) -> Combined:
    """Connect the nodes of a shard. With ``bulk_size``, nodes that want more topics are left alone and all go on to the combining."""
    sizes = np.diff(interests.start)
    light = np.flatnonzero(sizes <= bulk_size) if bulk_size is not None else np.arange(interests.nodes)
    some = interests.of(light)
    links = merge_greedily(some)
    links = light[links[needed_links(some, links)]].astype(np.int32).reshape(-1, 2)
    degree = np.bincount(links.ravel(), minlength=interests.nodes)
    chosen = light[representatives(some, outside, coverage, _slack(degree[light], int(degree.max(initial=0))))]
    bulk = np.setdiff1d(np.arange(interests.nodes), light)
    return Combined(links, degree, np.sort(np.concatenate([chosen, bulk])))


def combine_group(
    interests: Interests, component: Ints, degree: Ints, cap: int, outside: NDArray[np.bool_], coverage: int, most_nodes: int
) -> Combined:
    """Connect nodes whose ``component`` (a number each) says which of them are connected already, for every topic they share.

    More than ``most_nodes`` of them are not merged at once: topics are dealt into classes, and a class is connected by
    representatives that its components have for it, one class after the other, with the degrees so far.
    """
    degree, made = degree.copy(), []
    for topics in _classes(interests, component, most_nodes):
        some = interests if topics is None else _restricted(interests, topics)
        nodes = np.arange(interests.nodes)
        if topics is not None:
            nodes = np.concatenate([
                members[representatives(some.of(members), topics, coverage, _slack(degree[members], cap))]
                for members in _members(component)
            ])  # fmt: skip
        part = some.of(np.sort(nodes))
        nodes = np.sort(nodes)
        links = merge_greedily(part, component[nodes][part.node], degree[nodes], cap)
        links = nodes[links[needed_links(part, links, component[nodes][part.node])]].astype(np.int32).reshape(-1, 2)
        degree += np.bincount(links.ravel(), minlength=interests.nodes)
        cap = max(cap, int(degree.max()))
        made.append(links)
    chosen = representatives(interests, outside, coverage, _slack(degree, cap))
    return Combined(_unique(np.concatenate(made)), degree, chosen)


def _slack(degree: Ints, cap: int) -> Ints:
    return np.maximum(cap + 1 - degree, 1)


def _classes(interests: Interests, component: Ints, most_nodes: int) -> list[NDArray[np.bool_] | None]:
    """Topics to connect together: all of them (None), or classes that have about ``most_nodes`` pairs' worth of nodes each."""
    if interests.nodes <= most_nodes:
        return [None]
    count = int(np.ceil(interests.nodes / most_nodes)) + 1
    number = np.arange(interests.topics) % count
    return [number == c for c in range(count)]


def _restricted(interests: Interests, topics: NDArray[np.bool_]) -> Interests:
    """The interests in some topics only; nodes keep their numbers."""
    kept = topics[interests.topic]
    start = np.concatenate([[0], np.cumsum(kept)])[interests.start]
    return Interests(start, interests.topic[kept], interests.topics)


def _members(component: Ints) -> list[Ints]:
    order = np.argsort(component, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(component[order])) + 1)


def _unique(links: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.unique(links, axis=0).reshape(-1, 2)
