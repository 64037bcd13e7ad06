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


def test_of_equal_boxes_one_stays():
    low, high = np.zeros((3, 2)), np.ones((3, 2))
    assert drop_contained(low, high).tolist() == [0]


def test_event_share_counts_weight_in_the_union():
    points, weights = np.array([[0.5], [1.5], [3.0]]), np.array([1.0, 2.0, 5.0])
    assert event_share(np.array([[0.0], [1.0]]), np.array([[2.0], [2.0]]), points, weights) == 3 / 8
