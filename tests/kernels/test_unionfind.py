"""Union-find against networkx."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.kernels.unionfind import components, induced_components, keyed_components


def smallest(graph: nx.Graph) -> dict[int, int]:
    return {v: min(part) for part in nx.connected_components(graph) for v in part}


def random_edges(rng: np.random.Generator, nodes: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, nodes, edges), rng.integers(0, nodes, edges)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(0, 80))
def test_components_against_networkx(seed, nodes, edges):
    src, dst = random_edges(np.random.default_rng(seed), nodes, edges)
    graph = nx.Graph(list(zip(src.tolist(), dst.tolist())))
    graph.add_nodes_from(range(nodes))
    expected = smallest(graph)
    assert components(nodes, src, dst).tolist() == [expected[v] for v in range(nodes)]


@pytest.mark.parametrize("order", [1, -1])
def test_a_long_path(order):
    """A path in either direction is one component and takes no quadratic time."""
    src = np.arange(200_000)[::order]
    assert not components(200_001, src.copy(), src + 1).any()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 25), st.sampled_from([1, 3, 63, 64, 65, 150]), st.integers(0, 60))
def test_induced_and_keyed_against_networkx(seed, nodes, keys, edges):
    rng = np.random.default_rng(seed)
    src, dst = random_edges(rng, nodes, edges)
    node, key = np.nonzero(rng.random((nodes, keys)) < rng.random())
    again = rng.integers(0, max(len(node), 1), len(node) // 3)  # some pairs twice
    node, key = np.concatenate([node, node[again]]), np.concatenate([key, key[again]])

    has = {k: set(node[key == k].tolist()) for k in range(keys)}
    expected = {}
    by_key = []
    for k in range(keys):
        graph = nx.Graph()
        graph.add_nodes_from(has[k])
        shared = [(int(a), int(b)) for a, b in zip(src, dst) if a in has[k] and b in has[k]]
        graph.add_edges_from(shared)
        by_key += [(k, a, b) for a, b in shared]
        expected.update({(v, k): least for v, least in smallest(graph).items()})

    edge_key, keyed_src, keyed_dst = np.array(by_key, dtype=np.int64).reshape(-1, 3).T.copy()
    for found in (
        induced_components(node, key, nodes, keys, src, dst),
        keyed_components(node, key, nodes, edge_key, keyed_src, keyed_dst),
    ):
        rows = list(zip(*(column.tolist() for column in found)))
        assert len(rows) == len(expected)
        assert {(v, k): least for v, k, least in rows} == expected


def test_nothing():
    none = np.empty(0, dtype=np.int64)
    assert components(0, none, none).shape == (0,)
    for found in (induced_components(none, none, 0, 0, none, none), keyed_components(none, none, 0, none, none, none)):
        assert [column.shape for column in found] == [(0,)] * 3
