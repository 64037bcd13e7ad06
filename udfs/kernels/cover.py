"""The covering test: which targets are in time for a subscriber and hold a rectangle around its subscription."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled

__all__ = ["any_cover", "cover_sets", "holding_box"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def cover_sets(allowed: NDArray[np.uint8], low: Floats, high: Floats, target: Ints, box_low: Floats, box_high: Floats) -> NDArray[np.uint8]:
    """The bits of ``allowed`` (as packed by ``pack_sets``) whose target has a box around the row."""
    _check_targets(allowed, target)
    return _cover_sets(np.ascontiguousarray(allowed), low, high, target.astype(np.int64), np.ascontiguousarray(box_low), np.ascontiguousarray(box_high))


def any_cover(allowed: NDArray[np.uint8], low: Floats, high: Floats, target: Ints, box_low: Floats, box_high: Floats) -> NDArray[np.bool_]:
    """Whether ``cover_sets`` would leave the row a target; much faster, as most rows are in one of the first, large boxes."""
    _check_targets(allowed, target)
    order = np.argsort(-np.prod(box_high - box_low, axis=1), kind="stable")
    return _any_cover(np.ascontiguousarray(allowed), low, high, target[order].astype(np.int64), box_low[order], box_high[order])


def holding_box(leaf: Ints, low: Floats, high: Floats, target: Ints, box_low: Floats, box_high: Floats) -> Ints:
    """The smallest box of the row's leaf that holds the row (ties: the first), or -1."""
    order = np.lexsort((np.prod(box_high - box_low, axis=1), target))
    ends = np.searchsorted(target[order], np.arange(int(max(leaf.max(initial=0), target.max(initial=0))) + 2))
    return _holding_box(leaf, low, high, order, ends, np.ascontiguousarray(box_low), np.ascontiguousarray(box_high))


def _check_targets(allowed: NDArray[np.uint8], target: Ints) -> None:
    if len(target) and target.max() >= 8 * allowed.shape[1]:
        raise ValueError(f"target {target.max()} is beyond the {8 * allowed.shape[1]} bits of a set")


@compiled
def _around(low, high, j, box_low, box_high, b):  # type: ignore[no-untyped-def]
    """Whether box b holds row j."""
    inside = True
    for k in range(low.shape[1]):
        inside = inside and low[j, k] >= box_low[b, k] and high[j, k] <= box_high[b, k]
    return inside


@compiled
def _cover_sets(allowed, low, high, target, box_low, box_high):  # type: ignore[no-untyped-def]
    out = np.zeros_like(allowed)
    for j in range(low.shape[0]):
        for b in range(target.shape[0]):
            byte, bit = target[b] >> 3, np.uint8(1 << (target[b] & 7))
            if allowed[j, byte] & bit and not out[j, byte] & bit and _around(low, high, j, box_low, box_high, b):
                out[j, byte] |= bit
    return out


@compiled
def _any_cover(allowed, low, high, target, box_low, box_high):  # type: ignore[no-untyped-def]
    out = np.zeros(low.shape[0], dtype=np.bool_)
    for j in range(low.shape[0]):
        for b in range(target.shape[0]):
            if allowed[j, target[b] >> 3] & np.uint8(1 << (target[b] & 7)) and _around(low, high, j, box_low, box_high, b):
                out[j] = True
                break
    return out


@compiled
def _holding_box(leaf, low, high, order, ends, box_low, box_high):  # type: ignore[no-untyped-def]
    out = np.full(low.shape[0], -1, dtype=np.int64)
    for j in range(low.shape[0]):
        for at in range(ends[leaf[j]], ends[leaf[j] + 1]):
            if _around(low, high, j, box_low, box_high, order[at]):
                out[j] = order[at]
                break
    return out
