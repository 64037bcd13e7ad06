"""Axis-parallel rectangles as (k, d) arrays of low and high corners: volumes of unions, merging to a few boxes.

The public functions take any arrays; ``merge_in_place``, ``thin_in_place``, ``union_of`` and ``sort_by`` are compiled
cores, for other kernels to call on arrays of their own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled

__all__ = [
    "drop_contained",
    "event_share",
    "merge_boxes",
    "merge_in_place",
    "sort_by",
    "thin_in_place",
    "union_of",
    "union_volume",
    "volumes",
]

Array = NDArray[np.float64]
FEW = 64
"""Up to so many boxes, comparing all pairs is faster than sorting first."""
STALE = -2


def volumes(low: Array, high: Array) -> Array:
    """The volume of each box."""
    return np.prod(high - low, axis=1)


def drop_contained(low: Array, high: Array) -> NDArray[np.int64]:
    """Indices of the boxes that no other box contains; of equal boxes the first stays."""
    low, high = _plain(low), _plain(high)
    return np.flatnonzero(_outermost(low, high, len(low)))


def union_volume(low: Array, high: Array) -> float:
    """The exact volume of the union of the boxes, in any dimension."""
    return float(union_of(_plain(low), _plain(high))) if len(low) else 0.0


def event_share(low: Array, high: Array, points: Array, weights: Array) -> float:
    """The share of the event weight inside the union of the boxes."""
    inside = _inside(_plain(low), _plain(high), _plain(points)) if len(low) else np.zeros(len(points), dtype=bool)
    return float(weights[inside].sum() / weights.sum())


def merge_boxes(low: Array, high: Array, alpha: int) -> tuple[Array, Array]:
    """At most ``alpha`` boxes that cover all given ones, each given box inside one of them.

    Boxes inside others are dropped; then the pair whose minimum enclosing box adds the least volume is merged until
    ``alpha`` are left (ties: less margin, then the lower indices; a merged box has the lower index of its two).
    """
    low, high = np.array(low, dtype=np.float64, order="C"), np.array(high, dtype=np.float64, order="C")
    if len(low) < 2:
        return low, high
    count = merge_in_place(low, high, len(low), alpha)
    return low[:count].copy(), high[:count].copy()


def _plain(array: Array) -> Array:
    """One memory layout, so that a core is compiled once."""
    return np.ascontiguousarray(array, dtype=np.float64)


@compiled
def sort_by(key, order):  # type: ignore[no-untyped-def]
    """Sort the indices in ``order`` by their keys, in place; equal keys keep their order. (Compiles faster than numpy's.)"""
    count, width = len(order), 1
    spare = np.empty(count, dtype=np.int64)
    while width < count:
        for start in range(0, count, 2 * width):
            middle, stop = min(start + width, count), min(start + 2 * width, count)
            a, b = start, middle
            for place in range(start, stop):
                if a < middle and (b >= stop or key[order[a]] <= key[order[b]]):
                    spare[place] = order[a]
                    a += 1
                else:
                    spare[place] = order[b]
                    b += 1
        for place in range(count):
            order[place] = spare[place]
        width *= 2


@compiled
def _contains(low, high, outer, inner):  # type: ignore[no-untyped-def]
    for k in range(low.shape[1]):  # noqa: SIM110 (numba compiles no generator)
        if low[inner, k] < low[outer, k] or high[inner, k] > high[outer, k]:
            return False
    return True


@compiled
def _outermost(low, high, count):  # type: ignore[no-untyped-def]
    """Whether each of the first ``count`` boxes is inside no other; of equal boxes the first is."""
    outer = np.ones(count, dtype=np.bool_)
    if count <= FEW:
        for i in range(count):
            for j in range(count):
                if i != j and outer[j] and _contains(low, high, j, i) and (j < i or not _contains(low, high, i, j)):
                    outer[i] = False
                    break
        return outer
    # by low corner ascending and high corner descending, dimension after dimension, a box stands behind all that contain it
    order, key = np.arange(count), np.empty(count)
    for k in range(low.shape[1] - 1, -1, -1):
        for i in range(count):
            key[i] = -high[i, k]
        sort_by(key, order)
        for i in range(count):
            key[i] = low[i, k]
        sort_by(key, order)
    kept, last = np.empty(count, dtype=np.int64), 0
    for place in range(count):
        i = order[place]
        for s in range(last - 1, -1, -1):
            if _contains(low, high, kept[s], i):
                outer[i] = False
                break
        if outer[i]:
            kept[last] = i
            last += 1
    return outer


@compiled
def thin_in_place(low, high, count):  # type: ignore[no-untyped-def]
    """Move the boxes that no other contains to the front, in their order: how many they are."""
    outer = _outermost(low, high, count)
    kept = 0
    for i in range(count):
        if outer[i]:
            for k in range(low.shape[1]):
                low[kept, k], high[kept, k] = low[i, k], high[i, k]
            kept += 1
    return kept


@compiled
def merge_in_place(low, high, count, alpha):  # type: ignore[no-untyped-def]
    """``merge_boxes`` on the first ``count`` boxes: the merged ones stand at the front, how many they are is returned."""
    count = thin_in_place(low, high, count)
    if count <= alpha or count < 2:
        return count
    dims = low.shape[1]
    # corners by dimension, so that inner loops run over neighbouring numbers; a box that is gone has volume -inf and
    # therefore costs +inf to merge with, until it is squeezed out
    lows, highs, volume = np.empty((dims, count)), np.empty((dims, count)), np.ones(count)
    for i in range(count):
        for k in range(dims):
            lows[k, i], highs[k, i] = low[i, k], high[i, k]
            volume[i] *= high[i, k] - low[i, k]
    # every box knows its best partner among the later ones; a merge changes few of them
    cost, partner, added = np.full(count, np.inf), np.full(count, -1), np.empty(count)
    for i in range(count - 1):
        _find_partner(lows, highs, volume, count, i, cost, partner, added)
    left = count
    while left > max(alpha, 1):
        i, j = _cheapest(lows, highs, volume, count, cost, partner)
        volume[i] = 1.0
        for k in range(dims):
            lows[k, i], highs[k, i] = min(lows[k, i], lows[k, j]), max(highs[k, i], highs[k, j])
            volume[i] *= highs[k, i] - lows[k, i]
        volume[j], cost[j], partner[j] = -np.inf, np.inf, -1
        left -= 1
        _find_partner(lows, highs, volume, count, i, cost, partner, added)
        _added(lows, highs, volume, i, 0, i, added)
        for s in range(i):
            if added[s] < cost[s]:
                cost[s], partner[s] = added[s], i
            elif partner[s] == i or partner[s] == j:
                partner[s] = STALE
            elif added[s] == cost[s] and partner[s] >= 0 and _prefers(lows, highs, s, i, partner[s]):
                partner[s] = i
        for s in range(i + 1, j):
            if partner[s] == j:
                partner[s] = STALE
        for s in range(j):
            if partner[s] == STALE:
                _find_partner(lows, highs, volume, count, s, cost, partner, added)
        if left < count - count // 8 - 8:
            count = _squeeze(lows, highs, volume, count, cost, partner)
    _squeeze(lows, highs, volume, count, cost, partner)
    for i in range(left):
        for k in range(dims):
            low[i, k], high[i, k] = lows[k, i], highs[k, i]
    return left


@compiled
def _added(lows, highs, volume, i, start, stop, added):  # type: ignore[no-untyped-def]
    """The volume that merging box ``i`` with each box of a range adds."""
    sums, others = added[start:stop], volume[start:stop]  # slices: a loop from 0 over one is vectorised, one from start is not
    for j in range(len(sums)):
        sums[j] = 1.0
    for k in range(lows.shape[0]):
        a, b, others_low, others_high = lows[k, i], highs[k, i], lows[k, start:stop], highs[k, start:stop]
        for j in range(len(sums)):
            sums[j] *= max(others_high[j], b) - min(others_low[j], a)
    own = volume[i]
    if start > i:
        for j in range(len(sums)):
            sums[j] = sums[j] - own - others[j]
    else:  # the lower index first, so that a pair costs the same to the last bit from both sides
        for j in range(len(sums)):
            sums[j] = sums[j] - others[j] - own


@compiled
def _prefers(lows, highs, i, j, other):  # type: ignore[no-untyped-def]
    """Whether box ``i`` would merge with ``j`` rather than ``other`` when both add the same volume."""
    one, two = 0.0, 0.0
    for k in range(lows.shape[0]):
        one += max(highs[k, i], highs[k, j]) - min(lows[k, i], lows[k, j])
        two += max(highs[k, i], highs[k, other]) - min(lows[k, i], lows[k, other])
    return one < two or (one == two and j < other)


@compiled
def _find_partner(lows, highs, volume, count, i, cost, partner, added):  # type: ignore[no-untyped-def]
    _added(lows, highs, volume, i, i + 1, count, added)
    best, pick = _least(added, i + 1, count), -1
    if best < np.inf:
        later = added[i + 1 : count]
        for s in range(len(later)):
            if later[s] == best and (pick < 0 or _prefers(lows, highs, i, i + 1 + s, pick)):
                pick = i + 1 + s
    cost[i], partner[i] = best, pick


@compiled
def _least(values, start, stop):  # type: ignore[no-untyped-def]
    """The smallest value of a range, with four comparisons under way at a time."""
    some = values[start:stop]
    a, b, c, d = np.inf, np.inf, np.inf, np.inf
    for j in range(len(some) // 4):
        a, b, c, d = min(some[4 * j], a), min(some[4 * j + 1], b), min(some[4 * j + 2], c), min(some[4 * j + 3], d)
    for j in range(len(some) // 4 * 4, len(some)):
        a = min(some[j], a)
    return min(min(a, b), min(c, d))


@compiled
def _cheapest(lows, highs, volume, count, cost, partner):  # type: ignore[no-untyped-def]
    """The pair to merge next."""
    best, pick, least = np.inf, -1, np.inf
    for i in range(count):
        if cost[i] <= best and partner[i] >= 0:
            margin = 0.0
            for k in range(lows.shape[0]):
                margin += max(highs[k, i], highs[k, partner[i]]) - min(lows[k, i], lows[k, partner[i]])
            if cost[i] < best or margin < least:
                best, pick, least = cost[i], i, margin
    if pick >= 0:
        return pick, partner[pick]
    first = -1  # volumes beyond the range of numbers cannot be compared: the first two
    for i in range(count):
        if volume[i] != -np.inf:
            if first >= 0:
                return first, i
            first = i
    return 0, 1


@compiled
def _squeeze(lows, highs, volume, count, cost, partner):  # type: ignore[no-untyped-def]
    """Forget the boxes that are gone; the others keep their order."""
    place, kept = np.empty(count, dtype=np.int64), 0
    for i in range(count):
        place[i] = kept
        if volume[i] != -np.inf:
            for k in range(lows.shape[0]):
                lows[k, kept], highs[k, kept] = lows[k, i], highs[k, i]
            volume[kept], cost[kept], partner[kept] = volume[i], cost[i], partner[i]
            kept += 1
    for i in range(kept):
        if partner[i] >= 0:
            partner[i] = place[partner[i]]
    return kept


@compiled
def union_of(low, high):  # type: ignore[no-untyped-def]
    """The volume of the union of the boxes.

    Sweeps the first dimension: between two consecutive corners the set of boxes met does not change, so the volume
    is the slab's width times the volume of the union of their projections.
    """
    count, dims = low.shape
    if count == 0:
        return 0.0
    if count == 1 or dims == 0:
        volume = 1.0
        for k in range(dims):
            volume *= high[0, k] - low[0, k]
        return volume
    corner, order = np.empty(2 * count), np.arange(count)
    for i in range(count):
        corner[i] = low[i, dims - 1 if dims < 2 else 1]
    sort_by(corner, order)
    if dims == 1:
        return _covered(low, high, order, count, 0)
    for i in range(count):
        corner[i], corner[count + i] = low[i, 0], high[i, 0]
    cuts = np.arange(2 * count)
    sort_by(corner, cuts)
    met = np.empty(count, dtype=np.int64)
    total = 0.0
    for c in range(2 * count - 1):
        left, right = corner[cuts[c]], corner[cuts[c + 1]]
        if left == right:
            continue
        many = 0
        for place in range(count):
            i = order[place]
            if low[i, 0] <= left and high[i, 0] >= right:
                met[many] = i
                many += 1
        if many == 0:
            continue
        if dims == 2:
            total += (right - left) * _covered(low, high, met, many, 1)
        else:
            below_low, below_high = np.empty((many, dims - 1)), np.empty((many, dims - 1))
            for s in range(many):
                for k in range(dims - 1):
                    below_low[s, k], below_high[s, k] = low[met[s], k + 1], high[met[s], k + 1]
            many = thin_in_place(below_low, below_high, many)
            total += (right - left) * union_of(below_low[:many], below_high[:many])
    return total


@compiled
def _covered(low, high, order, count, k):  # type: ignore[no-untyped-def]
    """The length of the union of intervals in dimension ``k``; ``order`` lists them by their low ends."""
    total, reach = 0.0, -np.inf
    for s in range(count):
        i = order[s]
        start = max(low[i, k], reach)
        if high[i, k] > start:
            total += high[i, k] - start
            reach = high[i, k]
    return total


@compiled
def _inside(low, high, points):  # type: ignore[no-untyped-def]
    inside = np.zeros(points.shape[0], dtype=np.bool_)
    for p in range(points.shape[0]):
        for i in range(low.shape[0]):
            held = True
            for k in range(low.shape[1]):
                if points[p, k] < low[i, k] or points[p, k] > high[i, k]:
                    held = False
                    break
            if held:
                inside[p] = True
                break
    return inside
