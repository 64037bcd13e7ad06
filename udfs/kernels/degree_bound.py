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
BLOCK_CELLS = 4_000_000
MOST_DEGREE = 256


def degree_bound(interests: Interests) -> int:
    """The bound over all topics of ``interests``; time grows with the sum of n_t squared."""
    sizes = np.bincount(interests.topic, minlength=interests.topics)
    if sizes.max(initial=0) < 2:
        return 0
    best = 2 if sizes.max() > 2 else 1  # a tree of three nodes or more has a node of degree two
    dense = len(interests.topic) * 20 > interests.nodes * interests.topics
    return max(best, *(_bound(interests, sizes, exponent, dense) for exponent in EXPONENTS))


def _bound(interests: Interests, sizes: np.ndarray, exponent: float, dense: bool) -> int:
    weight = np.maximum(sizes, 1).astype(np.float64) ** -exponent
    n, most = interests.nodes, min(MOST_DEGREE, interests.nodes - 1)
    needed = 2.0 * float((weight * np.maximum(sizes - 1, 0)).sum())
    wanted = sparse.csr_matrix((np.ones(len(interests.topic), dtype=np.float32), interests.topic, interests.start), shape=(n, interests.topics))
    weighted = wanted.multiply(weight[None, :].astype(np.float32)).tocsr()
    other = wanted.toarray().T if dense else wanted.T.tocsc()
    served = np.zeros(most)
    rows = max(1, BLOCK_CELLS // n)
    for begin in range(0, n, rows):
        block = weighted[begin : begin + rows]
        shared = block.toarray() @ other if dense else (block @ other).toarray()
        shared[np.arange(len(shared)), begin + np.arange(len(shared))] = 0.0
        largest = -np.sort(-np.partition(shared, n - most, axis=1)[:, n - most :], axis=1)
        served += np.cumsum(largest.sum(0, dtype=np.float64))
    enough = np.flatnonzero(served * (1 + 1e-6) >= needed)
    return int(enough[0]) + 1 if len(enough) else most + 1
