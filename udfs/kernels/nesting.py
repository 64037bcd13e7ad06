"""Filters of interior brokers, bottom-up: at most alpha rectangles that cover the children's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.adjust import alpha_boxes
from udfs.kernels.greedy import Filters
from udfs.kernels.tree import BrokerTree

__all__ = ["nest"]


def nest(tree: BrokerTree, leaf: NDArray[np.int64], low: NDArray[np.float64], high: NDArray[np.float64], alpha: int) -> Filters:
    """Filters of every node, from the rectangles ``low[k], high[k]`` of leaf number ``leaf[k]`` (any number of them a leaf)."""
    filters = Filters.empty(len(tree.parent), alpha, low.shape[1])
    below: dict[int, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}
    for number in np.unique(leaf):
        mine = leaf == number
        below[int(tree.leaves[number])] = [(low[mine], high[mine])]
    for node in range(len(tree.parent) - 1, 0, -1):
        if node not in below:
            continue
        mine_low, mine_high = (np.concatenate(corners) for corners in zip(*below[node], strict=True))
        order = np.lexsort(np.hstack([mine_low, mine_high]).T[::-1])  # the same boxes whatever order they come in
        some_low, some_high = alpha_boxes(mine_low[order], mine_high[order], alpha)
        filters.low[node, : len(some_low)], filters.high[node, : len(some_low)], filters.count[node] = some_low, some_high, len(some_low)
        below.setdefault(int(tree.parent[node]), []).append((some_low, some_high))
    return filters
