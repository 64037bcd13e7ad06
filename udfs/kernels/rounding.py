"""Randomised rounding of a fractional filter assignment (section IV-A.1 of Yu, Agarwal, Yang, ICDE).

A rectangle with share y joins the broker's filter with probability 1 - (1 - y)^L. The paper takes L = 2 ln |S_a| and rounds
again until every row is covered. With the uniforms fixed, the chosen rectangles only grow with L, so the least L that covers
all rows and lets a flow balance them can be searched; it chooses far fewer rectangles.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.flow import assign_sets
from udfs.kernels.hashing import uniforms as hashed_uniforms

__all__ = ["cover_matrix", "round_filters", "round_until_covered", "smallest_exponent"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
STREAM = 7_000
UNITS = 1_000_000
"""Fractional weights become whole numbers of about this many units in all, for the flow."""


def round_filters(y: Floats, exponent: float, uniforms: Floats) -> Bools:
    """(brokers, rectangles): chosen with probability 1 - (1 - y)^exponent; monotone in the exponent."""
    return uniforms < _probability(y, exponent)


def _probability(y: Floats, exponent: float) -> Floats:
    share = np.clip(y, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        return -np.expm1(exponent * np.log1p(-share))  # exact for tiny shares, 1 for a share of 1


def cover_matrix(chosen: Bools, allowed: Bools, inside: Bools) -> Bools:
    """(rows, brokers): the broker may serve the row and one of its chosen rectangles contains it."""
    used = chosen.any(0)  # few rectangles are chosen anywhere
    return allowed & ((inside[:, used].astype(np.float32) @ chosen[:, used].T.astype(np.float32)) > 0)


def smallest_exponent(
    y: Floats, uniforms: Floats, allowed: Bools, inside: Bools, weight: Floats, capacity: Floats, most: float, *, tolerance: float = 0.02
) -> tuple[float, Bools]:
    """The least exponent up to ``most``, to a relative ``tolerance``, whose filters cover every row and can carry the weights.

    Returns (infinity, the filters at ``most``) where even ``most`` fails.
    """
    if not most > 0:
        raise ValueError(f"most={most} must be positive")

    def works(exponent: float) -> bool:
        return _balanced(cover_matrix(round_filters(y, exponent, uniforms), allowed, inside), weight, capacity)

    if not works(most):
        return float("inf"), round_filters(y, most, uniforms)
    low, high = most / 1024.0, most
    if works(low):
        high = low
    while high > low * (1.0 + tolerance):
        middle = float(np.sqrt(low * high))
        if works(middle):
            high = middle
        else:
            low = middle
    return high, round_filters(y, high, uniforms)


def _balanced(cover: Bools, weight: Floats, capacity: Floats) -> bool:
    """Whether every row has a broker and the weights flow into the capacities."""
    if not cover.any(1).all():
        return False
    loaded = weight > 0
    if not loaded.any():
        return True
    packed = np.packbits(cover[loaded], axis=1)
    sets, group = np.unique(packed, axis=0, return_inverse=True)
    load = np.bincount(group.ravel(), weights=weight[loaded], minlength=len(sets))
    if (load == np.round(load)).all():
        counts, room = load.astype(np.int64), np.floor(capacity + 1e-9).astype(np.int64)
    else:  # loads up and capacities down: what passes holds
        unit = load.sum() / UNITS
        counts, room = np.ceil(load / unit).astype(np.int64), np.floor(capacity / unit).astype(np.int64)
    room = np.maximum(room, 0)
    if counts.sum() > room.sum():
        return False
    members = np.unpackbits(sets, axis=1, count=cover.shape[1]).astype(bool)
    return assign_sets(members, counts, room)[1] == int(counts.sum())


def round_until_covered(y: Floats, exponent: float, allowed: Bools, inside: Bools, seed: int, tries: int = 20) -> Bools | None:
    """LPRelax's rounding: anew with other uniforms until every row is covered; None after ``tries``."""
    ids = np.arange(y.size)
    for attempt in range(tries):
        chosen = round_filters(y, exponent, hashed_uniforms(seed, STREAM + attempt, ids).reshape(y.shape))
        if cover_matrix(chosen, allowed, inside).any(1).all():
            return chosen
    return None
