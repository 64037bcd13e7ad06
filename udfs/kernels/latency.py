"""Latency of every subscriber to every leaf, reduced at once to what a planner needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled
from udfs.kernels.tree import BrokerTree

__all__ = ["Reach", "latency_to", "nearest_open", "pack_sets", "reach", "unpack_sets"]

Floats = NDArray[np.float64]
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Reach:
    """What a batch of subscribers can reach: allowed leaves, the limit, the shortest latency and the leaf that gives it."""

    allowed: NDArray[np.bool_]
    limit: Floats
    shortest: Floats
    fastest: NDArray[np.int64]


def reach(location: Floats, max_latency: Floats, tree: BrokerTree, max_delay: float, last_hop: bool) -> Reach:
    """Candidate leaves of each subscriber: latency through the tree (or of the last hop) within its limit.

    A NaN in ``max_latency`` stands for (1 + ``max_delay``) times the shortest latency.
    """
    leaves = tree.leaves
    base = np.zeros(len(leaves)) if last_hop else tree.path_latency[leaves]
    return Reach(*_reach(location, max_latency, np.ascontiguousarray(tree.location[leaves]), base, max_delay))


@compiled
def _reach(location, max_latency, leaf_location, base, max_delay):  # type: ignore[no-untyped-def]
    rows, leaves, dims = location.shape[0], leaf_location.shape[0], location.shape[1]
    allowed = np.zeros((rows, leaves), dtype=np.bool_)
    limit, shortest = np.empty(rows), np.empty(rows)
    fastest = np.empty(rows, dtype=np.int64)
    latency = np.empty(leaves)
    for j in range(rows):
        least, where = np.inf, -1
        for i in range(leaves):
            squared = 0.0
            for k in range(dims):
                gap = location[j, k] - leaf_location[i, k]
                squared += gap * gap
            latency[i] = base[i] + np.sqrt(squared)
            if latency[i] < least:
                least, where = latency[i], i
        shortest[j], fastest[j] = least, where
        limit[j] = (1.0 + max_delay) * least if np.isnan(max_latency[j]) else max_latency[j]
        bound = limit[j] * (1.0 + TOLERANCE) + TOLERANCE
        for i in range(leaves):
            allowed[j, i] = latency[i] <= bound
    return allowed, limit, shortest, fastest


@compiled
def latency_to(location, leaf_of_row, leaf_location, base):  # type: ignore[no-untyped-def]
    """Latency of each row to the leaf it was given."""
    rows, dims = location.shape
    out = np.empty(rows)
    for j in range(rows):
        squared = 0.0
        for k in range(dims):
            gap = location[j, k] - leaf_location[leaf_of_row[j], k]
            squared += gap * gap
        out[j] = base[leaf_of_row[j]] + np.sqrt(squared)
    return out


@compiled
def nearest_open(location, ids, leaf_location, last_admitted):  # type: ignore[no-untyped-def]
    """The nearest leaf (last hop) that still admits the row: its id is at most the leaf's ``last_admitted`` id.

    -1 where no leaf admits it. Ties go to the lower leaf.
    """
    rows, dims = location.shape
    out = np.empty(rows, dtype=np.int64)
    for j in range(rows):
        least, where = np.inf, -1
        for i in range(leaf_location.shape[0]):
            if ids[j] > last_admitted[i]:
                continue
            squared = 0.0
            for k in range(dims):
                gap = location[j, k] - leaf_location[i, k]
                squared += gap * gap
            if squared < least:
                least, where = squared, i
        out[j] = where
    return out


def pack_sets(allowed: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """A row of booleans as bits, lowest leaf first: the form of a candidate set in a DataFrame."""
    return np.packbits(allowed, axis=1, bitorder="little")


def unpack_sets(packed: NDArray[np.uint8], leaves: int) -> NDArray[np.bool_]:
    """The inverse of ``pack_sets``."""
    return np.unpackbits(packed, axis=1, count=leaves, bitorder="little").astype(bool)
