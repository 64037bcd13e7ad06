"""Union-find on arrays: components of one graph, of many induced subgraphs at once, of many graphs side by side.

The larger root always hangs below the smaller, so that the root of a component is its smallest position and one pass
upwards flattens every tree. Paths are halved on the way, so a find costs O(log n) amortised.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled

__all__ = ["components", "induced_components", "keyed_components"]

Ints = NDArray[np.int64]
WORD = 64  # keys a node's mask holds


def components(nodes: int, src: Ints, dst: Ints) -> Ints:
    """The smallest index in the component of each of ``nodes`` nodes, under the edges ``src[i] - dst[i]``."""
    return _components(nodes, src, dst)


def induced_components(node: Ints, key: Ints, nodes: int, keys: int, src: Ints, dst: Ints) -> tuple[Ints, Ints, Ints]:
    """For every key, the components of the graph induced by the nodes that have it: (node, key, smallest node), no pair twice.

    A node's keys are bits of a mask, 64 keys at a time: the keys an edge belongs to are an ``and``, and the place of a
    pair in the union-find array is the node's offset plus the number of lower bits. Memory is O(pairs + nodes), time
    O(pairs + edges + shared keys of the edges) for every 64 keys.
    """
    parts = [_induced(node, key, first, nodes, src, dst) for first in range(0, keys, WORD)]
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return none, none, none
    found_node, found_key, label = (np.concatenate(column) for column in zip(*parts))
    return found_node, found_key, label


def keyed_components(node: Ints, key: Ints, nodes: int, edge_key: Ints, src: Ints, dst: Ints) -> tuple[Ints, Ints, Ints]:
    """The same result where every edge names the one key it counts for; both its ends must have that key."""
    pairs = np.unique(key * nodes + node)
    labels = _components(len(pairs), np.searchsorted(pairs, edge_key * nodes + src), np.searchsorted(pairs, edge_key * nodes + dst))
    found_key, found_node = np.divmod(pairs, max(nodes, 1))
    return found_node, found_key, found_node[labels]


@compiled
def _find(parent, i):
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@compiled
def _union(parent, a, b):
    a, b = _find(parent, a), _find(parent, b)
    if a < b:
        parent[b] = a
    else:
        parent[a] = b


@compiled
def _components(nodes, src, dst):
    parent = np.arange(nodes)
    for i in range(len(src)):
        _union(parent, src[i], dst[i])
    for i in range(nodes):
        parent[i] = parent[parent[i]]
    return parent


@compiled
def _ones(word):
    """The number of bits set in a 64-bit word."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def _induced(node, key, first, nodes, src, dst):
    one = np.uint64(1)
    mask = np.zeros(nodes, dtype=np.uint64)
    for i in range(len(node)):
        if first <= key[i] < first + 64:
            mask[node[i]] |= one << np.uint64(key[i] - first)
    offset = np.empty(nodes, dtype=np.int64)
    pairs = 0
    for v in range(nodes):
        offset[v] = pairs
        pairs += _ones(mask[v])
    parent = np.arange(pairs)
    for i in range(len(src)):
        shared = mask[src[i]] & mask[dst[i]]
        while shared:
            lower = (shared & (~shared + one)) - one  # the bits below the lowest one set
            _union(parent, offset[src[i]] + _ones(mask[src[i]] & lower), offset[dst[i]] + _ones(mask[dst[i]] & lower))
            shared &= shared - one
    found_node, found_key, label = np.empty(pairs, dtype=np.int64), np.empty(pairs, dtype=np.int64), np.empty(pairs, dtype=np.int64)
    i = 0
    for v in range(nodes):
        left = mask[v]
        while left:
            found_node[i] = v
            found_key[i] = first + _ones((left & (~left + one)) - one)
            parent[i] = parent[parent[i]]
            label[i] = found_node[parent[i]]
            left &= left - one
            i += 1
    return found_node, found_key, label
