"""Links that no topic needs, and the components that links make."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled
from udfs.kernels.merge import Interests

__all__ = ["joined_components", "needed_links", "shared_topics"]

Ints = NDArray[np.int64]

ROUNDS = 5


def needed_links(interests: Interests, links: NDArray[np.int32], component: Ints | None = None) -> NDArray[np.bool_]:
    """Which links to keep, so that every topic stays as connected as all of them make it.

    ``component`` (an entry of the interests each) tells what is connected without the links. Links that are bridges for
    some topic stay; then every topic takes a spanning forest that prefers links which stay anyway, and among others
    those between nodes of low degree. This is repeated until nothing falls away.
    """
    kept = np.ones(len(links), dtype=bool)
    component = None if component is None else np.unique(component, return_inverse=True)[1]
    degree = np.bincount(links.ravel(), minlength=interests.nodes)
    for _ in range(ROUNDS):
        some = np.flatnonzero(kept)
        link, topic, one, other = shared_topics(interests, links[some], component)
        order = np.lexsort((link, degree[links[some]].max(1)[link], topic))
        start = np.searchsorted(topic[order], np.arange(interests.topics + 1))
        vertices = int(max(one.max(initial=-1), other.max(initial=-1))) + 1
        needed = _bridges(start, link[order], one[order], other[order], vertices, len(some))
        by_size = np.argsort(np.diff(start), kind="stable")
        _forests(by_size, start, link[order], one[order], other[order], vertices, needed)
        if needed.all():
            break
        kept[some[~needed]] = False
        degree = np.bincount(links[kept].ravel(), minlength=interests.nodes)
    return kept


def shared_topics(interests: Interests, links: NDArray[np.int32], component: Ints | None = None) -> tuple[Ints, NDArray[np.int32], Ints, Ints]:
    """(link, topic, component of one end, of the other) for every topic that both ends of a link want.

    Without ``component`` every entry of the interests is its own. Components are numbered across topics as they are given.
    """
    names = np.arange(len(interests.topic)) if component is None else component
    return _shared(interests.start, interests.topic, np.ascontiguousarray(links), names.astype(np.int64))


def joined_components(interests: Interests, links: NDArray[np.int32], component: Ints | None = None) -> Ints:
    """The component of every entry of the interests when the links join what they can: named by one of its entries."""
    _, _, one, other = shared_topics(interests, links)
    if component is not None:  # entries of one topic and component are one from the start
        order = np.lexsort((component, interests.topic))
        same = (interests.topic[order][1:] == interests.topic[order][:-1]) & (component[order][1:] == component[order][:-1])
        one, other = np.concatenate([order[:-1][same], one]), np.concatenate([order[1:][same], other])
    return _union(one, other, len(interests.topic))


@compiled
def _shared(start, topic, links, names):  # type: ignore[no-untyped-def]
    total = 0
    for round_number in range(2):
        if round_number == 1:
            link, shared = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int32)
            one, other = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
        total = 0
        for i in range(links.shape[0]):
            a, b = start[links[i, 0]], start[links[i, 1]]
            while a < start[links[i, 0] + 1] and b < start[links[i, 1] + 1]:
                if topic[a] == topic[b]:
                    if round_number == 1:
                        link[total], shared[total], one[total], other[total] = i, topic[a], names[a], names[b]
                    total += 1
                    a += 1
                    b += 1
                elif topic[a] < topic[b]:
                    a += 1
                else:
                    b += 1
    return link, shared, one, other


@compiled
def _root(parent, x):  # type: ignore[no-untyped-def]
    while parent[x] != x:
        parent[x] = parent[parent[x]]
        x = parent[x]
    return x


@compiled
def _union(one, other, size):  # type: ignore[no-untyped-def]
    """The least member of each element's set."""
    parent = np.arange(size)
    for i in range(one.shape[0]):
        a, b = _root(parent, one[i]), _root(parent, other[i])
        if a < b:
            parent[b] = a
        elif b < a:
            parent[a] = b
    for x in range(size):
        parent[x] = _root(parent, x)
    return parent


@compiled
def _forests(topics, start, link, one, other, vertices, needed):  # type: ignore[no-untyped-def]
    """Mark the links of a spanning forest of every topic, needed ones first."""
    parent = np.arange(vertices)
    for t in topics:
        begin, end = start[t], start[t + 1]
        for turn in range(2):
            for i in range(begin, end):
                if needed[link[i]] == (turn == 0):
                    a, b = _root(parent, one[i]), _root(parent, other[i])
                    if a != b:
                        parent[a] = b
                        needed[link[i]] = True
        for i in range(begin, end):
            parent[one[i]], parent[other[i]] = one[i], other[i]


@compiled
def _bridges(start, link, one, other, vertices, links):  # type: ignore[no-untyped-def]
    """Which links are a bridge for some topic; by depth-first search on the components of each topic."""
    needed = np.zeros(links, dtype=np.bool_)
    number, low = np.zeros(vertices, dtype=np.int64), np.zeros(vertices, dtype=np.int64)
    first, place = np.zeros(vertices, dtype=np.int64), np.zeros(vertices, dtype=np.int64)
    last = np.zeros(vertices, dtype=np.int64)
    for t in range(start.shape[0] - 1):
        begin, end = start[t], start[t + 1]
        if begin == end:
            continue
        for i in range(begin, end):  # adjacency of the topic's components, as a list of arcs by vertex
            for x in (one[i], other[i]):
                number[x], first[x] = 0, 0
        for i in range(begin, end):
            first[one[i]] += 1
            first[other[i]] += 1
        total = 0
        for i in range(begin, end):
            for x in (one[i], other[i]):
                if number[x] == 0:
                    number[x] = -1
                    count = first[x]
                    first[x], place[x] = total, total
                    total += count
                    last[x] = total
        arc = np.empty(total, dtype=np.int64)
        for i in range(begin, end):
            arc[place[one[i]]] = i
            place[one[i]] += 1
            arc[place[other[i]]] = i
            place[other[i]] += 1
        stack, by = np.empty(total + 1, dtype=np.int64), np.empty(total + 1, dtype=np.int64)
        seen = 0
        for i in range(begin, end):
            root = one[i]
            if number[root] > 0:
                continue
            seen += 1
            number[root], low[root], place[root] = seen, seen, first[root]
            depth = 0
            stack[0], by[0] = root, -1
            while depth >= 0:
                x = stack[depth]
                if place[x] < last[x]:
                    a = arc[place[x]]
                    place[x] += 1
                    y = other[a] if one[a] == x else one[a]
                    if a == by[depth] or y == x:
                        continue
                    if number[y] > 0:
                        low[x] = min(low[x], number[y])
                    else:
                        seen += 1
                        number[y], low[y], place[y] = seen, seen, first[y]
                        depth += 1
                        stack[depth], by[depth] = y, a
                else:
                    depth -= 1
                    if depth >= 0:
                        up = stack[depth]
                        low[up] = min(low[up], low[x])
                        if low[x] > number[up]:
                            needed[link[by[depth + 1]]] = True
    return needed
