"""The broker tree as arrays: node 0 is the root (publisher), children come after their parents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["BrokerTree"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BrokerTree:
    """A rooted tree of brokers. ``parent[0]`` is -1 and ``parent[i] < i`` for every other node."""

    broker_id: Ints
    parent: Ints
    location: Floats
    share: Floats
    """Capacity fraction kappa of each leaf, in the order of ``leaves``; sums to 1."""

    @cached_property
    def leaves(self) -> Ints:
        """Nodes without children, the root aside, in ascending order."""
        has_child = np.zeros(len(self.parent), dtype=bool)
        has_child[self.parent[1:]] = True
        has_child[0] = True
        return np.flatnonzero(~has_child)

    @cached_property
    def path_latency(self) -> Floats:
        """Latency from the root to each node: the sum of distances along the tree."""
        total = np.zeros(len(self.parent))
        for node in range(1, len(self.parent)):
            up = self.parent[node]
            total[node] = total[up] + np.sqrt(((self.location[node] - self.location[up]) ** 2).sum())
        return total

    @cached_property
    def paths(self) -> Ints:
        """For each leaf the nodes from the leaf up to the child of the root, padded with -1."""
        rows = []
        for leaf in self.leaves:
            row, node = [], int(leaf)
            while node > 0:
                row.append(node)
                node = int(self.parent[node])
            rows.append(row)
        depth = max(len(row) for row in rows)
        return np.array([row + [-1] * (depth - len(row)) for row in rows], dtype=np.int64)

    @cached_property
    def leaves_below(self) -> NDArray[np.bool_]:
        """(nodes, leaves): the leaf is the node or lies below it."""
        below = np.zeros((len(self.parent), len(self.leaves)), dtype=bool)
        below[self.leaves, np.arange(len(self.leaves))] = True
        for node in range(len(self.parent) - 1, 0, -1):
            below[self.parent[node]] |= below[node]
        return below

    @cached_property
    def share_below(self) -> Floats:
        """Capacity of the leaves below each node, a leaf's own included."""
        return self.leaves_below @ self.share

    @cached_property
    def depth(self) -> Ints:
        """Hops from the root to each node."""
        depth = np.zeros(len(self.parent), dtype=np.int64)
        for node in range(1, len(self.parent)):
            depth[node] = depth[self.parent[node]] + 1
        return depth

    @cached_property
    def height(self) -> Ints:
        """Hops from each node down to its deepest leaf; 0 for a leaf."""
        height = np.zeros(len(self.parent), dtype=np.int64)
        for node in range(len(self.parent) - 1, 0, -1):
            height[self.parent[node]] = max(height[self.parent[node]], height[node] + 1)
        return height

    @property
    def leaf_ids(self) -> Ints:
        return self.broker_id[self.leaves]

    @staticmethod
    def capacities(share: Floats, subscribers: int, lbf: float) -> Ints:
        """How many subscribers each leaf may hold at a load balance factor; robust against 0.9999999 of a place."""
        return np.floor(lbf * share * subscribers * (1 + 1e-12) + 1e-9).astype(np.int64)
