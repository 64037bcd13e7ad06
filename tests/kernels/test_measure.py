"""What a box costs, against products of sides and counts of events."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.kernels.boxes import event_share
from udfs.kernels.measure import Measure, box_measure

COUNT = 2000
"""One less is a prime: no quantile of the grid but the first and the last is an event itself."""


def events(dims, seed=0):
    """(measure, events, weights, corners of the box around them): dense towards one corner."""
    rng = np.random.default_rng(seed)
    points, weights = rng.beta(2, 5, (COUNT, dims)) * 10, rng.uniform(0.1, 2, COUNT)
    low, high = np.full(dims, -1.0), np.full(dims, 11.0)
    return Measure.events(points, weights, low, high), points, weights, low, high


def shares(low, high, points, weights):
    return np.array([event_share(a[None], b[None], points, weights) for a, b in zip(low, high)])


def random_boxes(rng, count, dims, reach=12.0):
    ends = np.sort(rng.uniform(-1, reach - 1, (2, count, dims)), axis=0)
    return ends[0], ends[1]


# ---------------------------------------------------------------- volumes


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
def test_the_volume_is_the_product_of_the_sides(dims):
    rng = np.random.default_rng(dims)
    low, high = random_boxes(rng, 50, dims)
    measure = Measure.volume()
    expected = [np.prod([high[r, k] - low[r, k] for k in range(dims)]) for r in range(50)]
    assert measure.of(low, high) == pytest.approx(expected, rel=1e-12)
    assert all(np.array_equal(*pair) for pair in zip(measure.map(low, high), (low, high)))
    assert box_measure(low[0], high[0], measure.table, measure.sides) == pytest.approx(expected[0], rel=1e-12)


# ---------------------------------------------------------------- shares of events


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_exact_where_faces_lie_on_grid_lines(dims):
    measure, points, weights, _, _ = events(dims)
    rng = np.random.default_rng(1)
    sides = []
    for line in measure.lines:
        usable = np.delete(np.arange(len(line)), len(line) - 2)  # all but the line through the last event
        sides.append(line[np.sort(rng.choice(usable, (100, 2)), axis=1)])
    low, high = (np.stack([side[:, end] for side in sides], axis=1) for end in (0, 1))
    expected = shares(low, high, points, weights)
    assert measure.of(low, high) == pytest.approx(expected, abs=1e-5 + (dims == 1) * weights.max() / weights.sum())  # in one dimension lines go through events
    assert (expected > 0.05).sum() > 5


@pytest.mark.parametrize(("dims", "tolerance"), [(1, 0.001), (2, 0.004), (3, 0.025)])
def test_close_to_the_share_of_any_box(dims, tolerance):
    measure, points, weights, _, _ = events(dims)
    low, high = random_boxes(np.random.default_rng(2), 300, dims)
    expected = shares(low, high, points, weights)
    assert np.abs(measure.of(low, high) - expected).max() < tolerance
    assert (expected > 4 * tolerance).mean() > 0.1


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_everything_is_one_and_nothing_is_none(dims):
    measure, _, _, low, high = events(dims)
    assert measure.of(low[None], high[None]) == pytest.approx(1.0, abs=1e-5)
    assert measure.of(low[None] - 100, high[None] + 100) == pytest.approx(1.0, abs=1e-12)
    point = np.full((1, dims), 2.0)
    assert measure.of(point, point) == pytest.approx(0.0, abs=1e-12)
    assert measure.of(np.full((1, dims), 10.5), high[None]) == pytest.approx(0.0, abs=1e-3)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_a_box_inside_another_costs_no_more(seed, dims):
    measure = events(dims)[0]
    rng = np.random.default_rng(seed)
    low, high = random_boxes(rng, 100, dims)
    share_low, share_high = rng.random((2, 100, dims)) * (rng.random((2, 100, dims)) < 0.7)
    middle = (low + high) / 2
    inner_low, inner_high = low + share_low * (middle - low), high - share_high * (high - middle)
    assert (measure.of(inner_low, inner_high) <= measure.of(low, high) + 1e-12).all()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_map_keeps_the_order(dims):
    measure, points, _, low, high = events(dims)
    rng = np.random.default_rng(3)
    corners = np.sort(np.vstack([low, high, points[:50], rng.uniform(low, high, (500, dims))]), axis=0)
    below, above = measure.map(corners, corners)
    for mapped in (below, above):
        assert (np.diff(mapped, axis=0)[np.diff(corners, axis=0) > 0] > 0).all()
    assert (below < above).all()  # faces move outwards
    for k in range(dims):
        assert below[:, k].min() >= 0 and above[:, k].max() <= len(measure.lines[k]) - 1


def test_weights_count():
    points = np.array([[1.0], [2.0], [3.0], [4.0]])
    measure = Measure.events(points, np.array([1.0, 0.0, 2.0, 5.0]), np.zeros(1), np.full(1, 5.0))
    assert measure.of(np.array([[0.0], [2.5]]), np.array([[2.5], [5.0]])) == pytest.approx([1 / 8, 7 / 8], abs=1e-4)


# ---------------------------------------------------------------- events that share coordinates


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("equal", [False, True])
def test_repeated_coordinates_keep_the_promises(dims, equal):
    """Whole numbers; with ``equal``, the first coordinate is the same for all events."""
    rng = np.random.default_rng(dims)
    points = rng.integers(0, 6, (500, dims)).astype(float)
    points[:, 0] = 3.0 if equal else points[:, 0]
    measure = Measure.events(points, np.ones(500), np.full(dims, -1.0), np.full(dims, 8.0))
    assert all((np.diff(line) > 0).all() for line in measure.lines) and (measure.sides >= 2).all()
    low, high = random_boxes(rng, 100, dims, 9.0)
    inner_low, inner_high = low + 0.2 * (high - low), high - 0.1 * (high - low)
    assert (measure.of(inner_low, inner_high) <= measure.of(low, high) + 1e-12).all()
    assert measure.of(np.full((1, dims), -1.0), np.full((1, dims), 8.0)) == pytest.approx(1.0, abs=1e-5)
    assert (measure.of(low, high) >= 0).all() and (measure.of(low, high) <= 1 + 1e-12).all()


def test_closed_boxes_hold_the_events_on_their_faces():
    rng = np.random.default_rng(1)
    points = rng.integers(0, 6, (500, 1)).astype(float)
    measure = Measure.events(points, np.ones(500), np.zeros(1), np.full(1, 8.0))
    low, high = np.array([[0.0], [2.0], [3.0]]), np.array([[2.0], [4.0], [3.0]])
    assert measure.of(low, high) == pytest.approx(shares(low, high, points, np.ones(500)), abs=0.01)


def test_the_whole_box_is_one_where_events_lie_on_its_high_face():
    points = np.array([[0.0], [1.0], [1.0], [1.0]])
    measure = Measure.events(points, np.ones(4), np.zeros(1), np.ones(1))
    assert measure.of(np.zeros((1, 1)), np.ones((1, 1))) == pytest.approx(1.0, abs=1e-5)


def test_subscriptions_and_events_in_one_hyperplane():
    rng = np.random.default_rng(1)
    points = np.stack([rng.random(300) * 10, np.full(300, 2.0)], axis=1)
    measure = Measure.events(points, np.ones(300), np.array([0.0, 2.0]), np.array([10.0, 2.0]))
    low, high = np.array([[0.0, 2.0], [0.0, 2.0]]), np.array([[10.0, 2.0], [5.0, 2.0]])
    assert measure.of(low, high) == pytest.approx(shares(low, high, points, np.ones(300)), abs=0.01)
