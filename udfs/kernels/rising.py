"""Subscription assignment (section IV-B of Yu, Agarwal, Yang, ICDE) among the children of one broker, on sets of interchangeable subscribers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.flow import assign_sets
from udfs.kernels.siblings import child_capacities
from udfs.kernels.tree import BrokerTree

__all__ = ["rising_flow", "spill"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
PARTS = 8
"""A set beyond all room is dealt out in about so many parts, each to the child that is then the least full."""


def _room(tree: BrokerTree, node: int, rows: int, total: int, lbf: float) -> Ints:
    """Whole subscribers each child may take; robust against 0.9999999 of a place."""
    return np.floor(child_capacities(tree, node, rows, total, lbf) * (1 + 1e-12) + 1e-9).astype(np.int64)


def rising_flow(tree: BrokerTree, node: int, rows: int, total: int, covers: Bools, counts: Ints, betas: list[float]) -> tuple[Ints, float, int]:
    """(flow by set and child, load factor, subscribers without a place) at the first of the rising ``betas`` that places everyone.

    ``rows`` of ``total`` subscribers have reached ``node``. A flow that fails at a factor fails at every lower one, so the
    first is found by halving; where the last fails, its flow is returned.
    """

    def attempt(beta: float) -> tuple[Ints, int]:
        flow, placed, _ = assign_sets(covers, counts, _room(tree, node, rows, total, beta))
        return flow, int(counts.sum()) - placed

    low, high = 0, len(betas) - 1
    best, left = attempt(betas[high])
    if left:
        return best, betas[high], left
    while low < high:
        middle = (low + high) // 2
        flow, left = attempt(betas[middle])
        if left:
            low = middle + 1
        else:
            best, high = flow, middle
    return best, betas[high], 0


def spill(tree: BrokerTree, node: int, rows: int, total: int, allowed: Bools, counts: Ints, beta: float) -> Ints:
    """A place for everyone: by a flow at ``beta`` as far as it goes, those it leaves out at the least full child allowed."""
    room = _room(tree, node, rows, total, beta)
    flow, _, _ = assign_sets(allowed, counts, room)
    load = flow.sum(0)
    for s in np.flatnonzero(flow.sum(1) < counts):
        left, children = int(counts[s] - flow[s].sum()), np.flatnonzero(allowed[s])
        part = -(-left // PARTS)
        while left > 0:
            child = children[np.argmin(load[children] / np.maximum(room[children], 1))]
            given = min(part, left)
            flow[s, child] += given
            load[child] += given
            left -= given
    return flow
