"""A lower bound on the maximum degree of any topic-connected overlay.

A topic t with n_t nodes needs n_t - 1 links. With weights w_t >= 0, a link of v and w serves at most w(T_v and T_w), the weight of the
topics both want. If no node has more than D links, the links of v serve at most the sum of its D largest such weights.
So D is at least the smallest one with  sum over v of (v's D largest)  >=  2 sum over t of w_t (n_t - 1).
Any weights give a bound, zero too: topics that too many nodes want may be left out. The best of w_t = n_t^-g is taken.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from udfs.kernels.merge import Interests

__all__ = ["degree_bound"]

EXPONENTS = (0.0, 0.5, 1.0, 2.0)
BLOCK_PAIRS = 4_000_000
"""Pairs of nodes with a common topic that are held at once, about."""
MOST_DEGREE = 64


def degree_bound(interests: Interests) -> int:
    """The bound over all topics of ``interests``; time grows with the sum of n_t squared."""
    sizes = np.bincount(interests.topic, minlength=interests.topics)
    if sizes.max(initial=0) < 2:
        return 0
    wanted = sparse.csr_matrix(
        (np.ones(len(interests.topic), dtype=np.float32), interests.topic, interests.start), shape=(interests.nodes, interests.topics)
    )
    weights = [np.maximum(sizes, 1).astype(np.float64) ** -exponent for exponent in EXPONENTS]
    served = np.zeros((len(weights), min(MOST_DEGREE, interests.nodes - 1)))
    pairs = np.add.reduceat(np.append(sizes[interests.topic], 0), interests.start[:-1]) * (np.diff(interests.start) > 0)
    dense = None
    if pairs.sum() > interests.nodes**2 / 4:  # most nodes share something: whole rows at once
        dense, pairs = wanted.toarray().T, np.full(interests.nodes, interests.nodes)
    ends = np.searchsorted(np.cumsum(pairs), np.arange(BLOCK_PAIRS, pairs.sum() + BLOCK_PAIRS, BLOCK_PAIRS), side="right")
    begin = 0
    for end in np.unique(np.minimum(np.maximum(ends, 1), interests.nodes)):
        if end > begin:
            for i, weight in enumerate(weights):
                served[i] += _served(wanted, weight.astype(np.float32), begin, int(end), served.shape[1], dense)
            begin = int(end)
    best = 2 if sizes.max() > 2 else 1  # a tree of three nodes or more has a node of degree two
    for weight, most in zip(weights, served, strict=True):
        needed = 2.0 * float((weight * np.maximum(sizes - 1, 0)).sum())
        enough = np.flatnonzero(most * (1 + 1e-5) >= needed)
        best = max(best, int(enough[0]) + 1 if len(enough) else len(most) + 1)
    return best


def _served(wanted: sparse.csr_matrix, weight: np.ndarray, begin: int, end: int, most: int, dense: np.ndarray | None) -> np.ndarray:
    """For D = 1, 2, ...: the sum over the nodes from ``begin`` to ``end`` of the D largest weights that they share with others."""
    weighted, n = wanted[begin:end].multiply(weight[None, :]).tocsr(), wanted.shape[0]
    if dense is not None:
        full = weighted.toarray() @ dense
        full[np.arange(end - begin), np.arange(begin, end)] = 0.0
        largest = -np.sort(-np.partition(full, n - most, axis=1)[:, n - most :], axis=1)
        return np.cumsum(largest.sum(0, dtype=np.float64))
    shared = (weighted @ wanted.T).tocoo()
    other = shared.col != shared.row + begin
    row, value = shared.row[other], shared.data[other]
    order = np.lexsort((-value, row))
    row, value = row[order], value[order]
    rank = np.arange(len(row)) - np.searchsorted(row, np.arange(end - begin))[row]
    kept = rank < most
    return np.cumsum(np.bincount(rank[kept], weights=value[kept], minlength=most))
