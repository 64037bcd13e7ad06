"""Representative sets: few nodes of a partition that stand for its interests when partitions are combined (Definition 2, Algorithm 13)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled
from udfs.kernels.merge import Interests

__all__ = ["representatives"]

Ints = NDArray[np.int64]


def representatives(interests: Interests, outside: NDArray[np.bool_], coverage: int, slack: Ints | None = None) -> Ints:
    """Nodes (ascending) such that every topic of ``outside`` (by number) that has subscribers has ``coverage`` of them, or all there are.

    Greedy: the node that wants the most topics not yet covered, the first of equals. With ``slack`` (how many links a
    node may still take, 1 or more) that number is weighted by it: nodes that have room are taken first.
    """
    weight = np.ones(interests.nodes, dtype=np.int64) if slack is None else np.maximum(slack, 1).astype(np.int64)
    entry = np.argsort(interests.topic, kind="stable")
    first = np.searchsorted(interests.topic[entry], np.arange(interests.topics + 1))
    chosen = _cover(interests.start, interests.topic, first, interests.node[entry], outside, coverage, weight)
    return np.flatnonzero(chosen)


@compiled
def _cover(start, topic, first, subscriber, outside, coverage, weight):  # type: ignore[no-untyped-def]
    n = start.shape[0] - 1
    left = np.zeros(outside.shape[0], dtype=np.int64)
    for t in range(outside.shape[0]):
        left[t] = min(coverage, first[t + 1] - first[t]) if outside[t] else 0
    gain, chosen = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    for v in range(n):
        for e in range(start[v], start[v + 1]):
            gain[v] += left[topic[e]] > 0
    while True:
        best, pick = 0, -1
        for v in range(n):
            if gain[v] * weight[v] > best and not chosen[v]:
                best, pick = gain[v] * weight[v], v
        if pick < 0:
            return chosen
        chosen[pick] = True
        for e in range(start[pick], start[pick + 1]):
            t = topic[e]
            if left[t] > 0:
                left[t] -= 1
                if left[t] == 0:
                    for i in range(first[t], first[t + 1]):
                        gain[subscriber[i]] -= 1
