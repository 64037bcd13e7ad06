"""The alpha-aware drop: what must hold after it, by counting and by a maximum flow, and the optimum on tiny inputs."""

from itertools import product

import numpy as np
import pytest

from udfs.kernels.boxes import merge_boxes, union_volume
from udfs.kernels.drop import drop_rectangles, merged_volume
from udfs.kernels.flow import assign_sets


def covering(chosen, allowed, inside):
    return allowed & (inside.astype(np.int64) @ chosen.T.astype(np.int64) > 0)


def volume(chosen, low, high, alpha):
    return sum(union_volume(*merge_boxes(low[mine], high[mine], alpha)) for mine in chosen)


def placed(chosen, allowed, inside, weight, capacity):
    return assign_sets(covering(chosen, allowed, inside), weight.astype(np.int64), capacity)[1]


def instance(rng, rows, brokers, rectangles, pairs, slack, weighty=0.8, reach=3):
    """Rows are small boxes in clusters; a rectangle is centred on a row; every row is covered and, nearly always, placed."""
    point = rng.random((5, 2))[rng.integers(0, 5, rows)] + rng.normal(0, 0.05, (rows, 2))
    centre, half = point[rng.integers(0, rows, rectangles)], rng.random((rectangles, 2)) * 0.2
    low, high = centre - half, centre + half
    allowed = np.argsort(rng.random((rows, brokers)), 1) < min(reach, brokers)
    chosen = np.zeros((brokers, rectangles), dtype=bool)
    chosen.flat[rng.permutation(brokers * rectangles)[:pairs]] = True
    inside = ((low[None] <= point[:, None]) & (point[:, None] <= high[None])).all(2)
    weight = (rng.random(rows) < weighty).astype(np.int64)
    return chosen, low, high, allowed, inside, weight, np.full(brokers, int(np.ceil(slack * weight.sum() / brokers))), 3


def check(case):
    chosen, low, high, allowed, inside, weight, capacity, alpha = case
    kept = drop_rectangles(*case)
    assert kept.shape == chosen.shape and not (kept & ~chosen).any()
    assert np.array_equal(covering(kept, allowed, inside).any(1), covering(chosen, allowed, inside).any(1))
    assert placed(kept, allowed, inside, weight, capacity) == placed(chosen, allowed, inside, weight, capacity)
    assert volume(kept, low, high, alpha) <= volume(chosen, low, high, alpha) + 1e-9
    assert merged_volume(kept, low, high, alpha) == pytest.approx(volume(kept, low, high, alpha))
    assert np.array_equal(kept, drop_rectangles(*case))
    return kept


@pytest.mark.parametrize("slack", [1.02, 1.3, 3.0])
@pytest.mark.parametrize("weighty", [0.0, 0.5, 1.0])
def test_rows_stay_covered_and_placed(slack, weighty):
    rng = np.random.default_rng(int(10 * slack + 100 * weighty))
    for _ in range(6):
        case = instance(rng, 150, int(rng.integers(1, 9)), 60, 150, slack, weighty)
        kept = check(case)
        assert kept.sum() < case[0].sum()
        assert volume(kept, case[1], case[2], 3) < volume(case[0], case[1], case[2], 3)


def test_more_brokers_than_a_word_has_bits():
    rng = np.random.default_rng(1)
    case = instance(rng, 3000, 140, 200, 3000, 1.1, 1.0, 12)
    kept = check(case)
    assert volume(kept, case[1], case[2], 3) < 0.6 * volume(case[0], case[1], case[2], 3)


UNIT = np.array([[0.0], [10.0], [20.0]]), np.array([[1.0], [12.0], [21.0]])


def test_a_redundant_rectangle_goes():
    # rows 0, 1 in rectangle 0; row 2 in rectangle 1; both brokers hold both, either could serve all
    chosen = np.array([[True, True, False], [True, True, False]])
    inside = np.array([[True, False, False], [True, False, False], [False, True, False]])
    kept = drop_rectangles(chosen, *UNIT, np.ones((3, 2), bool), inside, np.ones(3), np.array([3, 3]), 2)
    assert kept.sum(0).tolist() == [1, 1, 0]


def test_a_rectangle_stays_where_capacity_needs_it():
    chosen = np.array([[True, True, False], [True, True, False]])
    inside = np.array([[True, False, False], [True, False, False], [False, True, False]])
    # two places each: rectangle 0's two rows and the other one need a place, so the wide rectangle 1 is needed once
    kept = drop_rectangles(chosen, *UNIT, np.ones((3, 2), bool), inside, np.ones(3), np.array([2, 2]), 2)
    assert kept.sum(0).tolist() == [1, 1, 0]
    # one place at broker 0, two at broker 1, all three rows in rectangle 0: both brokers need it
    inside[2] = [True, False, False]
    kept = drop_rectangles(chosen, *UNIT, np.ones((3, 2), bool), inside, np.ones(3), np.array([1, 2]), 2)
    assert kept.tolist() == [[True, False, False], [True, False, False]]
    # rows that only have to be covered need no capacity
    kept = drop_rectangles(chosen, *UNIT, np.ones((3, 2), bool), inside, np.zeros(3), np.array([0, 0]), 2)
    assert kept.sum() == 1 and kept[:, 0].any()


def test_a_chain_of_rows_moves_to_make_room():
    # broker 0 holds the wide rectangle 1 for row 0 only; row 0 fits at broker 1 if row 1 moves on to broker 2
    low, high = np.array([[0.0], [10.0]]), np.array([[1.0], [15.0]])
    chosen = np.array([[False, True], [True, False], [True, False]])
    allowed = np.array([[True, True, False], [False, True, True]])
    inside = np.array([[True, True], [True, False]])
    kept = drop_rectangles(chosen, low, high, allowed, inside, np.ones(2), np.array([1, 1, 1]), 1)
    assert kept.tolist() == [[False, False], [True, False], [True, False]]
    kept = drop_rectangles(chosen, low, high, allowed, inside, np.ones(2), np.array([1, 1, 0]), 1)
    assert kept.tolist()[0] == [False, True], "no room at the end of the chain"


def test_two_that_hide_each_other_go_together():
    # broker 0 at alpha 1: deleting one of the far rectangles gains nothing, the other reaches as far; broker 1 must hold both
    low, high = np.array([[0.0, 0.0], [8.0, 0.0], [7.0, 0.0]]), np.array([[1.0, 1.0], [9.0, 1.0], [9.0, 0.8]])
    chosen = np.array([[True, True, True], [False, True, True]])
    inside = np.eye(3, dtype=bool)[[0, 1, 2, 1, 2]]
    allowed = np.array([[True, False], [True, True], [True, True], [False, True], [False, True]])
    kept = drop_rectangles(chosen, low, high, allowed, inside, np.ones(5), np.array([3, 4]), 1)
    assert kept.tolist() == [[True, False, False], [False, True, True]]
    kept = drop_rectangles(chosen, low, high, allowed, inside, np.ones(5), np.array([3, 3]), 1)
    assert np.array_equal(kept, chosen), "one of the two cannot leave, so nothing is gained by the other"


def test_what_costs_nothing_stays():
    # rectangle 1 lies in the box that rectangles 0 and 2 are merged to: dropping it saves nothing
    low, high = np.array([[0.0], [4.0], [9.0]]), np.array([[1.0], [5.0], [10.0]])
    chosen, inside = np.array([[True, True, True], [False, True, False]]), np.eye(3, dtype=bool)
    allowed = np.array([[True, False], [True, True], [True, False]])
    kept = drop_rectangles(chosen, low, high, allowed, inside, np.ones(3), np.array([3, 3]), 1)
    assert kept.tolist() == [[True, True, True], [False, False, False]]


def best_subset(case):
    chosen, low, high, allowed, inside, weight, capacity, alpha = case
    pairs = np.argwhere(chosen)
    rows, flow = covering(chosen, allowed, inside).any(1), placed(chosen, allowed, inside, weight, capacity)
    best = np.inf
    for keep in product([False, True], repeat=len(pairs)):
        some = np.zeros_like(chosen)
        some[tuple(pairs[np.array(keep)].T)] = True
        if np.array_equal(covering(some, allowed, inside).any(1), rows):
            value = volume(some, low, high, alpha)
            if value < best and placed(some, allowed, inside, weight, capacity) == flow:
                best = value
    return best


def test_near_the_best_subset_of_pairs():
    rng = np.random.default_rng(4)
    ratios = []
    for _ in range(40):
        case = instance(rng, 8, 3, 4, 7, 1.2)[:-1] + (int(rng.integers(1, 3)),)
        kept = check(case)
        best = best_subset(case)
        if best > 0:
            ratios.append(volume(kept, case[1], case[2], case[-1]) / best)
    assert len(ratios) > 25
    assert min(ratios) > 1 - 1e-9
    assert np.mean(np.array(ratios) < 1 + 1e-9) > 0.7
    assert np.mean(ratios) < 1.15


def test_nothing_chosen_and_bad_weights():
    none = np.zeros((2, 3), dtype=bool)
    arguments = (*UNIT, np.ones((1, 2), bool), np.ones((1, 3), bool))
    assert not drop_rectangles(none, *arguments, np.ones(1), np.array([1, 1]), 2).any()
    with pytest.raises(ValueError, match="weight"):
        drop_rectangles(none, *arguments, np.array([2]), np.array([1, 1]), 2)
