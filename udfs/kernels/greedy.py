"""Gr and Gr* (section III of Yu, Agarwal, Yang, ICDE): subscribers one by one to the leaf whose path grows least.

The cost of a leaf is the sum, over the nodes from the leaf up to the root's child, of the least growth in rectangle
volume that keeps the nesting condition. A node covers a new box X, if none of its rectangles does already, in the
cheapest of three ways: enlarge a rectangle to the minimum enclosing box of it and X; add X as a rectangle of its own
(while there are fewer than alpha); or merge its cheapest pair of rectangles and add X. What changed in a node (one
or two boxes) is what its parent must cover next. Ties go to the leaf with the least load by share, then to the lower
leaf. Volumes are sums over a filter's rectangles: cheaper than the union and it discourages overlap.

Gr* takes the subscribers in ascending order of the number of leaves still open to them (ties: row order) and orders
the rest anew whenever a leaf becomes full. Gr takes them in row order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled
from udfs.kernels.tree import BrokerTree

__all__ = ["Filters", "GreedyResult", "greedy", "insert_box", "lbf_steps"]

Floats = NDArray[np.float64]
STEPS = 4


@dataclass(frozen=True)
class Filters:
    """The rectangles of every node: ``low[node, k]``, ``high[node, k]`` for k below ``count[node]``."""

    low: Floats
    high: Floats
    count: NDArray[np.int64]

    @classmethod
    def empty(cls, nodes: int, alpha: int, dims: int) -> Filters:
        return cls(np.zeros((nodes, alpha, dims)), np.zeros((nodes, alpha, dims)), np.zeros(nodes, dtype=np.int64))

    def copy(self) -> Filters:
        return Filters(self.low.copy(), self.high.copy(), self.count.copy())


@dataclass(frozen=True)
class GreedyResult:
    leaf: NDArray[np.int64]
    filters: Filters
    lbf: float
    """The load balance factor the run was allowed."""
    complete: bool
    """Whether every subscriber found an allowed leaf with room."""


def lbf_steps(lbf: float, lbf_max: float) -> list[float]:
    """The desired factor, then equal steps up to the largest one."""
    return [lbf] if lbf_max <= lbf else [lbf + (lbf_max - lbf) * i / STEPS for i in range(STEPS + 1)]


def greedy(
    tree: BrokerTree,
    low: Floats,
    high: Floats,
    allowed: NDArray[np.uint8],
    fastest: NDArray[np.int64],
    *,
    alpha: int,
    lbf: float,
    lbf_max: float,
    reorder: bool,
    start: Filters | None = None,
) -> GreedyResult:
    """Assign every row to a leaf; ``allowed`` is packed by ``pack_sets``.

    The factor starts at ``lbf`` and rises to ``lbf_max`` while some row finds no open leaf. Beyond that, a row takes
    the least loaded leaf it may have, or ``fastest`` when it may have none: the best effort.
    """
    first = start or Filters.empty(len(tree.parent), alpha, low.shape[1])
    steps = lbf_steps(lbf, lbf_max)
    for attempt, factor in enumerate([*steps, steps[-1]]):
        filters = first.copy()
        strict = attempt < len(steps)
        capacity = BrokerTree.capacities(tree.share, len(low), factor)
        leaf, complete = _assign(
            low, high, allowed, fastest, tree.paths, tree.share, capacity, alpha, reorder, strict,
            filters.low, filters.high, filters.count,
        )  # fmt: skip
        if complete or not strict:
            return GreedyResult(leaf, filters, factor, complete)
    raise AssertionError("the last attempt always assigns")


@compiled
def insert_box(low, high, count, alpha, box_low, box_high, changed_low, changed_high, changed):  # type: ignore[no-untyped-def]
    """Cover a box in one node, in place: (growth, how many changed boxes are in the list now, rectangles now)."""
    dims = box_low.shape[0]
    volume = 1.0
    for k in range(dims):
        volume *= box_high[k] - box_low[k]
    best, pick = np.inf, -1
    for r in range(count):
        inside = True
        merged, own = 1.0, 1.0
        for k in range(dims):
            a, b = min(low[r, k], box_low[k]), max(high[r, k], box_high[k])
            if a < low[r, k] or b > high[r, k]:
                inside = False
            merged *= b - a
            own *= high[r, k] - low[r, k]
        if inside:
            return 0.0, changed, count
        if merged - own < best:
            best, pick = merged - own, r
    if count < alpha:
        if count == 0 or volume < best:
            best, pick = volume, count
    else:
        pair, first, second = _cheapest_pair(low, high, count)
        if first >= 0 and pair + volume < best:
            best = pair + volume
            pick = first
            for k in range(dims):
                low[first, k] = min(low[first, k], low[second, k])
                high[first, k] = max(high[first, k], high[second, k])
                changed_low[changed, k] = low[first, k]
                changed_high[changed, k] = high[first, k]
            changed += 1
            for k in range(dims):
                low[second, k] = box_low[k]
                high[second, k] = box_high[k]
                changed_low[changed, k] = box_low[k]
                changed_high[changed, k] = box_high[k]
            changed += 1
            return best, changed, _drop_inside(low, high, count, first)
    if pick == count:
        for k in range(dims):
            low[pick, k] = box_low[k]
            high[pick, k] = box_high[k]
        count += 1
    else:
        for k in range(dims):
            low[pick, k] = min(low[pick, k], box_low[k])
            high[pick, k] = max(high[pick, k], box_high[k])
    for k in range(dims):
        changed_low[changed, k] = low[pick, k]
        changed_high[changed, k] = high[pick, k]
    return best, changed + 1, _drop_inside(low, high, count, pick)


@compiled
def _cheapest_pair(low, high, count):  # type: ignore[no-untyped-def]
    """The pair of rectangles whose merging adds the least volume: (volume added, first, second)."""
    best, first, second = np.inf, -1, -1
    for r in range(count):
        for s in range(r + 1, count):
            merged, one, other = 1.0, 1.0, 1.0
            for k in range(low.shape[1]):
                merged *= max(high[r, k], high[s, k]) - min(low[r, k], low[s, k])
                one *= high[r, k] - low[r, k]
                other *= high[s, k] - low[s, k]
            if merged - one - other < best:
                best, first, second = merged - one - other, r, s
    return best, first, second


@compiled
def _drop_inside(low, high, count, keeper):  # type: ignore[no-untyped-def]
    """Remove the rectangles that the one at ``keeper`` contains; they cost a place and add nothing."""
    kept = 0
    for r in range(count):
        inside = r != keeper
        for k in range(low.shape[1]):
            if low[r, k] < low[keeper, k] or high[r, k] > high[keeper, k]:
                inside = False
        if not inside:
            if kept != r:
                for k in range(low.shape[1]):
                    low[kept, k] = low[r, k]
                    high[kept, k] = high[r, k]
            if r == keeper:
                keeper = kept
            kept += 1
    return kept


@compiled
def _leaf_growth(low, high, count, alpha, pair, box_low, box_high, volume):  # type: ignore[no-untyped-def]
    """The growth ``insert_box`` would report, without doing it; ``pair`` is the node's cheapest merge."""
    best = np.inf
    for r in range(count):
        inside = True
        merged, own = 1.0, 1.0
        for k in range(box_low.shape[0]):
            a, b = low[r, k], high[r, k]
            own *= b - a
            if box_low[k] < a:
                a, inside = box_low[k], False
            if box_high[k] > b:
                b, inside = box_high[k], False
            merged *= b - a
        if inside:
            return 0.0
        best = min(best, merged - own)
    return min(best, volume) if count < alpha else min(best, pair + volume)


@compiled
def _assign(  # type: ignore[no-untyped-def]
    low, high, allowed, fastest, paths, share, capacity, alpha, reorder, strict, box_low, box_high, box_count
):
    rows, dims = low.shape
    leaves, depth = paths.shape
    load = np.zeros(leaves, dtype=np.int64)
    leaf_of = np.full(rows, -1, dtype=np.int64)
    pair = np.full(box_low.shape[0], np.inf)
    for node in range(box_low.shape[0]):
        pair[node] = _cheapest_pair(box_low[node], box_high[node], box_count[node])[0]

    choices = np.zeros(rows, dtype=np.int64)
    order = np.arange(rows)
    if reorder:
        for j in range(rows):
            for i in range(leaves):
                if (allowed[j, i >> 3] >> (i & 7)) & 1 and capacity[i] > 0:
                    choices[j] += 1
        order = _order(choices, leaf_of, leaves)

    most = 2 ** (depth + 1)
    pending_low, pending_high = np.empty((most, dims)), np.empty((most, dims))
    changed_low, changed_high = np.empty((most, dims)), np.empty((most, dims))
    scratch_low, scratch_high = np.empty((alpha, dims)), np.empty((alpha, dims))
    complete = True
    position = 0
    while position < len(order):
        j = order[position]
        position += 1
        volume = 1.0
        for k in range(dims):
            volume *= high[j, k] - low[j, k]
        best, pick = np.inf, -1
        for i in range(leaves):
            if not (allowed[j, i >> 3] >> (i & 7)) & 1 or load[i] >= capacity[i]:
                continue
            node = paths[i, 0]
            cost = _leaf_growth(box_low[node], box_high[node], box_count[node], alpha, pair[node], low[j], high[j], volume)
            if cost > best:
                continue
            if depth > 1 and cost > 0.0:
                cost = _path_growth(
                    paths[i], box_low, box_high, box_count, alpha, low[j], high[j], best,
                    pending_low, pending_high, changed_low, changed_high, scratch_low, scratch_high,
                )  # fmt: skip
            if cost < best or (cost == best and load[i] / share[i] < load[pick] / share[pick]):
                best, pick = cost, i
        if pick < 0:
            complete = False
            if strict:
                return leaf_of, False
            least = np.inf
            for i in range(leaves):
                if (allowed[j, i >> 3] >> (i & 7)) & 1 and load[i] / share[i] < least:
                    least, pick = load[i] / share[i], i
            if pick < 0:
                pick = fastest[j]
        leaf_of[j] = pick
        load[pick] += 1

        pending = 1
        pending_low[0], pending_high[0] = low[j], high[j]
        for step in range(depth):
            node = paths[pick, step]
            if node < 0 or pending == 0:
                break
            changed = 0
            for p in range(pending):
                _, changed, box_count[node] = insert_box(
                    box_low[node], box_high[node], box_count[node], alpha, pending_low[p], pending_high[p],
                    changed_low, changed_high, changed,
                )  # fmt: skip
            pair[node] = _cheapest_pair(box_low[node], box_high[node], box_count[node])[0]
            for p in range(changed):
                pending_low[p], pending_high[p] = changed_low[p], changed_high[p]
            pending = changed

        if reorder and load[pick] == capacity[pick]:
            for s in range(rows):
                if leaf_of[s] < 0 and (allowed[s, pick >> 3] >> (pick & 7)) & 1:
                    choices[s] -= 1
            order = _order(choices, leaf_of, leaves)
            position = 0
    return leaf_of, complete


@compiled
def _path_growth(  # type: ignore[no-untyped-def]
    path, box_low, box_high, box_count, alpha, low, high, limit,
    pending_low, pending_high, changed_low, changed_high, scratch_low, scratch_high,
):  # fmt: skip
    """The growth of all nodes of a path when a box is put at its leaf; stops once it exceeds ``limit``."""
    pending, total = 1, 0.0
    pending_low[0], pending_high[0] = low, high
    for step in range(path.shape[0]):
        node = path[step]
        if node < 0 or pending == 0:
            break
        count = box_count[node]
        scratch_low[:count], scratch_high[:count] = box_low[node, :count], box_high[node, :count]
        changed = 0
        for p in range(pending):
            growth, changed, count = insert_box(
                scratch_low, scratch_high, count, alpha, pending_low[p], pending_high[p], changed_low, changed_high, changed
            )
            total += growth
        if total > limit:
            break
        for p in range(changed):
            pending_low[p], pending_high[p] = changed_low[p], changed_high[p]
        pending = changed
    return total


@compiled
def _order(choices, leaf_of, most):  # type: ignore[no-untyped-def]
    """Rows without a leaf by ascending number of choices, row order within (a counting sort)."""
    start = np.zeros(most + 2, dtype=np.int64)
    for j in range(choices.shape[0]):
        if leaf_of[j] < 0:
            start[choices[j] + 1] += 1
    for c in range(1, most + 2):
        start[c] += start[c - 1]
    order = np.empty(start[most + 1], dtype=np.int64)
    for j in range(choices.shape[0]):
        if leaf_of[j] < 0:
            order[start[choices[j]]] = j
            start[choices[j]] += 1
    return order
