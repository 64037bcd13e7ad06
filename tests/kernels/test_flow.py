"""The flow on sets against a linear program on subscribers."""

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.kernels.flow import assign_sets, best_balance


def brute_best(allowed, counts, share):
    """The least factor by trying every possible one with networkx' maximum flow on single subscribers."""
    total = counts.sum()
    factors = sorted({load / (s * total) for s in share for load in range(1, total + 1)})
    for factor in factors:
        graph = nx.DiGraph()
        for s, row in enumerate(allowed):
            for k in range(counts[s]):
                graph.add_edge("source", (s, k), capacity=1)
                for i in np.flatnonzero(row):
                    graph.add_edge((s, k), f"b{i}", capacity=1)
        for i, part in enumerate(share):
            graph.add_edge(f"b{i}", "sink", capacity=int(np.floor(factor * part * total + 1e-9)))
        if nx.maximum_flow_value(graph, "source", "sink") == total:
            return factor
    return None


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_best_balance_is_the_optimum(seed):
    rng = np.random.default_rng(seed)
    sets, leaves = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    allowed = rng.random((sets, leaves)) < 0.6
    allowed[np.arange(sets), rng.integers(0, leaves, sets)] = True
    counts = rng.integers(1, 6, sets)
    share = rng.integers(1, 4, leaves).astype(float)
    share /= share.sum()
    found = best_balance(allowed, counts, share)
    assert np.isclose(found.lbf, brute_best(allowed, counts, share))
    assert (found.flow.sum(1) == counts).all() and not found.flow[~allowed].any()


def test_the_cut_names_the_leaves_that_must_take_more():
    allowed = np.array([[True, False, False], [True, True, True]])
    found = best_balance(allowed, np.array([8, 4]), np.full(3, 1 / 3))
    assert found.lbf == 2.0 and found.tight_leaves.tolist() == [0]


def test_sets_without_a_leaf_are_unmet():
    found = best_balance(np.array([[False, False], [True, True]]), np.array([3, 4]), np.full(2, 0.5))
    assert found.unmet == 3 and found.flow.sum() == 4


def test_assign_sets_places_what_fits():
    flow, placed, _ = assign_sets(np.array([[True]]), np.array([5]), np.array([3]))
    assert placed == 3 and flow.tolist() == [[3]]
