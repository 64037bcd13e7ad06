"""GM-M: link nodes so that every topic is connected, at a low maximum degree (Algorithm 2 of Chen, Vitenberg, Jacobsen).

A step adds the link that raises the maximum degree least (not at all, if any such link helps); of these the one with the largest
contribution, the number of topics for which it joins two components; of these the one whose busier end has the lower
degree, then the first (v, w). Algorithm 5's loop bounds contradict that definition; the definition is followed.

What makes it fast, with the same links in the same order as a literal loop:

- Phases. Under a cap D only nodes below degree D are eligible, and within a phase the level (the largest contribution)
  only falls; no link left: the cap rises by one.
- Lazy contributions. A pair keeps an upper bound of its contribution, which never rises; it is counted anew only when the level
  reaches the bound. Bounds stand in a triangle of bytes (two bytes where nodes share more than 255 topics).
- Blocks. For every 64 pairs of a row the largest bound is known, so a level looks at few of them.
- Connected topics leave the lists at the start of a phase.
- Where nodes want a good part of all topics, lists are padded to all of them, so that two nodes are compared as two vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled

__all__ = ["Interests", "interests_of", "merge_greedily"]

Ints = NDArray[np.int64]

BLOCK = 64
"""Pairs of a row that share one largest bound."""
PAD = 8
"""Lists are padded to all topics when they then get at most this many times as long."""
MOST_NODES = 60_000
"""Nodes of one merge: components are numbered in two bytes, and the bounds of so many pairs take 1.8 GB."""


@dataclass(frozen=True)
class Interests:
    """Which topics each node wants: the topics of node v are ``topic[start[v] : start[v + 1]]``, ascending, numbered from 0."""

    start: Ints
    topic: NDArray[np.int32]
    topics: int

    @property
    def nodes(self) -> int:
        return len(self.start) - 1

    @property
    def node(self) -> Ints:
        """The node of every entry of ``topic``."""
        return np.repeat(np.arange(self.nodes), np.diff(self.start))

    def of(self, nodes: Ints) -> Interests:
        """The interests of some nodes, in the given order; topics keep their numbers."""
        sizes = np.diff(self.start)[nodes]
        start = np.concatenate([[0], np.cumsum(sizes)])
        entry = np.arange(start[-1]) - np.repeat(start[:-1] - self.start[nodes], sizes)
        return Interests(start, self.topic[entry], self.topics)


def interests_of(node: Ints, topic: Ints) -> tuple[Ints, Ints, Interests]:
    """(node ids ascending, topic ids ascending, interests by their numbers) of a table of pairs; a pair counts once."""
    node_ids, v = np.unique(node, return_inverse=True)
    topic_ids, t = np.unique(topic, return_inverse=True)
    pairs = np.unique(v * max(len(topic_ids), 1) + t)
    v, t = np.divmod(pairs, max(len(topic_ids), 1))
    start = np.searchsorted(v, np.arange(len(node_ids) + 1))
    return node_ids, topic_ids, Interests(start.astype(np.int64), t.astype(np.int32), len(topic_ids))


def merge_greedily(
    interests: Interests, component: Ints | None = None, degree: Ints | None = None, cap: int = 0
) -> NDArray[np.int32]:
    """The links (v < w), in the order of their choice, that connect every topic.

    ``component`` says for every entry of the interests which component of its topic the node belongs to already (any
    numbers; default: each its own), ``degree`` how many links a node has (default none). The first phase has the cap
    ``cap``, or the largest degree if that is more.
    """
    n = interests.nodes
    if n > MOST_NODES:
        raise ValueError(f"{n:,} nodes in one merge; at most {MOST_NODES:,}")
    if n < 2:
        return np.empty((0, 2), dtype=np.int32)
    degree = np.zeros(n, dtype=np.int64) if degree is None else degree.astype(np.int64).copy()
    label = _labels(interests, interests.node if component is None else component)
    start, topic, dense = interests.start, interests.topic, len(interests.topic) * PAD >= n * interests.topics
    if dense:
        padded = np.zeros((n, interests.topics), dtype=np.uint16)
        padded[interests.node, topic] = label
        start, label = np.arange(n + 1) * interests.topics, padded.ravel()
        topic = np.tile(np.arange(interests.topics, dtype=np.int32), n)
    largest = int(np.diff(interests.start).max(initial=0))
    bound = np.zeros(n * (n - 1) // 2, dtype=np.uint8 if largest < 256 else np.uint16)
    return _merge(start, topic, interests.topics, label, dense, degree, int(max(cap, degree.max())), bound)


def _labels(interests: Interests, component: Ints) -> NDArray[np.uint16]:
    """The components of each topic, numbered from 1."""
    order = np.lexsort((component, interests.topic))
    topic, given = interests.topic[order], component[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (topic[1:] != topic[:-1]) | (given[1:] != given[:-1])
    number = np.cumsum(new)
    before = np.concatenate([[0], number])[np.searchsorted(topic, np.arange(interests.topics))]
    label = np.empty(len(order), dtype=np.uint16)
    label[order] = number - before[topic]
    return label


@compiled
def _push(heap, size, key):  # type: ignore[no-untyped-def]
    i = size
    heap[i] = key
    while i > 0 and heap[(i - 1) >> 1] > key:
        heap[i] = heap[(i - 1) >> 1]
        i = (i - 1) >> 1
    heap[i] = key
    return size + 1


@compiled
def _pop(heap, size):  # type: ignore[no-untyped-def]
    """Drop the least key, ``heap[0]``."""
    size -= 1
    key, i = heap[size], 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = key
    return size


@compiled
def _differ(one, other):  # type: ignore[no-untyped-def]
    """Topics that both want and are in different components for; written so that it compiles to vector instructions."""
    count = np.uint16(0)
    for k in range(one.shape[0]):
        x, y = one[k], other[k]
        count += np.uint16((x != y) & (x != 0) & (y != 0))
    return np.int64(count)


@compiled
def _contribution(at, length, topic, label, dense, v, w, mark):  # type: ignore[no-untyped-def]
    """What a link of v and w would contribute; v is marked (``mark``: its label by topic, 0: not wanted)."""
    if dense:
        return _differ(label[at[v] : at[v] + length[v]], label[at[w] : at[w] + length[w]])
    count = 0
    for e in range(at[w], at[w] + length[w]):
        m = mark[topic[e]]
        count += m != 0 and m != label[e]
    return count


@compiled
def _set_marks(at, length, topic, label, v, mark, on):  # type: ignore[no-untyped-def]
    for e in range(at[v], at[v] + length[v]):
        mark[topic[e]] = label[e] if on else 0


@compiled
def _merge(start, topic_given, topics, label_given, dense, degree, cap, bound):  # type: ignore[no-untyped-def]
    n = start.shape[0] - 1
    at, length = start[:-1].copy(), np.empty(n, dtype=np.int64)
    for v in range(n):
        length[v] = start[v + 1] - start[v]
    topic, label = topic_given.copy(), label_given.copy()

    # members of each component as linked lists over entries; components of topic t are numbered from base[t]
    count = np.zeros(topics + 1, dtype=np.int64)
    for e in range(topic.shape[0]):
        count[topic[e] + 1] = max(count[topic[e] + 1], label[e])
    base = np.cumsum(count)
    apart = np.empty(topics, dtype=np.int64)
    for t in range(topics):
        apart[t] = base[t + 1] - base[t]
    head, size = np.full(base[topics], -1, dtype=np.int64), np.zeros(base[topics], dtype=np.int64)
    after = np.full(topic.shape[0], -1, dtype=np.int64)

    mark = np.zeros(topics, dtype=np.uint16)
    blocks = (n + BLOCK - 1) // BLOCK
    top = np.zeros((n, blocks), dtype=bound.dtype)
    row_top = np.zeros(n, dtype=np.int64)
    heap = np.empty(1024, dtype=np.int64)
    links = np.empty((1024, 2), dtype=np.int32)
    made = 0

    for v in range(n):
        _set_marks(at, length, topic, label, v, mark, True)
        row = v * (2 * n - v - 1) // 2 - v - 1
        for w in range(v + 1, n):
            bound[row + w] = _contribution(at, length, topic, label, dense, v, w, mark)
        _set_marks(at, length, topic, label, v, mark, False)

    while True:
        left = False
        for t in range(topics):
            left = left or apart[t] > 1
        if not left:
            break
        # a phase: connected topics leave the lists, members are linked anew, block maxima are taken over eligible pairs
        head[:] = -1
        size[:] = 0
        for v in range(n):
            kept = 0
            for e in range(at[v], at[v] + length[v]):
                if apart[topic[e]] > 1:
                    to = at[v] + kept
                    topic[to], label[to] = topic[e], label[e]
                    kept += 1
                    if label[to] != 0:
                        c = base[topic[to]] + label[to] - 1
                        after[to] = head[c]
                        head[c] = to
                        size[c] += 1
            length[v] = kept
        level = 0
        for v in range(n):
            row_top[v] = 0
            if degree[v] >= cap or length[v] == 0:
                continue
            row = v * (2 * n - v - 1) // 2 - v - 1
            for b in range((v + 1) // BLOCK, blocks):
                best = 0
                for w in range(max(v + 1, b * BLOCK), min(n, (b + 1) * BLOCK)):
                    if degree[w] < cap:
                        best = max(best, bound[row + w])
                top[v, b] = best
                row_top[v] = max(row_top[v], best)
            level = max(level, row_top[v])

        while level > 0:
            # pairs that reach the level, counted exactly; those at the level wait in the heap by (degree, v, w)
            waiting, below = 0, 0
            for v in range(n):
                if row_top[v] < level:
                    below = max(below, row_top[v])
                    continue
                if degree[v] >= cap:
                    row_top[v] = 0
                    continue
                marked = False
                row = v * (2 * n - v - 1) // 2 - v - 1
                new_top = 0
                for b in range((v + 1) // BLOCK, blocks):
                    if top[v, b] < level:
                        new_top = max(new_top, top[v, b])
                        continue
                    best = 0
                    for w in range(max(v + 1, b * BLOCK), min(n, (b + 1) * BLOCK)):
                        if degree[w] >= cap:
                            continue
                        if bound[row + w] >= level:
                            if not marked and not dense:
                                marked = True
                                _set_marks(at, length, topic, label, v, mark, True)
                            exact = _contribution(at, length, topic, label, dense, v, w, mark)
                            bound[row + w] = exact
                            if exact == level:
                                if waiting == heap.shape[0]:
                                    wider = np.empty(2 * waiting, dtype=np.int64)
                                    wider[:waiting] = heap
                                    heap = wider
                                waiting = _push(heap, waiting, (max(degree[v], degree[w]) * n + v) * n + w)
                                continue  # below the level after this one
                        best = max(best, bound[row + w])
                    top[v, b] = best
                    new_top = max(new_top, best)
                if marked:
                    _set_marks(at, length, topic, label, v, mark, False)
                row_top[v] = new_top
                below = max(below, new_top)

            while waiting > 0:
                key = heap[0]
                waiting = _pop(heap, waiting)
                w, rest = key % n, key // n
                v, at_degree = rest % n, rest // n
                busier = max(degree[v], degree[w])
                if busier > at_degree:
                    if busier < cap:
                        waiting = _push(heap, waiting, (busier * n + v) * n + w)
                    continue
                _set_marks(at, length, topic, label, v, mark, True)
                exact = _contribution(at, length, topic, label, dense, v, w, mark)
                row = v * (2 * n - v - 1) // 2 - v - 1
                bound[row + w] = exact
                if exact == level:
                    if made == links.shape[0]:
                        longer = np.empty((2 * made, 2), dtype=np.int32)
                        longer[:made] = links
                        links = longer
                    links[made, 0], links[made, 1] = v, w
                    made += 1
                    degree[v] += 1
                    degree[w] += 1
                    for e in range(at[w], at[w] + length[w]):
                        m, t = mark[topic[e]], topic[e]
                        if m != 0 and label[e] != 0 and m != label[e]:
                            into, gone = base[t] + m - 1, base[t] + label[e] - 1
                            if size[into] < size[gone]:
                                into, gone = gone, into
                            member, last = head[gone], -1
                            while member >= 0:
                                label[member] = into - base[t] + 1
                                last = member
                                member = after[member]
                            after[last] = head[into]
                            head[into] = head[gone]
                            head[gone] = -1
                            size[into] += size[gone]
                            size[gone] = 0
                            apart[t] -= 1
                    bound[row + w] = 0
                else:
                    b = w // BLOCK
                    top[v, b] = max(top[v, b], exact)
                    row_top[v] = max(row_top[v], exact)
                    below = max(below, exact)
                _set_marks(at, length, topic, label, v, mark, False)
            level = below
        cap += 1
    return links[:made].copy()
