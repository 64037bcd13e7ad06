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
    if len(target) and target.max() >= 8 * allowed.shape[1]:
        raise ValueError(f"target {target.max()} is beyond the {8 * allowed.shape[1]} bits of a set")
    return _cover_sets(np.ascontiguousarray(allowed), low, high, target.astype(np.int64), np.ascontiguousarray(box_low), np.ascontiguousarray(box_high))


def any_cover(allowed: NDArray[np.uint8], low: Floats, high: Floats, target: Ints, box_low: Floats, box_high: Floats) -> NDArray[np.bool_]:
    """Whether ``cover_sets`` would leave the row a target; much faster, as most rows are in one of the first, large boxes."""
    order = np.argsort(-np.prod(box_high - box_low, axis=1), kind="stable")
    return _any_cover(np.ascontiguousarray(allowed), low, high, target[order].astype(np.int64), box_low[order], box_high[order])


def holding_box(leaf: Ints, low: Floats, high: Floats, target: Ints, box_low: Floats, box_high: Floats) -> Ints:
    """The smallest box of the row's leaf that holds the row (ties: the first), or -1."""
    order = np.lexsort((np.prod(box_high - box_low, axis=1), target))
    ends = np.searchsorted(target[order], np.arange(int(max(leaf.max(initial=0), target.max(initial=0))) + 2))
    return _holding_box(leaf, low, high, order, ends, np.ascontiguousarray(box_low), np.ascontiguousarray(box_high))


@compiled
def _cover_sets(allowed, low, high, target, box_low, box_high):  # type: ignore[no-untyped-def]
    rows, dims = low.shape
    out = np.zeros_like(allowed)
    for j in range(rows):
        for b in range(target.shape[0]):
            byte, bit = target[b] >> 3, np.uint8(1 << (target[b] & 7))
            if not allowed[j, byte] & bit or out[j, byte] & bit:
                continue
            inside = True
            for k in range(dims):
                if low[j, k] < box_low[b, k] or high[j, k] > box_high[b, k]:
                    inside = False
                    break
            if inside:
                out[j, byte] |= bit
    return out


@compiled
def _any_cover(allowed, low, high, target, box_low, box_high):  # type: ignore[no-untyped-def]
    rows, dims = low.shape
    out = np.zeros(rows, dtype=np.bool_)
    for j in range(rows):
        for b in range(target.shape[0]):
            if not allowed[j, target[b] >> 3] & np.uint8(1 << (target[b] & 7)):
                continue
            inside = True
            for k in range(dims):
                if low[j, k] < box_low[b, k] or high[j, k] > box_high[b, k]:
                    inside = False
                    break
            if inside:
                out[j] = True
                break
    return out


@compiled
def _holding_box(leaf, low, high, order, ends, box_low, box_high):  # type: ignore[no-untyped-def]
    rows, dims = low.shape
    out = np.full(rows, -1, dtype=np.int64)
    for j in range(rows):
        for at in range(ends[leaf[j]], ends[leaf[j] + 1]):
            b = order[at]
            inside = True
            for k in range(dims):
                if low[j, k] < box_low[b, k] or high[j, k] > box_high[b, k]:
                    inside = False
                    break
            if inside:
                out[j] = b
                break
    return out
