"""Unions of closed boxes: is a box inside one, and how large is it? Exact, and apart from the planners' kernels."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise

import numpy as np

__all__ = ["covered", "slab_volume", "union_volume"]

INCLUSION_EXCLUSION_LIMIT = 12


def covered(low: np.ndarray, high: np.ndarray, boxes: Iterable[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Is the closed box inside the union of closed boxes? Exact, in any dimension, for zero widths too.

    A box whose intersection with [low, high] is flat in a direction where [low, high] is not cannot help (the others
    are closed and what it adds is nowhere dense), so it is dropped. If one of the rest contains [low, high], it is
    covered; else some face of the rest lies strictly inside, and the two halves are asked in turn.
    """
    wide = high > low
    useful = []
    for a, b in boxes:
        a, b = np.maximum(a, low), np.minimum(b, high)
        if (a <= b).all() and (b > a)[wide].all():
            if (a == low).all() and (b == high).all():
                return True
            useful.append((a, b))
    if not useful:
        return False
    a, b = max(useful, key=lambda pair: float(np.prod((pair[1] - pair[0])[wide])))
    axis = int(np.argmax((a > low) | (b < high)))
    cut = a[axis] if a[axis] > low[axis] else b[axis]
    left, right = high.copy(), low.copy()
    left[axis] = right[axis] = cut
    return covered(low, left, useful) and covered(right, high, useful)


def union_volume(lows: np.ndarray, highs: np.ndarray) -> float:
    """Volume of a union of boxes: inclusion-exclusion for a few, slabs between the coordinates for more."""
    if len(lows) <= INCLUSION_EXCLUSION_LIMIT:
        total = 0.0
        for size in range(1, len(lows) + 1):
            for chosen in combinations(range(len(lows)), size):
                widths = highs[list(chosen)].min(axis=0) - lows[list(chosen)].max(axis=0)
                total += (-1) ** (size + 1) * float(np.prod(np.maximum(widths, 0.0)))
        return total
    return slab_volume(lows, highs)


def slab_volume(lows: np.ndarray, highs: np.ndarray) -> float:
    if len(lows) == 0:
        return 0.0
    if len(lows) == 1 or lows.shape[1] == 0:
        return float(np.prod(highs[0] - lows[0]))
    cuts = np.unique(np.concatenate([lows[:, 0], highs[:, 0]]))
    total, known = 0.0, {}
    for left, right in pairwise(cuts):
        active = (lows[:, 0] <= left) & (highs[:, 0] >= right)
        key = active.tobytes()
        if key not in known:
            known[key] = slab_volume(lows[active, 1:], highs[active, 1:]) if active.any() else 0.0
        total += (right - left) * known[key]
    return float(total)
