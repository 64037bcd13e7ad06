"""Candidate rectangles: coverage, the scan of the paper against a literal one, boxes that are MEBs of what they hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.kernels.filtergen import SCALES, candidate_rectangles, contains, interval_family, super_subscriptions


def boxes(seed, rows, dims, network=3):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 100, (rows, dims))
    return rng.normal(size=(rows, network)), low, low + rng.exponential(5, (rows, dims))


def inside(a, b, low, high):
    return ((low >= a) & (high <= b)).all(1)


def literal_family(low, high, eta):
    """Section IV-A.3, word by word, for intervals whose lengths differ by less than 2^SCALES."""
    found = {(low.min(), high.max())}
    extent, shortest = high.max() - low.min(), (high - low).min()
    j = 1
    while shortest * 2**j <= extent * (1 + 1e-9):
        length = shortest * 2**j
        some = [(a, b) for a, b in zip(low, high) if b - a <= length / 2]
        points = sorted({a for a, _ in some})
        while points:
            p = points[0]
            points = [q for q in points if q > p + (1 - eta) * length]
            held = [(a, b) for a, b in some if a >= p and b <= p + length]
            found.add((min(a for a, _ in held), max(b for _, b in held)))
        j += 1
    return found


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.7]))
def test_the_family_is_that_of_the_paper(seed, eta):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 50, int(rng.integers(1, 30)))
    high = low + rng.uniform(0.5, 20, len(low))
    left, right = interval_family(low, high, eta)
    assert set(zip(left.tolist(), right.tolist())) == literal_family(low, high, eta)
    assert ((left[:, None] <= low) & (right[:, None] >= high)).any(0).all()


def test_points_and_huge_ratios_stay_few():
    low = np.concatenate([np.linspace(0, 1, 200), [0.0, 1e12]])
    high = low.copy()
    high[200] = 1e12
    left, right = interval_family(low, high)
    assert len(left) <= 2 * SCALES and ((left[:, None] <= low) & (right[:, None] >= high)).any(0).all()
    same = interval_family(np.zeros(5), np.zeros(5))
    assert same[0].tolist() == [0.0] and same[1].tolist() == [0.0]


def test_contains_is_the_definition():
    _, low, high = boxes(1, 50, 3)
    _, a, b = boxes(2, 20, 3)
    b += 30
    expected = np.array([[bool((a[k] <= low[j]).all() and (high[j] <= b[k]).all()) for k in range(20)] for j in range(50)])
    assert (contains(a, b, low, high) == expected).all() and 0 < expected.sum() < expected.size


def test_super_subscriptions_cover_and_follow_place_and_interest():
    location, low, high = boxes(3, 400, 2)
    a, b = super_subscriptions(location, low, high, 30, 1)
    assert 15 < len(a) <= 30 and contains(a, b, low, high).any(1).all()
    again = super_subscriptions(location, low, high, 30, 1)
    assert (a == again[0]).all() and (b == again[1]).all()
    # two places x two interests, far apart: four clusters, whose boxes are the two interests' MEBs
    place = np.repeat([0.0, 50.0], 20)[:, None] + np.linspace(0, 1, 40)[:, None]
    event = np.tile([0.0, 50.0], 20)[:, None]
    a, b = super_subscriptions(place, event, event + 1, 4, 1)
    assert a.tolist() == [[0.0], [50.0]] and b.tolist() == [[1.0], [51.0]]


def test_few_rows_are_their_own_super_subscriptions():
    low = np.array([[1.0], [0.0], [1.0]])
    a, b = super_subscriptions(np.zeros((3, 2)), low, low + 1, 3, 0)
    assert a.tolist() == [[0.0], [1.0]] and b.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
@pytest.mark.parametrize("most", [6000, 60])
def test_rectangles_cover_and_are_shrunk(dims, most):
    location, low, high = boxes(dims, 300, dims)
    a, b = candidate_rectangles(location, low, high, k=40, seed=5, most=most)
    assert 40 < len(a) <= most or dims == 1
    both = np.hstack([a, b])
    assert len(np.unique(both, axis=0)) == len(both)
    held = contains(a, b, low, high)
    assert held.any(1).all()
    for k in range(len(a)):
        some = inside(a[k], b[k], low, high)
        assert some.any() and (low[some].min(0) == a[k]).all() and (high[some].max(0) == b[k]).all()
    assert ((a == low.min(0)).all(1) & (b == high.max(0)).all(1)).any()
    base_low, base_high = super_subscriptions(location, low, high, 40, 5)
    assert contains(a, b, base_low, base_high).any(1).all()
    again = candidate_rectangles(location, low, high, k=40, seed=5, most=most)
    assert (a == again[0]).all() and (b == again[1]).all()


def test_the_product_of_the_families_is_there():
    location, low, high = boxes(9, 120, 2)
    base = super_subscriptions(location, low, high, 20, 3)
    families = [interval_family(base[0][:, d], base[1][:, d]) for d in range(2)]
    expected = set()
    for x in zip(*families[0]):
        for y in zip(*families[1]):
            some = inside(np.array([x[0], y[0]]), np.array([x[1], y[1]]), low, high)
            if some.any():
                expected.add((*low[some].min(0), *high[some].max(0)))
    a, b = candidate_rectangles(location, low, high, k=20, seed=3)
    got = {tuple(row) for row in np.hstack([a, b]).tolist()}
    assert expected <= got and len(got - expected) <= len(base[0]) + 1


def test_one_row_and_no_row():
    a, b = candidate_rectangles(np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)), k=5, seed=0)
    assert a.tolist() == [[0.0, 0.0]] and b.tolist() == [[1.0, 1.0]]
    assert candidate_rectangles(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2)), k=5, seed=0)[0].shape == (0, 2)
    with pytest.raises(ValueError, match=r"eta=0\.2"):
        candidate_rectangles(np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)), k=5, seed=0, eta=0.2)
