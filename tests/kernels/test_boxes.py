"""Boxes against counting the cells of an integer grid."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.kernels.boxes import drop_contained, event_share, merge_boxes, union_volume, volumes


@st.composite
def integer_boxes(draw, most=6):
    dims, count = draw(st.integers(1, 3)), draw(st.integers(1, most))
    corner = st.lists(st.integers(0, 5), min_size=dims, max_size=dims)
    first, second = (np.array(draw(st.lists(corner, min_size=count, max_size=count)), dtype=float) for _ in range(2))
    return np.minimum(first, second), np.maximum(first, second)


def cells_covered(low, high):
    middles = product(*[np.arange(0.5, 5.5)] * low.shape[1])
    return sum(any(((low[k] < m) & (m < high[k])).all() for k in range(len(low))) for m in map(np.array, middles))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(integer_boxes())
def test_union_volume_counts_each_cell_once(boxes):
    assert union_volume(*boxes) == cells_covered(*boxes)


def test_union_volume_in_five_dimensions():
    low = np.array([[0.0] * 5, [0.5] * 5])
    assert np.isclose(union_volume(low, low + 1), 2 - 0.5**5)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(integer_boxes(8), st.integers(1, 4))
def test_merged_boxes_are_few_and_contain_every_box(boxes, alpha):
    low, high = boxes
    merged_low, merged_high = merge_boxes(low, high, alpha)
    assert len(merged_low) <= alpha
    for a, b in zip(low, high, strict=True):
        assert any((merged_low[k] <= a).all() and (b <= merged_high[k]).all() for k in range(len(merged_low)))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(integer_boxes(7), st.integers(1, 3))
def test_merging_takes_the_cheapest_pair_each_time(boxes, alpha):
    keep = drop_contained(*boxes)
    rest = [(boxes[0][k], boxes[1][k]) for k in keep]

    def growth(p, q):
        meb = np.prod(np.maximum(p[1], q[1]) - np.minimum(p[0], q[0]))
        return meb - np.prod(p[1] - p[0]) - np.prod(q[1] - q[0])

    while len(rest) > alpha:
        pairs = [(growth(rest[i], rest[j]), np.sum(np.maximum(rest[i][1], rest[j][1]) - np.minimum(rest[i][0], rest[j][0])), i, j)
                 for i in range(len(rest)) for j in range(i + 1, len(rest))]
        costs = sorted(cost for cost, *_ in pairs)
        if len(costs) > 1 and costs[0] == costs[1]:
            return  # which of two equal pairs goes first may change what follows
        _, _, i, j = min(pairs)
        rest[i] = (np.minimum(rest[i][0], rest[j][0]), np.maximum(rest[i][1], rest[j][1]))
        del rest[j]
    expected = sum(np.prod(b - a) for a, b in rest)
    assert np.isclose(volumes(*merge_boxes(*boxes, alpha)).sum(), expected)


def merged_one_by_one(low, high, alpha):
    """The rule of ``merge_boxes``, pair by pair: least volume added, then least margin, then the lower indices."""
    rest = [(low[k], high[k]) for k in range(len(low)) if not any(
        (low[j] <= low[k]).all() and (high[k] <= high[j]).all() and (j < k or (low[j] < low[k]).any() or (high[k] < high[j]).any())
        for j in range(len(low)) if j != k
    )]  # fmt: skip
    while len(rest) > alpha:
        around = {(i, j): (np.minimum(p[0], q[0]), np.maximum(p[1], q[1])) for i, p in enumerate(rest) for j, q in enumerate(rest) if i < j}
        i, j = min(around, key=lambda pair: (
            np.prod(around[pair][1] - around[pair][0]) - sum(np.prod(rest[k][1] - rest[k][0]) for k in pair),
            np.sum(around[pair][1] - around[pair][0]),
            pair,
        ))  # fmt: skip
        rest[i] = around[i, j]
        del rest[j]
    return np.array([a for a, _ in rest]), np.array([b for _, b in rest])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(integer_boxes(9), st.integers(1, 3))
def test_merging_follows_the_rule_through_ties(boxes, alpha):
    expected, found = merged_one_by_one(*boxes, alpha), merge_boxes(*boxes, alpha)
    assert np.array_equal(found[0], expected[0]) and np.array_equal(found[1], expected[1])


def test_merging_many_boxes_with_ties_follows_the_rule():
    rng = np.random.default_rng(2)
    for dims, count, grid, size in [(1, 70, 40, 4), (2, 70, 30, 3), (3, 30, 8, 4), *[(2, 40, 5, 2)] * 60]:
        low = rng.integers(0, grid, (count, dims)).astype(float)
        high = low + rng.integers(0, size, (count, dims))
        given = low.copy(), high.copy()
        expected, found = merged_one_by_one(low, high, 3), merge_boxes(low, high, 3)
        assert np.array_equal(found[0], expected[0]) and np.array_equal(found[1], expected[1])
        assert np.array_equal(low, given[0]) and np.array_equal(high, given[1])


def test_dropping_among_many_boxes_is_as_among_few():
    rng = np.random.default_rng(5)
    for dims, size in ((1, 3), (2, 6), (3, 9)):
        low = rng.integers(0, 9, (300, dims)).astype(float)
        high = low + rng.integers(0, size, (300, dims))
        inside = ((low[None] <= low[:, None]) & (high[:, None] <= high[None])).all(2)
        goes = inside & (~inside.T | np.tri(300, k=-1, dtype=bool))
        assert drop_contained(low, high).tolist() == np.flatnonzero(~goes.any(1)).tolist()


def test_of_equal_boxes_one_stays():
    low, high = np.zeros((3, 2)), np.ones((3, 2))
    assert drop_contained(low, high).tolist() == [0]


def test_event_share_counts_weight_in_the_union():
    points, weights = np.array([[0.5], [1.5], [3.0]]), np.array([1.0, 2.0, 5.0])
    assert event_share(np.array([[0.0], [1.0]]), np.array([[2.0], [2.0]]), points, weights) == 3 / 8


def test_no_boxes_hold_nothing():
    none = np.empty((0, 2))
    assert union_volume(none, none) == 0
    assert event_share(none, none, np.ones((3, 2)), np.ones(3)) == 0
    assert merge_boxes(none, none, 2)[0].shape == (0, 2)
