"""The covering test against loops over rows, boxes and dimensions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.kernels.cover import any_cover, cover_sets, holding_box
from udfs.kernels.latency import pack_sets, unpack_sets


def holds(box_low, box_high, low, high):
    return all(box_low[k] <= low[k] and high[k] <= box_high[k] for k in range(len(low)))


def instance(seed, dims):
    """(leaves, rows, boxes of targets): whole numbers, so that faces often touch."""
    rng = np.random.default_rng(seed)
    leaves, rows, boxes = int(rng.integers(1, 20)), int(rng.integers(1, 30)), int(rng.integers(0, 25))
    low = rng.integers(0, 8, (rows, dims)).astype(float)
    box_low = rng.integers(0, 5, (boxes, dims)).astype(float)
    corners = low, low + rng.integers(0, 3, (rows, dims)), box_low, box_low + rng.integers(0, 9, (boxes, dims))
    return leaves, corners, rng.integers(0, leaves, boxes), rng


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_cover_sets_against_the_literal_loop(seed, dims):
    leaves, (low, high, box_low, box_high), target, rng = instance(seed, dims)
    allowed = rng.random((len(low), leaves)) < 0.6
    expected = np.zeros_like(allowed)
    for j in range(len(low)):
        for b in range(len(target)):
            if allowed[j, target[b]] and holds(box_low[b], box_high[b], low[j], high[j]):
                expected[j, target[b]] = True
    packed = pack_sets(allowed)
    given_sets = packed.copy()
    found = cover_sets(packed, low, high, target, box_low, box_high)
    assert found.dtype == np.uint8 and np.array_equal(found, pack_sets(expected))
    assert np.array_equal(any_cover(packed, low, high, target, box_low, box_high), expected.any(1))
    assert np.array_equal(packed, given_sets)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_holding_box_against_the_literal_loop(seed, dims):
    leaves, (low, high, box_low, box_high), target, rng = instance(seed, dims)
    leaf = rng.integers(0, leaves, len(low))
    found = holding_box(leaf, low, high, target, box_low, box_high)
    for j in range(len(low)):
        mine = [b for b in range(len(target)) if target[b] == leaf[j] and holds(box_low[b], box_high[b], low[j], high[j])]
        expected = min(mine, key=lambda b: (np.prod(box_high[b] - box_low[b]), b), default=-1)
        assert found[j] == expected


def test_the_smallest_box_that_holds_the_row():
    low, high = np.array([[1.0], [1.0], [5.0], [1.0]]), np.array([[2.0], [4.0], [6.0], [2.0]])
    box_low, box_high = np.array([[0.0], [1.0], [1.0], [0.0]]), np.array([[9.0], [2.0], [2.0], [1.5]])
    target = np.array([0, 0, 0, 1])
    assert holding_box(np.array([0, 0, 0, 1]), low, high, target, box_low, box_high).tolist() == [1, 0, 0, -1]


def test_no_boxes():
    low, none = np.zeros((3, 2)), np.empty((0, 2))
    target = np.empty(0, dtype=np.int64)
    for covered in (cover_sets, any_cover):
        assert not covered(np.full((3, 2), 255, dtype=np.uint8), low, low + 1, target, none, none).any()
    assert holding_box(np.array([0, 4, 1]), low, low + 1, target, none, none).tolist() == [-1, -1, -1]


def test_no_rows():
    none, box = np.empty((0, 2)), np.zeros((1, 2))
    assert cover_sets(np.empty((0, 1), dtype=np.uint8), none, none, np.array([0]), box, box).shape == (0, 1)
    assert holding_box(np.empty(0, dtype=np.int64), none, none, np.array([0]), box, box).shape == (0,)


def test_targets_beyond_the_rows_leaves_cover_nothing():
    """Three leaves: the byte has bits for more, and none of them is allowed."""
    low, box = np.zeros((2, 1)), np.zeros((3, 1))
    found = cover_sets(pack_sets(np.ones((2, 3), dtype=bool)), low, low + 1, np.array([1, 5, 7]), box, box + 1)
    assert unpack_sets(found, 8).tolist() == [[False, True, False, False, False, False, False, False]] * 2
    assert holding_box(np.array([2, 5]), low, low + 1, np.array([1, 5, 70]), box, box + 1).tolist() == [-1, 1]
    assert holding_box(np.array([200, 1]), low, low + 1, np.array([1, 5, 70]), box, box + 1).tolist() == [-1, 0]


def test_targets_beyond_the_bits_of_the_sets_are_an_error():
    allowed = np.array([[255], [255], [0]], dtype=np.uint8)[:2]  # what the second row reads past its end is the third's
    low = np.array([[0.0], [5.0]])
    with pytest.raises(ValueError, match="target 8 is beyond the 8 bits"):
        cover_sets(allowed, low, low + 1, np.array([8]), np.zeros((1, 1)), np.ones((1, 1)))


def test_a_leaf_that_no_box_belongs_to():
    low = np.zeros((2, 1))
    box = np.zeros((1, 1))
    assert holding_box(np.array([0, 3]), low, low + 1, np.array([3]), box, box + 2).tolist() == [-1, 0]


@pytest.mark.parametrize("order", ["C", "F"])
def test_any_layout(order):
    leaves, (low, high, box_low, box_high), target, rng = instance(12, 3)
    allowed = pack_sets(rng.random((len(low), leaves)) < 0.8)
    expected = cover_sets(allowed, low, high, target, box_low, box_high)
    found = cover_sets(np.array(allowed, order=order), low, high, target.astype(np.int32), np.array(box_low, order=order), np.array(box_high, order=order))
    assert expected.any() and np.array_equal(found, expected)
