"""Load balance as a flow: sets of interchangeable subscribers on one side, leaf brokers on the other.

Subscribers with the same candidate set are interchangeable, so a flow of set sizes through sets x brokers is the
exact problem, a few thousand times smaller than the one on subscribers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from udfs.kernels.tree import BrokerTree

__all__ = ["Balance", "assign_sets", "best_balance"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Balance:
    """A best balanced distribution of sets to leaves and why no better one exists."""

    flow: NDArray[np.int64]
    """(sets, leaves) subscribers of each set given to each leaf."""
    lbf: float
    unmet: int
    """Subscribers with an empty candidate set: no flow can place them."""
    tight_leaves: Ints
    """Leaves of the minimum cut one step below ``lbf``: together they must take more than that step allows."""


def assign_sets(allowed: NDArray[np.bool_], counts: Ints, capacity: Ints) -> tuple[Ints, int, NDArray[np.bool_]]:
    """Maximum flow of ``counts`` into ``capacity``: (flow by set and leaf, subscribers placed, leaves on the sink side of the cut)."""
    sets, leaves = allowed.shape
    source, sink = sets + leaves, sets + leaves + 1
    row, column = np.nonzero(allowed)
    tail = np.concatenate([np.full(sets, source), row, np.arange(sets, sets + leaves)])
    head = np.concatenate([np.arange(sets), column + sets, np.full(leaves, sink)])
    limit = np.concatenate([counts, counts[row], np.minimum(capacity, np.iinfo(np.int32).max)]).astype(np.int32)
    graph = csr_array((limit, (tail, head)), shape=(sink + 1, sink + 1))
    result = maximum_flow(graph, source, sink)
    flow = np.zeros((sets, leaves), dtype=np.int64)
    flow[row, column] = np.asarray(result.flow[row, column + sets]).ravel()
    reached = _residual_reach(flow, allowed, counts)
    return flow, int(result.flow_value), reached


def _residual_reach(flow: Ints, allowed: NDArray[np.bool_], counts: Ints) -> NDArray[np.bool_]:
    """Leaves reachable from unplaced subscribers in the residual graph: the full leaves that block them."""
    open_sets = flow.sum(1) < counts
    leaves = np.zeros(flow.shape[1], dtype=bool)
    while True:
        grown = leaves | allowed[open_sets].any(0)
        back = (flow[:, grown] > 0).any(1) | open_sets
        if (grown == leaves).all() and (back == open_sets).all():
            return leaves
        leaves, open_sets = grown, back


def best_balance(allowed: NDArray[np.bool_], counts: Ints, share: Floats) -> Balance:
    """The distribution with the least possible load balance factor, proved by a flow that fails one step below it.

    Bisection brings the factor close; then the capacity of every leaf is set to the largest load strictly below the
    factor reached, until that flow fails: the factor before it is the optimum, exactly.
    """
    reachable = allowed.any(1)
    total = int(counts.sum())
    unmet = int(counts[~reachable].sum())
    placed = total - unmet
    flow = np.zeros(allowed.shape, dtype=np.int64)
    if placed == 0 or not reachable.any():
        return Balance(flow, 0.0, unmet, np.empty(0, dtype=np.int64))
    some, sizes = allowed[reachable], counts[reachable]
    ideal = share * total

    def factor(chosen: Ints) -> float:
        load = chosen.sum(0)
        return float((load[load > 0] / ideal[load > 0]).max())

    low, high = 0.0, 1.0
    best: Ints | None = None
    while best is None:
        chosen, value, _ = assign_sets(some, sizes, BrokerTree.capacities(share, total, high))
        if value == placed:
            best = chosen
        else:
            low, high = high, high * 1.5
    while high - low > 1.0 / placed and (high - low) > 1e-3 * high:
        middle = (low + high) / 2
        chosen, value, _ = assign_sets(some, sizes, BrokerTree.capacities(share, total, middle))
        if value == placed:
            best, high = chosen, min(middle, factor(chosen))
        else:
            low = middle
    while True:
        below = np.ceil(factor(best) * ideal * (1 - 1e-12) - 1e-9).astype(np.int64) - 1
        chosen, value, blocking = assign_sets(some, sizes, np.maximum(below, 0))
        if value < placed:
            break
        best = chosen
    flow[reachable] = best
    return Balance(flow, factor(best), unmet, np.flatnonzero(blocking))
