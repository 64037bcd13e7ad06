"""The properties the paper states of its workloads."""

import numpy as np
import pytest

from udfs.kernels.boxes import union_volume
from udfs.kernels.greedy import greedy
from udfs.kernels.latency import pack_sets, reach
from udfs.kernels.placement import place_brokers, tree_of
from udfs.kernels.workload import SetOne, SetThree, SetTwo

IDS = np.arange(20_000)


def test_rows_depend_on_their_id_alone():
    for model in (SetOne(3, True, False), SetTwo(3), SetThree(3)):
        whole, part = model.rows(IDS), model.rows(IDS[500:510])
        assert (whole.location[500:510] == part.location).all() and (whole.low[500:510] == part.low).all()
        assert (whole.low <= whole.high).all()


def test_continents_are_four_to_one_to_four():
    share = np.bincount(SetOne(1, True, True).rows(IDS).city // 20, minlength=3) / len(IDS)
    assert np.abs(share - np.array([4, 1, 4]) / 9).max() < 0.02


def test_set_two_has_fifty_unit_squares_with_ten_places_each():
    rows = SetTwo(1).rows(IDS)
    assert np.allclose(rows.high - rows.low, 1) and len(np.unique(rows.low, axis=0)) == 50
    assert len(np.unique(rows.location, axis=0)) == 500


def test_set_three_centres_are_cell_centres_and_hot_spots_follow_zipf():
    rows = SetThree(1).rows(IDS)
    centre = (rows.low + rows.high) / 2 / 2500 - 0.5
    assert np.allclose(centre, np.round(centre))
    counts = np.sort(np.unique(np.round(centre), axis=0, return_counts=True)[1])[::-1]
    assert len(counts) == 100 and np.isclose(counts[0] / counts[24], 5, rtol=0.25)  # (25 / 1) ** 0.5


@pytest.mark.parametrize("broad", [False, True])
def test_interest_skew_lowers_bandwidth_about_threefold(broad):
    ratios = [_gr_star_bandwidth(seed, False, broad) / _gr_star_bandwidth(seed, True, broad) for seed in (1, 2, 3)]
    assert 2.2 < np.mean(ratios) < 4.2


def _gr_star_bandwidth(seed, skewed, broad):
    model = SetOne(seed, skewed, broad)
    sample, rows = model.rows(IDS), model.rows(np.arange(100_000))
    tree, met = place_brokers(sample.location, sample.city, model.publisher, 100, out_degree=0, max_delay=0.3, lbf=1.08, seed=seed)
    assert met
    within = reach(rows.location, rows.max_latency, tree, 0.3, last_hop=False)
    found = greedy(tree, rows.low, rows.high, pack_sets(within.allowed), within.fastest, alpha=3, lbf=1.5, lbf_max=1.8, reorder=True)
    assert found.complete
    f = found.filters
    return sum(union_volume(f.low[i, : f.count[i]], f.high[i, : f.count[i]]) for i in range(101))


def test_trees_keep_the_out_degree_and_lose_no_broker():
    spots = np.random.default_rng(1).normal(0, 30, (200, 5))
    tree = tree_of(np.zeros(5), spots, 15)
    assert len(tree.parent) == 201 and np.bincount(tree.parent[1:]).max() <= 15
    assert (tree.parent[1:] < np.arange(1, 201)).all()
    assert {tuple(x) for x in tree.location[1:]} == {tuple(x) for x in spots}
    assert np.isclose(tree.share.sum(), 1) and len(tree.share) == len(tree.leaves)
