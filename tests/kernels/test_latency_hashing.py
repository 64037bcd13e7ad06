"""Latency against plain numpy; hashes are uniform and belong to the row."""

import numpy as np

from udfs.kernels.hashing import hash_ids, normals, uniforms
from udfs.kernels.latency import nearest_open, pack_sets, reach, unpack_sets
from udfs.kernels.tree import BrokerTree

rng = np.random.default_rng(3)
TREE = BrokerTree(np.arange(6) * 10, np.array([-1, 0, 0, 1, 1, 2]), rng.normal(0, 5, (6, 3)), np.array([0.5, 0.25, 0.25]))
WHERE = rng.normal(0, 5, (200, 3))


def distances():
    return np.sqrt(((WHERE[:, None, :] - TREE.location[TREE.leaves][None]) ** 2).sum(2))


def test_path_latency_adds_the_hops():
    step = lambda a, b: np.sqrt(((TREE.location[a] - TREE.location[b]) ** 2).sum())  # noqa: E731
    assert TREE.leaves.tolist() == [3, 4, 5] and TREE.leaf_ids.tolist() == [30, 40, 50]
    assert np.isclose(TREE.path_latency[4], step(0, 1) + step(1, 4))
    assert TREE.paths.tolist() == [[3, 1], [4, 1], [5, 2]]


def test_reach_by_path_and_by_last_hop():
    given = np.where(np.arange(200) % 2 == 0, np.nan, 12.0)
    for last_hop in (False, True):
        latency = distances() + (0 if last_hop else TREE.path_latency[TREE.leaves])
        limit = np.where(np.isnan(given), 1.3 * latency.min(1), 12.0)
        found = reach(WHERE, given, TREE, 0.3, last_hop)
        assert np.allclose(found.shortest, latency.min(1)) and (found.fastest == latency.argmin(1)).all()
        assert np.allclose(found.limit, limit)
        assert (found.allowed == (latency <= limit[:, None] * (1 + 1e-9) + 1e-9)).all()


def test_bitmaps_survive_the_round_trip():
    for leaves in (1, 7, 8, 9, 100):
        allowed = rng.random((20, leaves)) < 0.4
        assert (unpack_sets(pack_sets(allowed), leaves) == allowed).all()


def test_nearest_open_passes_over_leaves_that_do_not_admit_the_id():
    ids, admitted = np.arange(200), np.array([50, 10**9, 120])
    expected = np.where(ids[:, None] <= admitted[None], distances(), np.inf).argmin(1)
    leaves = np.ascontiguousarray(TREE.location[TREE.leaves])
    assert (nearest_open(WHERE, ids, leaves, admitted) == expected).all()
    assert (nearest_open(WHERE, ids, leaves, np.full(3, -1)) == -1).all()


def test_capacities_do_not_lose_a_place_to_rounding():
    assert BrokerTree.capacities(np.full(3, 1 / 3), 300, 1.0).tolist() == [100, 100, 100]
    assert BrokerTree.capacities(np.full(3, 1 / 3), 100, 1.0).tolist() == [33, 33, 33]


def test_hashes_depend_on_seed_stream_and_id_alone():
    ids = np.arange(200_000)
    u = uniforms(7, 1, ids)
    assert (u[1234:1240] == uniforms(7, 1, ids[1234:1240])).all()
    assert u.min() > 0 and u.max() < 1
    assert np.abs(np.histogram(u, 20, (0, 1))[0] / 10_000 - 1).max() < 0.05
    for other in (uniforms(8, 1, ids), uniforms(7, 2, ids), np.roll(u, 1)):
        assert abs(np.corrcoef(u, other)[0, 1]) < 0.01
    assert len(np.unique(hash_ids(7, 1, ids))) == len(ids)
    z = normals(7, 5, ids, 2)
    assert np.abs(z.mean(0)).max() < 0.01 and np.abs(z.std(0) - 1).max() < 0.01
