"""Filter adjustment against every set partition, and its promises on inputs too large for that."""

import numpy as np
import pytest

from udfs.kernels.adjust import alpha_boxes
from udfs.kernels.boxes import merge_boxes, union_volume


def partitions(count, most, label=()):
    if len(label) == count:
        yield np.array(label)
        return
    for group in range(min(max(label, default=-1) + 2, most)):
        yield from partitions(count, most, (*label, group))


def least_union(low, high, alpha):
    best = np.inf
    for label in partitions(len(low), alpha):
        groups = range(label.max() + 1)
        around_low = np.array([low[label == g].min(0) for g in groups])
        around_high = np.array([high[label == g].max(0) for g in groups])
        best = min(best, union_volume(around_low, around_high))
    return best


def assert_covers(low, high, around_low, around_high, alpha):
    assert 1 <= len(around_low) <= alpha
    held = ((around_low[None] <= low[:, None]) & (high[:, None] <= around_high[None])).all(2)
    assert held.any(1).all(), "a box lies in none of the result's"
    for g in range(len(around_low)):  # and no face of the result is further out than a box that it holds
        assert np.array_equal(around_low[g], low[held[:, g]].min(0)) and np.array_equal(around_high[g], high[held[:, g]].max(0))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_close_to_the_best_of_all_partitions(dims, alpha):
    rng = np.random.default_rng(10 * dims + alpha)
    ratios = []
    for _ in range(20):
        count = int(rng.integers(2, 8))
        low = rng.random((count, dims))
        high = low + rng.random((count, dims)) * rng.choice([0.05, 0.3, 0.8])
        found = alpha_boxes(low, high, alpha)
        assert_covers(low, high, *found, alpha)
        ratios.append(union_volume(*found) / least_union(low, high, alpha))
    assert min(ratios) > 1 - 1e-9, "better than the optimum: the result cannot cover every box"
    assert max(ratios) < 1.1
    assert np.mean(np.array(ratios) < 1 + 1e-9) >= 0.9


def test_better_than_merging_alone():
    """Merging pairs up greedily cannot be undone; at 12 boxes it is beaten now and then, and never ahead."""
    rng = np.random.default_rng(3)
    ratios = []
    for _ in range(60):
        low = rng.random((12, 2))
        high = low + 0.2 * rng.random((12, 2))
        ratios.append(union_volume(*alpha_boxes(low, high, 3)) / union_volume(*merge_boxes(low, high, 3)))
    assert max(ratios) <= 1 + 1e-12
    assert np.mean(ratios) < 0.97


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_separate_clusters_are_found(dims):
    rng = np.random.default_rng(dims)
    corner = np.array([[0.0] * dims, [10.0] * dims, [30.0] * dims, [70.0] * dims])
    label = rng.permutation(np.arange(200) % 4)
    low = corner[label] + rng.random((200, dims))
    high = low + rng.random((200, dims))
    found_low, found_high = alpha_boxes(low, high, 4)
    order = np.argsort(found_low[:, 0])
    assert np.array_equal(found_low[order], [low[label == g].min(0) for g in range(4)])
    assert np.array_equal(found_high[order], [high[label == g].max(0) for g in range(4)])


def test_crossing_bars_are_kept_apart():
    """The least union of two boxes overlaps: a cross of two bars, which no cut through its middle leaves whole."""
    thin = np.arange(9.0)
    low = np.concatenate([np.stack([thin, np.full(9, 4.0)], 1), np.stack([np.full(9, 4.0), thin], 1)])
    assert union_volume(*alpha_boxes(low, low + 1, 2)) == 17


@pytest.mark.parametrize("seed", [22, 42])
def test_boxes_behind_one_another_are_moved_together(seed):
    """Where moving one box at a time ends 7% and more above the least union."""
    rng = np.random.default_rng(seed)
    low = rng.random((10, 2))
    high = low + rng.random((10, 2)) * (0.1 if seed == 22 else 0.3)
    assert union_volume(*alpha_boxes(low, high, 2)) == pytest.approx(least_union(low, high, 2))


@pytest.mark.parametrize(
    ("count", "dims", "alpha", "size"),
    [(1, 2, 3, 0.1), (3, 2, 3, 0.1), (500, 1, 3, 0.01), (2000, 2, 5, 0.05), (10000, 2, 3, 0.3), (300, 3, 3, 0.2), (800, 4, 7, 0.2)],
)
def test_covers_with_few_boxes(count, dims, alpha, size):
    rng = np.random.default_rng(count)
    low = rng.random((count, dims))
    high = low + size * rng.random((count, dims))
    given = low.copy(), high.copy()
    found = alpha_boxes(low, high, alpha)
    assert_covers(low, high, *found, alpha)
    assert np.array_equal(low, given[0]) and np.array_equal(high, given[1])
    assert union_volume(*found) <= union_volume(*merge_boxes(low, high, alpha)) * (1 + 1e-12)
    again = alpha_boxes(low, high, alpha)
    assert np.array_equal(found[0], again[0]) and np.array_equal(found[1], again[1])


def test_points_and_repeats():
    low = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [5.0, 2.0]])
    found_low, found_high = alpha_boxes(low, low, 3)
    assert np.array_equal(found_low, found_high)
    assert sorted(map(tuple, found_low)) == [(0.0, 0.0), (1.0, 1.0), (5.0, 2.0)]


def test_no_boxes_and_no_alpha():
    empty = np.empty((0, 2))
    assert alpha_boxes(empty, empty, 3)[0].shape == (0, 2)
    with pytest.raises(ValueError, match="alpha"):
        alpha_boxes(empty, empty, 0)
