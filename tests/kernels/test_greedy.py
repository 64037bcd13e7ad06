"""The greedy kernel against a literal implementation on lists, and the paper's examples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.kernels.boxes import union_volume
from udfs.kernels.greedy import greedy, lbf_steps
from udfs.kernels.latency import pack_sets, reach
from udfs.kernels.tree import BrokerTree
from udfs.kernels.workload import DefeatsGrStar


def literal(tree, low, high, allowed, capacity, alpha, reorder):
    """Gr and Gr* as the paper tells them; None when some subscriber finds no open leaf."""
    volume = lambda box: float(np.prod(box[1] - box[0]))  # noqa: E731
    meb = lambda p, q: (np.minimum(p[0], q[0]), np.maximum(p[1], q[1]))  # noqa: E731
    inside = lambda p, q: bool((q[0] <= p[0]).all() and (p[1] <= q[1]).all())  # noqa: E731

    def cover(boxes, box):
        """(growth, new boxes, changed boxes)"""
        if any(inside(box, other) for other in boxes):
            return 0.0, boxes, []
        options = []
        for r, other in enumerate(boxes):
            grown = meb(other, box)
            options.append((volume(grown) - volume(other), boxes[:r] + [grown] + boxes[r + 1 :], [grown]))
        if len(boxes) < alpha:
            options.append((volume(box), [*boxes, box], [box]))
        else:
            pairs = [(volume(meb(boxes[r], boxes[s])) - volume(boxes[r]) - volume(boxes[s]), r, s)
                     for r in range(len(boxes)) for s in range(r + 1, len(boxes))]
            if pairs:
                cost, r, s = min(pairs)
                grown = meb(boxes[r], boxes[s])
                after = list(boxes)
                after[r], after[s] = grown, box
                options.append((cost + volume(box), after, [grown, box]))
        best = min(range(len(options)), key=lambda k: (options[k][0], k))
        cost, after, changed = options[best]
        keeper = changed[0]
        after = [b for b in after if b is keeper or not inside(b, keeper)]
        return cost, after, changed

    filters = {node: [] for node in range(len(tree.parent))}
    load = np.zeros(len(tree.leaves), dtype=int)
    left, place = list(range(len(low))), np.full(len(low), -1)

    def open_leaves(j):
        return [i for i in range(len(load)) if allowed[j, i] and load[i] < capacity[i]]

    while left:
        j = min(left, key=lambda k: (len(open_leaves(k)), k)) if reorder else left[0]
        left.remove(j)
        choice = None
        for i in open_leaves(j):
            cost, pending, after = 0.0, [(low[j], high[j])], {}
            for node in tree.paths[i]:
                if node < 0 or not pending:
                    break
                boxes, changed = filters[node], []
                for box in pending:
                    grown, boxes, more = cover(boxes, box)
                    cost += grown
                    changed += more
                after[node], pending = boxes, changed
            key = (cost, load[i] / tree.share[i], i)
            if choice is None or key < choice[0]:
                choice = (key, i, after)
        if choice is None:
            return None
        _, i, after = choice
        filters.update(after)
        load[i] += 1
        place[j] = i
    return place, filters


TREES = {
    "one level": BrokerTree(np.arange(5), np.array([-1, 0, 0, 0, 0]), np.zeros((5, 1)), np.full(4, 0.25)),
    "two levels": BrokerTree(np.arange(7), np.array([-1, 0, 0, 1, 1, 2, 2]), np.zeros((7, 1)), np.array([0.4, 0.2, 0.2, 0.2])),
    "unbalanced": BrokerTree(np.arange(7), np.array([-1, 0, 0, 1, 1, 3, 3]), np.zeros((7, 1)), np.full(4, 0.25)),
}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from(sorted(TREES)), st.integers(1, 3), st.booleans(), st.integers(1, 2))
def test_same_places_and_filters_as_the_literal_algorithm(seed, name, alpha, reorder, dims):
    tree, rng = TREES[name], np.random.default_rng(seed)
    rows = int(rng.integers(1, 30))
    low = rng.integers(0, 12, (rows, dims)).astype(float)
    high = low + rng.integers(1, 5, (rows, dims))
    allowed = rng.random((rows, 4)) < 0.7
    allowed[np.arange(rows), rng.integers(0, 4, rows)] = True
    capacity = BrokerTree.capacities(tree.share, rows, 2.0)
    expected = literal(tree, low, high, allowed, capacity, alpha, reorder)
    found = greedy(tree, low, high, pack_sets(allowed), np.zeros(rows, dtype=np.int64), alpha=alpha, lbf=2.0, lbf_max=2.0, reorder=reorder)
    assert found.complete == (expected is not None)
    if expected is None:
        assert all(allowed[j, found.leaf[j]] for j in range(rows))  # the best effort still keeps latency
        return
    place, filters = expected
    assert found.leaf.tolist() == place.tolist()
    for node in range(1, len(tree.parent)):
        count = found.filters.count[node]
        mine = sorted(map(tuple, np.hstack([found.filters.low[node, :count], found.filters.high[node, :count]]).tolist()))
        assert mine == sorted(tuple(np.concatenate(box).tolist()) for box in filters[node])


def test_fewest_choices_first_saves_gr_star_where_gr_fails():
    tree = BrokerTree(np.arange(3), np.array([-1, 0, 0]), np.zeros((3, 1)), np.full(2, 0.5))
    allowed = np.array([[1, 1], [1, 1], [1, 0], [1, 0]], dtype=bool)
    low = np.zeros((4, 1))
    settings_ = dict(alpha=1, lbf=1.0, lbf_max=1.0)
    fastest = np.zeros(4, dtype=np.int64)
    assert not greedy(tree, low, low + 1, pack_sets(allowed), fastest, reorder=False, **settings_).complete
    star = greedy(tree, low, low + 1, pack_sets(allowed), fastest, reorder=True, **settings_)
    assert star.complete and star.leaf.tolist() == [1, 1, 0, 0]


def test_the_factor_rises_only_as_far_as_needed():
    tree = BrokerTree(np.arange(3), np.array([-1, 0, 0]), np.zeros((3, 1)), np.full(2, 0.5))
    allowed = np.ones((8, 2), dtype=bool)
    allowed[:6, 1] = False
    low = np.zeros((8, 1))
    found = greedy(tree, low, low + 1, pack_sets(allowed), np.zeros(8, dtype=np.int64), alpha=1, lbf=1.0, lbf_max=2.0, reorder=True)
    assert found.complete and found.lbf == 1.5
    assert lbf_steps(1.0, 2.0) == [1.0, 1.25, 1.5, 1.75, 2.0]


def test_a_row_without_any_leaf_goes_to_the_fastest():
    tree = TREES["one level"]
    found = greedy(tree, np.zeros((1, 1)), np.ones((1, 1)), pack_sets(np.zeros((1, 4), dtype=bool)), np.array([2]),
                   alpha=1, lbf=4.0, lbf_max=4.0, reorder=True)
    assert not found.complete and found.leaf.tolist() == [2]


@pytest.mark.parametrize("brokers", [3, 10, 15])
def test_the_workload_that_defeats_gr_star(brokers):
    model = DefeatsGrStar(brokers, 3, 4 * brokers * 5)
    rows = model.rows(np.arange(model.subscribers))
    tree = model.tree()
    within = reach(rows.location, rows.max_latency, tree, 0.3, last_hop=False)
    assert set(within.allowed.sum(1)) == {2, brokers}
    home = rows.city // 4
    assert within.allowed[np.arange(model.subscribers), home].all()  # the optimum keeps every limit
    optimum = sum(_alpha_volume(rows, home == b) for b in range(brokers))
    found = greedy(tree, rows.low, rows.high, pack_sets(within.allowed), within.fastest, alpha=3, lbf=1.0, lbf_max=1.0, reorder=True)
    assert found.complete
    f = found.filters
    paid = sum(union_volume(f.low[i, : f.count[i]], f.high[i, : f.count[i]]) for i in range(1, brokers + 1))
    assert optimum < 150 * brokers and paid > 1000 * optimum


def _alpha_volume(rows, mine):
    """Four squares, the two closest in one box."""
    x = np.unique(rows.low[mine, 0])
    return 2.0 + (np.diff(x).min() + 1) ** 2


def test_table_4_of_the_supplement():
    pairs = [tuple(sorted(pair + 1)) for pair in DefeatsGrStar(3, 3, 12).candidate_pairs()]
    assert pairs[:4] == [(1, 2), (1, 2), (1, 3), (1, 2)] and pairs[5:8] == [(2, 3), (1, 2), (2, 3)]
