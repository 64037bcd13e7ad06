"""Axis-parallel rectangles as (k, d) arrays of low and high corners: volumes of unions, merging to a few boxes."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

__all__ = ["drop_contained", "event_share", "merge_boxes", "union_volume", "volumes"]

Array = NDArray[np.float64]


def volumes(low: Array, high: Array) -> Array:
    """The volume of each box."""
    return np.prod(high - low, axis=1)


def drop_contained(low: Array, high: Array) -> NDArray[np.int64]:
    """Indices of the boxes that no other box contains; of equal boxes the first stays."""
    inside = np.all((low[:, None] >= low[None]) & (high[:, None] <= high[None]), axis=2)
    equal = inside & inside.T
    first = np.arange(len(low))[:, None] > np.arange(len(low))[None, :]
    np.fill_diagonal(inside, False)
    return np.flatnonzero(~(inside & (~equal | first)).any(1))


def union_volume(low: Array, high: Array) -> float:
    """The exact volume of the union of the boxes, in any dimension.

    Sweeps the first dimension: between two consecutive corners the set of boxes met does not change, so the volume
    is the slab's width times the volume of the union of their projections.
    """
    if len(low) == 0:
        return 0.0
    if len(low) == 1:
        return float(np.prod(high[0] - low[0]))
    if low.shape[1] == 1:
        order = np.argsort(low[:, 0])
        total, reach = 0.0, -np.inf
        for i in order:
            start = max(low[i, 0], reach)
            if high[i, 0] > start:
                total += high[i, 0] - start
                reach = high[i, 0]
        return float(total)
    cuts = np.unique(np.concatenate([low[:, 0], high[:, 0]]))
    total = 0.0
    for left, right in itertools.pairwise(cuts):
        met = (low[:, 0] <= left) & (high[:, 0] >= right)
        if met.any():
            total += (right - left) * union_volume(low[met, 1:], high[met, 1:])
    return float(total)


def event_share(low: Array, high: Array, points: Array, weights: Array) -> float:
    """The share of the event weight inside the union of the boxes."""
    inside = np.zeros(len(points), dtype=bool)
    for a, b in zip(low, high, strict=True):
        inside |= ((points >= a) & (points <= b)).all(1)
    return float(weights[inside].sum() / weights.sum())


def merge_boxes(low: Array, high: Array, alpha: int) -> tuple[Array, Array]:
    """At most ``alpha`` boxes that cover all given ones, each given box inside one of them.

    Agglomerative: the pair whose minimum enclosing box adds the least volume is merged until ``alpha`` are left
    (ties: less margin, then the lower index). Many boxes are first thinned to the ones that no other contains.
    """
    if len(low) > 1:
        keep = drop_contained(low, high) if len(low) <= 4000 else np.arange(len(low))
        low, high = low[keep].copy(), high[keep].copy()
    count = len(low)
    if count <= alpha:
        return low, high
    volume = volumes(low, high)
    alive = np.ones(count, dtype=bool)
    best_cost = np.full(count, np.inf)
    best_with = np.full(count, -1)

    def renew(i: int) -> None:
        others = np.flatnonzero(alive)
        others = others[others > i]
        if len(others) == 0:
            best_cost[i], best_with[i] = np.inf, -1
            return
        a, b = np.minimum(low[i], low[others]), np.maximum(high[i], high[others])
        sides = b - a
        cost = np.prod(sides, axis=1) - volume[i] - volume[others]
        pick = np.lexsort((others, sides.sum(1), cost))[0] if np.count_nonzero(cost == cost.min()) > 1 else int(cost.argmin())
        best_cost[i], best_with[i] = cost[pick], others[pick]

    for i in range(count):
        renew(i)
    for _ in range(count - alpha):
        i = int(np.where(alive, best_cost, np.inf).argmin())
        j = int(best_with[i])
        low[i], high[i] = np.minimum(low[i], low[j]), np.maximum(high[i], high[j])
        volume[i] = np.prod(high[i] - low[i])
        alive[j] = False
        best_cost[j] = np.inf
        renew(i)
        # the merged box may now be the best partner of an earlier one, or have been the partner of a changed one
        earlier = np.flatnonzero(alive)
        earlier = earlier[earlier < i]
        if len(earlier):
            a, b = np.minimum(low[earlier], low[i]), np.maximum(high[earlier], high[i])
            cost = np.prod(b - a, axis=1) - volume[earlier] - volume[i]
            better = cost < best_cost[earlier]
            best_cost[earlier[better]], best_with[earlier[better]] = cost[better], i
        for k in np.flatnonzero(alive & ((best_with == j) | (best_with == i))):
            if k != i:
                renew(int(k))
    return low[alive], high[alive]
