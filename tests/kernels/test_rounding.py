"""Rounding: probabilities, monotonicity, and the least exponent against a scan."""

import networkx as nx
import numpy as np
import pytest

from udfs.kernels.hashing import uniforms
from udfs.kernels.rounding import cover_matrix, round_filters, round_until_covered, smallest_exponent


def draws(seed, shape):
    return uniforms(seed, 1, np.arange(int(np.prod(shape)))).reshape(shape)


def case(seed, rows=40, brokers=4, rectangles=12):
    rng = np.random.default_rng(seed)
    allowed = rng.random((rows, brokers)) < 0.7
    allowed[np.arange(rows), rng.integers(0, brokers, rows)] = True
    inside = rng.random((rows, rectangles)) < 0.3
    inside[:, 0] = True
    return rng.random((brokers, rectangles)) * 0.3, allowed, inside, (rng.random(rows) < 0.7).astype(float)


def feasible(chosen, allowed, inside, weight, capacity):
    """Every row covered, and the loads placed, by networkx on single rows."""
    graph = nx.DiGraph()
    graph.add_nodes_from(["source", "sink"])
    for j in range(len(weight)):
        brokers = [i for i in range(len(capacity)) if allowed[j, i] and (chosen[i] & inside[j]).any()]
        if not brokers:
            return False
        graph.add_edge("source", j, capacity=weight[j])
        for i in brokers:
            graph.add_edge(j, f"b{i}", capacity=weight[j])
    for i, room in enumerate(capacity):
        graph.add_edge(f"b{i}", "sink", capacity=np.floor(room))
    return nx.maximum_flow_value(graph, "source", "sink") == weight.sum()


def test_the_share_chosen_is_the_probability():
    y = np.repeat(np.array([0.0, 0.01, 0.2, 0.7, 1.0])[:, None], 20_000, axis=1)
    share = round_filters(y, 3.0, draws(4, y.shape)).mean(1)
    assert share[0] == 0 and share[4] == 1
    assert share[1:4] == pytest.approx(1 - (1 - y[1:4, 0]) ** 3.0, abs=0.012)


def test_chosen_grows_with_the_exponent():
    y, u = case(1)[0], draws(1, (4, 12))
    before = np.zeros_like(y, dtype=bool)
    sizes = []
    for exponent in (0.1, 0.5, 2.0, 9.0):
        chosen = round_filters(y, exponent, u)
        assert (chosen | before == chosen).all()
        before = chosen
        sizes.append(chosen.sum())
    assert sizes[0] < sizes[-1]


def test_cover_matrix_is_the_definition():
    y, allowed, inside, _ = case(2)
    chosen = round_filters(y, 2.0, draws(2, y.shape))
    cover = cover_matrix(chosen, allowed, inside)
    for j in range(40):
        for i in range(4):
            assert cover[j, i] == (allowed[j, i] and any(chosen[i, k] and inside[j, k] for k in range(12)))
    assert not cover_matrix(np.zeros_like(chosen), allowed, inside).any()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("unit", [1.0, 0.3])
def test_the_smallest_exponent_against_a_scan(seed, unit):
    y, allowed, inside, weight = case(seed)
    u = draws(seed, y.shape)
    capacity = np.floor(np.full(4, 1.4 * weight.sum() / 4))
    found, chosen = smallest_exponent(y, u, allowed, inside, unit * weight, unit * capacity * (1 + 1e-6), 60.0)
    assert found < 60.0 and (chosen == round_filters(y, found, u)).all()
    assert feasible(chosen, allowed, inside, weight, capacity)
    assert not feasible(round_filters(y, found / 1.03, u), allowed, inside, weight, capacity)


def test_no_exponent_works():
    y, allowed, inside, weight = case(3)
    u = draws(3, y.shape)
    found, chosen = smallest_exponent(y, u, allowed, inside, weight, np.ones(4), 30.0)
    assert found == np.inf and (chosen == round_filters(y, 30.0, u)).all()
    # rows without weight need cover only: the same capacity is then enough
    assert smallest_exponent(y, u, allowed, inside, np.zeros(40), np.zeros(4), 30.0)[0] < 30.0


def test_rounding_again_until_covered():
    allowed, inside = np.ones((1, 1), dtype=bool), np.ones((1, 1), dtype=bool)
    y = np.array([[0.2]])
    tries = [round_until_covered(y, 1.0, allowed, inside, seed, tries=1) is not None for seed in range(400)]
    assert 0.1 < np.mean(tries) < 0.3
    more = [round_until_covered(y, 1.0, allowed, inside, seed, tries=5) is not None for seed in range(400)]
    assert np.mean(more) == pytest.approx(1 - 0.8**5, abs=0.08)
    assert round_until_covered(np.zeros((1, 1)), 5.0, allowed, inside, 1) is None
    y, allowed, inside, _ = case(4)
    first, again = (round_until_covered(y, 8.0, allowed, inside, 7) for _ in range(2))
    assert (first == again).all() and cover_matrix(first, allowed, inside).any(1).all()
