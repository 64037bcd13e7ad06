"""Where the brokers of a generated workload stand, and the tree they form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from udfs.kernels.flow import assign_sets
from udfs.kernels.latency import reach
from udfs.kernels.tree import BrokerTree

__all__ = ["one_level", "place_brokers", "tree_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_MOVES = 40


def one_level(publisher: Floats, brokers: Floats) -> BrokerTree:
    """Every broker a child of the publisher."""
    count = len(brokers)
    parent = np.concatenate([[-1], np.zeros(count, dtype=np.int64)])
    return BrokerTree(np.arange(count + 1), parent, np.vstack([publisher[None], brokers]), np.full(count, 1 / count))


def tree_of(publisher: Floats, brokers: Floats, out_degree: int) -> BrokerTree:
    """A tree that follows the network: where a node would have too many children, they are clustered, and the broker
    nearest to the centre of a cluster becomes the head of the others."""
    if len(brokers) <= out_degree:
        return one_level(publisher, brokers)
    nodes: list[Floats] = [publisher]
    parents = [-1]
    todo: list[tuple[int, Floats]] = [(0, brokers)]
    while todo:
        head, below = todo.pop(0)
        if len(below) <= out_degree:
            for broker in below:
                nodes.append(broker)
                parents.append(head)
            continue
        groups = min(out_degree, max(2, round(len(below) / (out_degree + 1)) + 1))
        centre, label = kmeans2(below, groups, minit="++", seed=np.random.default_rng(7), iter=30)
        for g in range(groups):
            members = below[label == g]
            if len(members) == 0:
                continue
            near = int(((members - centre[g]) ** 2).sum(1).argmin())
            nodes.append(members[near])
            parents.append(head)
            rest = np.delete(members, near, axis=0)
            if len(rest):
                todo.append((len(nodes) - 1, rest))
    order = np.arange(len(nodes))
    tree = BrokerTree(order, np.array(parents), np.array(nodes), np.empty(0))
    leaves = len(tree.leaves)
    return BrokerTree(order, tree.parent, tree.location, np.full(leaves, 1 / leaves))


def place_brokers(
    sample: Floats,
    sort_key: Ints,
    publisher: Floats,
    brokers: int,
    *,
    out_degree: int,
    max_delay: float,
    lbf: float,
    seed: int,
    max_latency: Floats | None = None,
) -> tuple[BrokerTree, bool]:
    """A systematic sample of subscriber locations with some jitter, then moves until the flow at ``lbf`` is met.

    While the sample cannot be placed within the delay and the load factor, the least loaded leaves move next to
    subscribers that were left over. Returns the tree and whether the flow was met.
    """
    rng = np.random.default_rng([seed, 404])
    by_city = np.argsort(sort_key, kind="stable")
    chosen = by_city[((np.arange(brokers) + rng.uniform(0, 1)) / brokers * len(sample)).astype(int)]
    spread = sample.std(0).mean() * 0.01
    spot = sample[chosen] + rng.normal(0, spread, (brokers, sample.shape[1]))
    limit = np.full(len(sample), np.nan) if max_latency is None else max_latency
    for _ in range(MOST_MOVES):
        tree = tree_of(publisher, spot, out_degree) if out_degree else one_level(publisher, spot)
        within = reach(sample, limit, tree, max_delay, last_hop=False)
        sets, group, counts = np.unique(within.allowed, axis=0, return_inverse=True, return_counts=True)
        flow, value, _ = assign_sets(sets, counts, BrokerTree.capacities(tree.share, len(sample), lbf))
        missing = len(sample) - value
        if missing == 0:
            return tree, True
        left = counts - flow.sum(1)
        unmet = np.flatnonzero(left[group.ravel()] > 0)
        moves = int(np.clip(np.ceil(missing / (len(sample) / len(tree.leaves))), 1, max(1, brokers // 10)))
        idle = tree.location[tree.leaves[np.argsort(flow.sum(0) / tree.share, kind="stable")[:moves]]]
        for where in idle:
            index = int(((spot - where) ** 2).sum(1).argmin())
            spot[index] = sample[rng.choice(unmet)] + rng.normal(0, spread, sample.shape[1])
    return tree, False
