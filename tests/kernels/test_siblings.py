"""SLP1 among siblings against loops over the supplement's definitions; nesting and the tree's derived arrays."""

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.kernels.adjust import alpha_boxes
from udfs.kernels.boxes import volumes
from udfs.kernels.filtergen import candidate_rectangles, contains
from udfs.kernels.lprelax import LpInstance, solve_exactly
from udfs.kernels.measure import Measure
from udfs.kernels.nesting import nest
from udfs.kernels.search import slot_boxes
from udfs.kernels.siblings import Rows, child_capacities, child_sets, deal, level_bound, printed_filters, rounded_filters, start_slots
from udfs.kernels.tree import BrokerTree

VOLUME = Measure.volume()


def broker_tree(parent, rng=None):
    bare = BrokerTree(np.arange(len(parent)), np.array(parent), np.zeros((len(parent), 2)), np.ones(1))
    share = np.ones(len(bare.leaves)) if rng is None else rng.integers(1, 6, len(bare.leaves)).astype(float)
    return BrokerTree(bare.broker_id, bare.parent, bare.location, share / share.sum())


def random_tree(seed):
    """A deep one or a bushy one."""
    rng = np.random.default_rng(seed)
    first, last = (4, 99) if seed % 2 else (99, 4)
    return broker_tree([-1, *(int(rng.integers(max(0, i - first), min(i, last))) for i in range(1, int(rng.integers(2, 20))))], rng)


TREES = {
    "one level": broker_tree([-1, 0, 0, 0]),
    "two levels": broker_tree([-1, 0, 0, 1, 1, 2, 2]),
    "higher leaf": broker_tree([-1, 0, 0, 1, 1, 3, 3]),
}


def sample(seed, brokers, rows=40, dims=2, density=0.6):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 10, (rows, dims))
    allowed = rng.random((rows, brokers)) < density
    allowed[np.arange(rows), rng.integers(0, brokers, rows)] = True
    return Rows(rng.random((rows, 2)), low, low + rng.uniform(0.2, 3, (rows, dims)), allowed, np.ones(rows)), rng


# ---------------------------------------------------------------- the tree


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_the_tree_against_a_graph(seed):
    tree = random_tree(seed)
    graph = nx.DiGraph([(int(up), node) for node, up in enumerate(tree.parent) if up >= 0])
    leaves = [node for node in graph if graph.out_degree(node) == 0]
    assert tree.leaves.tolist() == sorted(leaves)
    hops = nx.single_source_shortest_path_length(graph, 0)
    for node in graph:
        below = nx.descendants(graph, node) | {node}
        assert tree.leaves[tree.leaves_below[node]].tolist() == sorted(below & set(leaves))
        assert tree.share_below[node] == pytest.approx(sum(tree.share[number] for number, leaf in enumerate(tree.leaves) if leaf in below))
        assert tree.depth[node] == hops[node]
        assert tree.height[node] == max(hops[leaf] - hops[node] for leaf in below & set(leaves))


def test_the_tree_by_hand():
    tree = BrokerTree(np.arange(6), np.array([-1, 0, 0, 1, 1, 3]), np.zeros((6, 1)), np.array([0.5, 0.2, 0.3]))
    assert tree.leaves.tolist() == [2, 4, 5]
    assert tree.leaves_below.astype(int).tolist() == [[1, 1, 1], [0, 1, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]]
    assert tree.share_below == pytest.approx([1.0, 0.5, 0.5, 0.3, 0.2, 0.3])
    assert tree.depth.tolist() == [0, 1, 1, 2, 2, 3] and tree.height.tolist() == [3, 2, 0, 1, 0, 0]


# ---------------------------------------------------------------- limits of siblings


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from(["0", "1/5", "3/10", "1/2", "3/4", "1"]))
def test_child_sets_against_the_definition(seed, gamma):
    tree, rng = random_tree(seed), np.random.default_rng(seed + 1)
    allowed = rng.random((20, len(tree.leaves))) < rng.random()
    for node in np.flatnonzero(tree.height > 0):
        children, found = child_sets(tree, int(node), allowed, float(Fraction(gamma)))
        assert children.tolist() == [i for i in range(len(tree.parent)) if tree.parent[i] == node]
        for j in range(20):
            share = []
            for child in children:
                mine = [number for number, leaf in enumerate(tree.leaves) if leaf == child or child in _up(tree, leaf)]
                share.append(Fraction(sum(bool(allowed[j, number]) for number in mine), len(mine)))
            threshold = Fraction(gamma)
            while max(share) > 0 and max(share) < threshold:
                threshold /= 2
            assert found[j].tolist() == [part > 0 and part >= threshold for part in share]


def _up(tree, node):
    while node > 0:
        node = tree.parent[node]
        yield int(node)


def test_a_row_halves_its_own_threshold():
    """Four leaves below each of two children; gamma is 3/4."""
    tree = broker_tree([-1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    few, some, most, none = [1, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 1, 1, 0, 0], [1, 1, 0, 0, 1, 1, 1, 0], [0] * 8
    _, found = child_sets(tree, 0, np.array([few, some, most, none], dtype=bool), 0.75)
    assert found.tolist() == [[True, False], [False, True], [False, True], [False, False]]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.floats(1.0, 3.0), st.floats(0.5, 1.5))
def test_child_capacities_against_the_formula(seed, lbf, crowd):
    tree = random_tree(seed)
    for node in np.flatnonzero(tree.height > 0):
        rows = crowd * tree.share_below[node] * 1000
        found = child_capacities(tree, int(node), rows, 1000, lbf)
        children = np.flatnonzero(tree.parent == node)
        for child, capacity in zip(children, found):
            excess = lbf * tree.share_below[node] * 1000 / rows  # what is left of the factor
            factor = excess ** (1 / (1 + tree.height[child]))
            assert capacity == pytest.approx(factor * rows * tree.share_below[child] / tree.share_below[node])
            if tree.height[child] == 0:  # a leaf may use all of it, whatever the subtrees beside it
                assert capacity == pytest.approx(lbf * tree.share_below[child] * 1000)
        if crowd <= lbf:
            assert found.sum() >= rows * (1 - 1e-9)  # the children together have room for all


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.floats(1.0, 3.0))
def test_full_use_of_every_capacity_ends_at_the_factor(seed, lbf):
    tree = random_tree(seed)
    for number, leaf in enumerate(tree.leaves):
        rows = 500.0
        for node in reversed(list(_up(tree, leaf))):
            step = next(child for child in [*_up(tree, leaf), leaf] if tree.parent[child] == node)
            room = child_capacities(tree, node, rows, 500.0, lbf)
            rows = room[np.flatnonzero(tree.parent == node).tolist().index(step)]
        assert rows == pytest.approx(lbf * tree.share[number] * 500)


def test_levels_share_the_factor():
    tree = TREES["two levels"]
    assert child_capacities(tree, 0, 100, 100, 1.44) == pytest.approx([60, 60])  # the root of 1.44 on each of two levels
    assert child_capacities(tree, 1, 60, 100, 1.44) == pytest.approx([36, 36])
    assert child_capacities(tree, 1, 40, 100, 1.44) == pytest.approx([36, 36])  # few came: the leaves may take more of them
    assert child_capacities(TREES["higher leaf"], 0, 100, 100, 1.331) == pytest.approx([1.1 * 75, 1.331 * 25])


# ---------------------------------------------------------------- rows to siblings


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_deal_keeps_capacities_that_can_be_kept(seed):
    """Capacities are the loads of a hidden solution: the flow must find it or another one."""
    rng = np.random.default_rng(seed)
    rows, siblings = int(rng.integers(1, 40)), int(rng.integers(1, 12))
    hidden = rng.integers(0, siblings, rows)
    cover = rng.random((rows, siblings)) < 0.4
    cover[np.arange(rows), hidden] = True
    allowed = cover | (rng.random((rows, siblings)) < 0.3)
    weight = (rng.random(rows) < 0.7).astype(float)
    capacity = np.bincount(hidden, weights=weight, minlength=siblings) + rng.choice([0.0, 0.6])
    found = deal(cover, allowed, weight, capacity)
    assert cover[np.arange(rows), found].all()
    assert (np.bincount(found, weights=weight, minlength=siblings) <= capacity).all()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_deal_beyond_what_fits(seed):
    """Every row has a sibling: one that covers it, else one in time, else any; and what lies within capacity is a maximum flow."""
    rng = np.random.default_rng(seed)
    rows, siblings = int(rng.integers(1, 25)), int(rng.integers(1, 5))
    allowed = rng.random((rows, siblings)) < 0.5
    cover = allowed & (rng.random((rows, siblings)) < 0.6)
    capacity = rng.integers(0, 5, siblings).astype(float)
    found = deal(cover, allowed, np.ones(rows), capacity)
    assert found.min() >= 0 and found.max() < siblings
    graph = nx.DiGraph()
    graph.add_nodes_from(["source", "sink"])
    for j in range(rows):
        assert cover[j, found[j]] or not cover[j].any()
        assert cover[j].any() or allowed[j, found[j]] or not allowed[j].any()
        graph.add_edges_from((("source", j, {"capacity": 1}), *((j, f"b{i}", {"capacity": 1}) for i in np.flatnonzero(cover[j]))))
    graph.add_edges_from((f"b{i}", "sink", {"capacity": int(capacity[i])}) for i in range(siblings))
    load = np.bincount(found, minlength=siblings)
    assert np.minimum(load, capacity).sum() >= nx.maximum_flow_value(graph, "source", "sink")


def test_what_does_not_fit_is_spread_by_capacity():
    both = np.ones((8, 2), dtype=bool)
    found = deal(both, both, np.ones(8), np.array([1.0, 3.0]))
    assert np.bincount(found).tolist() == [2, 6]
    uncovered = np.zeros((3, 2), dtype=bool)
    assert deal(uncovered, np.array([[0, 1], [1, 0], [0, 0]], dtype=bool), np.ones(3), np.array([5.0, 1.0])).tolist() == [1, 0, 0]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 3))
def test_start_slots(seed, alpha, dims):
    rows, rng = sample(seed, 1, rows=1 + seed % 50, dims=dims)
    leaf = rng.choice([0, 2, 3, 7], len(rows.weight))
    slot = start_slots(leaf, rows.low, rows.high, alpha)
    assert np.array_equal(slot // alpha, leaf)
    for i in np.unique(leaf):
        low, high = rows.low[leaf == i], rows.high[leaf == i]
        box_low, box_high = alpha_boxes(low, high, alpha)
        number = slot[leaf == i] - i * alpha
        assert (number >= 0).all() and (number < alpha).all() and len(box_low) <= alpha
        assert (box_low[number] <= low).all() and (high <= box_high[number]).all()


# ---------------------------------------------------------------- filters for siblings


def assert_serves(found, rows, capacity):
    """Every row is in time for a sibling with a rectangle around it, and a flow keeps the capacities."""
    expected = np.zeros_like(rows.allowed)
    for i, low, high in zip(found.sibling, found.low, found.high):
        expected[:, i] |= rows.allowed[:, i] & (low <= rows.low).all(1) & (rows.high <= high).all(1)
    assert np.array_equal(found.cover, expected)
    assert expected.any(1).all()
    given_to = deal(found.cover, rows.allowed, rows.weight, capacity)
    assert (np.bincount(given_to, weights=rows.weight, minlength=len(capacity)) <= capacity + 1e-9).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_rounded_filters_serve_every_row(seed, alpha):
    rows, rng = sample(seed, 3, rows=50)
    rows = Rows(rows.location, rows.low, rows.high, rows.allowed, (rng.random(50) < 0.8).astype(float))
    tight, capacity = (np.floor(factor * rows.weight.sum() / 3) for factor in (np.full(3, 1.3), np.full(3, 1.5)))
    found = rounded_filters(rows, tight, capacity, alpha, super_subscriptions=20, measure=VOLUME, seed=seed)
    assert math.isfinite(found.exponent) and 0 < found.exponent <= 2 * math.log(50)
    assert_serves(found, rows, capacity)
    again = rounded_filters(rows, tight, capacity, alpha, super_subscriptions=20, measure=VOLUME, seed=seed)
    assert np.array_equal(found.low, again.low) and np.array_equal(found.sibling, again.sibling)
    box_low, box_high = candidate_rectangles(rows.location, rows.low, rows.high, k=20, seed=seed)
    inside = contains(box_low, box_high, rows.low, rows.high)
    exact = solve_exactly(LpInstance(rows.allowed, inside, volumes(box_low, box_high), rows.weight, tight, alpha))
    assert found.bound == pytest.approx(exact.value, rel=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_printed_filters_cover_every_row(seed):
    rows, _ = sample(seed, 3, rows=50)
    found = printed_filters(rows, np.full(3, 25.0), 2, super_subscriptions=20, measure=VOLUME, seed=seed)
    assert found.exponent == pytest.approx(2 * math.log(50)) and found.cover.any(1).all() and not (found.cover & ~rows.allowed).any()
    smallest = rounded_filters(rows, np.full(3, 25.0), np.full(3, 25.0), 2, super_subscriptions=20, measure=VOLUME, seed=seed)
    assert volumes(smallest.low, smallest.high).sum() < volumes(found.low, found.high).sum()


def test_no_filters_where_nothing_is_feasible():
    rows, _ = sample(1, 2, rows=20)
    few, enough = np.full(2, 9.0), np.full(2, 20.0)
    settings_ = dict(super_subscriptions=10, measure=VOLUME, seed=1)
    assert rounded_filters(rows, few, few, 2, **settings_) is None and printed_filters(rows, few, 2, **settings_) is None
    lost = Rows(rows.location, rows.low, rows.high, rows.allowed & (np.arange(20) > 0)[:, None], rows.weight)
    assert rounded_filters(lost, enough, enough, 2, **settings_) is None and printed_filters(lost, enough, 2, **settings_) is None
    assert rounded_filters(rows, enough, enough, 2, **settings_) is not None


def test_filters_by_events_pay_for_events():
    """The rectangle around both rows costs what happens between them: much by volume, nothing by events, or the other way."""
    low = np.array([[0.0], [1.0], [8.0], [9.0]])
    rows = Rows(np.zeros((4, 1)), low, low + 1, np.ones((4, 1), dtype=bool), np.ones(4))
    points = np.linspace(0.1, 1.9, 200)[:, None]
    measure = Measure.events(points, np.ones(200), np.zeros(1), np.full(1, 10.0))
    found = rounded_filters(rows, np.full(1, 4.0), np.full(1, 4.0), 1, super_subscriptions=4, measure=measure, seed=1)
    assert found.bound == pytest.approx(1.0, abs=0.01)
    assert rounded_filters(rows, np.full(1, 4.0), np.full(1, 4.0), 1, super_subscriptions=4, measure=VOLUME, seed=1).bound == pytest.approx(10.0)


# ---------------------------------------------------------------- nesting


def inside_one(low, high, other_low, other_high):
    return ((other_low[None] <= low[:, None]) & (high[:, None] <= other_high[None])).all(2).any(1)


def filter_of(filters, node):
    return filters.low[node, : filters.count[node]], filters.high[node, : filters.count[node]]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 3))
def test_nest(seed, alpha, dims):
    tree, rng = random_tree(seed), np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    leaf = rng.choice(rng.permutation(len(tree.leaves))[: int(rng.integers(1, len(tree.leaves) + 1))], count)
    low = rng.uniform(0, 10, (count, dims))
    high = low + rng.uniform(0, 3, (count, dims))
    filters = nest(tree, leaf, low, high, alpha)
    assert (filters.count <= alpha).all() and filters.count[0] == 0
    for number, node in enumerate(tree.leaves):
        mine = leaf == number
        assert inside_one(low[mine], high[mine], *filter_of(filters, node)).all()
    for node in range(1, len(tree.parent)):
        below = np.isin(leaf, np.flatnonzero(tree.leaves_below[node]))
        assert (filters.count[node] > 0) == below.any()
        if tree.parent[node] > 0:
            assert inside_one(*filter_of(filters, node), *filter_of(filters, tree.parent[node])).all()
        if below.any():  # no wider than what it serves
            mine_low, mine_high = filter_of(filters, node)
            assert np.array_equal(mine_low.min(0), low[below].min(0)) and np.array_equal(mine_high.max(0), high[below].max(0))
    order = rng.permutation(count)
    again = nest(tree, leaf[order], low[order], high[order], alpha)
    assert np.array_equal(again.low, filters.low) and np.array_equal(again.high, filters.high)


def test_few_boxes_are_kept_as_they_are():
    low, high = np.array([[0.0], [5.0]]), np.array([[1.0], [6.0]])
    filters = nest(TREES["two levels"], np.array([0, 0]), low, high, 2)
    for node in (1, 3):
        assert sorted(map(tuple, np.hstack(filter_of(filters, node)).tolist())) == [(0, 1), (5, 6)]
    assert filters.count.tolist() == [0, 2, 0, 2, 0, 0, 0]


# ---------------------------------------------------------------- a bound for a level


def plan(rows, tree, alpha, rng):
    """(filters, least factor that allows it, leaf of each row) of a plan that serves every row at one of its leaves, chosen at random."""
    leaf = np.array([rng.choice(np.flatnonzero(row)) for row in rows.allowed])
    low, high, used = slot_boxes(rows.low, rows.high, start_slots(leaf, rows.low, rows.high, alpha), alpha * len(tree.leaves))
    load = np.bincount(leaf, weights=rows.weight, minlength=len(tree.leaves))
    return nest(tree, np.flatnonzero(used) // alpha, low[used], high[used], alpha), (load / (tree.share * rows.weight.sum())).max(), leaf


def level_cost(tree, level, filters):
    return sum(volumes(*filter_of(filters, node)).sum() for node in np.flatnonzero(tree.depth == level + 1))


@pytest.mark.parametrize("name", sorted(TREES))
@pytest.mark.parametrize("alpha", [1, 2])
def test_level_bound_is_below_every_plan(name, alpha):
    tree = TREES[name]
    for seed in range(3):
        rows, rng = sample(seed, len(tree.leaves), rows=25, density=0.5)
        filters, lbf, _ = plan(rows, tree, alpha, rng)
        settings_ = dict(alpha=alpha, lbf=lbf, super_subscriptions=4, measure=VOLUME, seed=seed)
        for level in range(tree.paths.shape[1]):
            bound = level_bound(tree, level, rows, filters, **settings_)
            assert 0 < bound <= level_cost(tree, level, filters) * (1 + 1e-6)
            higher = (rows.allowed & (tree.depth[tree.leaves] <= level)).any(1)
            assert bound >= volumes(rows.low, rows.high)[~higher].max() * (1 - 1e-6)  # its row is served by someone here
            assert level_bound(tree, level, rows, filters, **settings_) == bound


@pytest.mark.parametrize("name", sorted(TREES))
def test_level_bound_is_exact_where_nothing_is_to_choose(name):
    """One leaf a row and one rectangle a broker: the boxes around each broker's rows, nothing less."""
    tree = TREES[name]
    rows, rng = sample(3, len(tree.leaves), rows=30, density=0.0)
    filters, lbf, leaf = plan(rows, tree, 1, rng)
    for level in range(tree.paths.shape[1]):
        cost = level_cost(tree, level, filters)
        bound = level_bound(tree, level, rows, filters, alpha=1, lbf=lbf, super_subscriptions=3, measure=VOLUME, seed=1)
        assert bound == pytest.approx(cost, rel=1e-6)
        for node in np.flatnonzero(tree.depth == level + 1):
            mine = tree.leaves_below[node][leaf]
            cost -= np.prod(rows.high[mine].max(0) - rows.low[mine].min(0))
        assert cost == pytest.approx(0.0, abs=1e-9)


def test_rows_of_a_higher_leaf_need_not_reach_the_level():
    tree = TREES["higher leaf"]  # leaves 2, 4 (two hops), 5 and 6 (three hops)
    low = np.array([[0.0], [2.0], [100.0], [4.0]])
    allowed = np.array([[0, 0, 1, 0], [0, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 0]], dtype=bool)
    rows = Rows(np.zeros((4, 1)), low, low + 1, allowed, np.ones(4))
    low_boxes, high_boxes = np.array([[0.0], [4.0]]), np.array([[101.0], [5.0]])
    filters = nest(tree, np.array([2, 0]), low_boxes, high_boxes, 1)
    bound = [level_bound(tree, level, rows, filters, alpha=1, lbf=4.0, super_subscriptions=9, measure=VOLUME, seed=1) for level in range(3)]
    # one hop: three rows pass node 1, one is at leaf 2, which no later level needs. Two hops: the third row may be at leaf 4, and then
    # it need not come to the third
    assert bound == pytest.approx([101.0 + 1.0, 3.0 + 1.0, 3.0], rel=1e-6)


def test_level_bound_of_a_level_that_nobody_must_reach():
    tree = TREES["higher leaf"]
    rows, rng = sample(5, 4, rows=10)
    rows.allowed[:, 0] = True
    filters, lbf, _ = plan(rows, tree, 2, rng)
    settings_ = dict(alpha=2, lbf=lbf, super_subscriptions=4, measure=VOLUME, seed=1)
    assert level_bound(tree, 1, rows, filters, **settings_) == 0.0 and level_bound(tree, 0, rows, filters, **settings_) > 0.0


def test_level_bound_of_a_sample_heavier_than_the_capacity():
    """Capacities give way until the program has a solution, and its bound is still one of the plan."""
    tree = TREES["one level"]
    rows, rng = sample(6, 3, rows=20, density=0.0)
    filters, _, _ = plan(rows, tree, 1, rng)
    bound = level_bound(tree, 0, rows, filters, alpha=1, lbf=0.3, super_subscriptions=4, measure=VOLUME, seed=1)
    assert bound == pytest.approx(level_cost(tree, 0, filters), rel=1e-6)
