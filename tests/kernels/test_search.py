"""Local search against every plan of tiny instances, and its promises where there are too many to try."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.kernels import search
from udfs.kernels.boxes import event_share, merge_boxes
from udfs.kernels.measure import Measure, box_measure
from udfs.kernels.search import Coreset, improve, slot_boxes
from udfs.kernels.tree import BrokerTree


def broker_tree(*parent):
    tree = BrokerTree(np.arange(len(parent)), np.array(parent), np.zeros((len(parent), 1)), np.ones(1))
    return BrokerTree(tree.broker_id, tree.parent, tree.location, np.full(len(tree.leaves), 1 / len(tree.leaves)))


TREES = {
    "one level": broker_tree(-1, 0, 0, 0),
    "two levels": broker_tree(-1, 0, 0, 1, 1, 2, 2),
    "unbalanced": broker_tree(-1, 0, 0, 1, 1, 3, 3),
    "chain": broker_tree(-1, 0, 1, 2, 3, 3, 1),
    "small": broker_tree(-1, 0, 1, 1, 0),
}
VOLUME = Measure.volume()


def evaluate(core, tree, capacity, alpha, slot, measure=VOLUME):
    """(load beyond capacity, measure of every broker's rectangles), from the slots alone."""
    low, high = measure.map(core.low, core.high)
    boxes, total = {}, 0.0
    for node in range(len(tree.parent) - 1, 0, -1):
        if node in tree.leaves:
            number = int(np.flatnonzero(tree.leaves == node)[0])
            used = [slot == number * alpha + r for r in range(alpha)]
            mine = [(low[rows].min(0), high[rows].max(0)) for rows in used if rows.any()]
        else:
            below = [box for child in np.flatnonzero(tree.parent == node) for box in boxes[child]]
            merged = merge_boxes(*map(np.array, zip(*below)), alpha) if below else ((), ())
            mine = list(zip(*merged))
        boxes[node] = mine
        for box in mine:
            total += np.prod(box[1] - box[0]) if measure is VOLUME else box_measure(*box, measure.table, measure.sides)
    load = np.bincount(slot // alpha, weights=core.weight, minlength=len(tree.leaves))
    return float(np.maximum(load - capacity, 0).sum()), float(total)


def assert_valid(found, core, tree, capacity, alpha, measure=VOLUME):
    for j, slot in enumerate(found.slot):
        assert slot // alpha in core.leaf[core.start[j] : core.start[j + 1]], f"row {j} is at a leaf that is not in time"
    overload, cost = evaluate(core, tree, capacity, alpha, found.slot, measure)
    assert found.cost == pytest.approx(cost, rel=1e-9, abs=1e-12) and found.overload == pytest.approx(overload, abs=1e-9)


def every_plan(core, alpha, slot=()):
    """Every assignment of rows to slots; a leaf's slots are alike, so a new one is opened in order."""
    j = len(slot)
    if j == len(core.low):
        yield np.array(slot)
        return
    for leaf in core.leaf[core.start[j] : core.start[j + 1]]:
        for r in range(alpha):
            yield from every_plan(core, alpha, (*slot, int(leaf) * alpha + r))
            if leaf * alpha + r not in slot:
                break


def optimum(core, tree, capacity, alpha, measure=VOLUME):
    """The least (load beyond capacity, cost) of all plans."""
    best = (np.inf, np.inf)
    for slot in every_plan(core, alpha):
        load = np.bincount(slot // alpha, weights=core.weight, minlength=len(tree.leaves))
        if np.maximum(load - capacity, 0).sum() <= best[0]:
            best = min(best, evaluate(core, tree, capacity, alpha, slot, measure))
    return best


def instance(seed, leaves, rows, dims=2, density=0.7, weighted=True, side=0.4):
    rng = np.random.default_rng(seed)
    low = rng.random((rows, dims))
    high = low + side * rng.random((rows, dims))
    allowed = rng.random((rows, leaves)) < density
    allowed[np.arange(rows), rng.integers(0, leaves, rows)] = True
    weight = (rng.random(rows) < 0.8).astype(float) if weighted else np.ones(rows)
    return Coreset.of(low, high, weight, allowed), rng


def intervals(*at):
    """Unit intervals that every leaf may serve."""
    low = np.array(at, dtype=float)[:, None]
    return Coreset.of(low, low + 1, np.ones(len(at)), np.ones((len(at), 2), dtype=bool))


def random_slots(core, rng, alpha):
    """Any leaf in time, any slot of it."""
    ends = core.start[:-1] + rng.integers(0, 1 << 30, len(core.low)) % np.diff(core.start)
    return core.leaf[ends] * alpha + rng.integers(0, alpha, len(core.low))


# ---------------------------------------------------------------- the optimum of tiny instances


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(("name", "alpha", "rows"), [("one level", 1, 8), ("one level", 2, 6), ("small", 1, 7), ("small", 2, 6)])
def test_the_best_of_all_plans(name, alpha, rows, dims):
    tree, started_worse = TREES[name], 0
    for seed in range(3):
        core, rng = instance(100 * dims + seed, 3, rows, dims)
        capacity = np.full(3, np.ceil(core.weight.sum() / 3))
        best = optimum(core, tree, capacity, alpha)
        start = random_slots(core, rng, alpha)
        found = improve(core, tree, capacity, alpha, start, VOLUME, moves=40_000, heat=0.3, seed=seed)
        assert_valid(found, core, tree, capacity, alpha)
        assert (found.overload, found.cost) == (best[0], pytest.approx(best[1], rel=1e-9))
        started_worse += evaluate(core, tree, capacity, alpha, start) > (best[0], best[1] * (1 + 1e-9))
    assert started_worse == 3


def test_the_best_of_all_plans_by_events():
    rng = np.random.default_rng(5)
    points = rng.beta(2, 5, (400, 2)) * 1.4
    measure = Measure.events(points, np.ones(400), np.zeros(2), np.full(2, 1.4))
    for name in ("one level", "small"):
        core, rng = instance(6, 3, 6)
        capacity = np.full(3, np.ceil(core.weight.sum() / 3))
        best = optimum(core, TREES[name], capacity, 2, measure)
        found = improve(core, TREES[name], capacity, 2, random_slots(core, rng, 2), measure, moves=150_000, heat=0.3, seed=1)
        assert (found.overload, found.cost) == (best[0], pytest.approx(best[1], rel=1e-9))


# ---------------------------------------------------------------- what a plan says of itself


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(0, 10_000), st.sampled_from(sorted(TREES)), st.integers(1, 3), st.integers(1, 3), st.sampled_from([0.001, 0.05, 1.0, 30.0]), st.booleans()
)
def test_cost_and_overload_are_those_of_the_plan(seed, name, alpha, dims, heat, by_events):
    """Hot runs keep most steps, cold ones take most of them back: either way the figures are those of the rows' slots."""
    tree = TREES[name]
    core, rng = instance(seed, len(tree.leaves), 1 + seed % 60, dims)
    fractions = Coreset(core.low, core.high, core.weight * rng.choice([0.25, 1.0, 1.7], len(core.weight)), core.start, core.leaf)
    core = fractions if seed % 2 else core
    capacity = np.full(len(tree.leaves), core.weight.sum() / len(tree.leaves) * 1.2)
    measure = Measure.events(rng.random((200, dims)) * 1.4, np.ones(200), np.zeros(dims), np.full(dims, 1.4)) if by_events else VOLUME
    start = random_slots(core, rng, alpha)
    start[rng.random(len(start)) < 0.2] = -1
    given_start = start.copy()
    found = improve(core, tree, capacity, alpha, start, measure, moves=2000, heat=heat, seed=seed)
    assert_valid(found, core, tree, capacity, alpha, measure)
    assert np.array_equal(start, given_start) and found.moves == 2000


@pytest.mark.parametrize("name", sorted(TREES))
@pytest.mark.parametrize("heat", [0.01, 1.0])
def test_many_moves_of_many_rows(name, heat, monkeypatch):
    """In chunks, each from where the last one ended."""
    monkeypatch.setattr(search, "CHUNK", 4000)
    tree = TREES[name]
    core, rng = instance(7, len(tree.leaves), 300, side=0.1)
    capacity = np.full(len(tree.leaves), np.ceil(1.1 * core.weight.sum() / len(tree.leaves)))
    start = random_slots(core, rng, 3)
    found = improve(core, tree, capacity, 3, start, VOLUME, moves=30_000, heat=heat, seed=3)
    assert_valid(found, core, tree, capacity, 3)
    assert found.moves == 30_000 and found.overload == 0
    assert found.cost < 0.9 * evaluate(core, tree, capacity, 3, start)[1]


def test_brokers_above_a_leaf_that_was_emptied_cost_nothing(monkeypatch):
    """The row in the middle leaves its leaf, and nothing ever comes back there; in one stretch, as each begins with a new count."""
    monkeypatch.setattr(search, "CHUNKS", 1)
    low = np.array([[5.0], [0.0], [10.0]])
    core = Coreset.of(low, low + 1, np.ones(3), np.array([[1, 1], [0, 1], [0, 1]], dtype=bool))
    found = improve(core, broker_tree(-1, 0, 0, 1, 2), np.full(2, 3.0), 1, np.array([0, 1, 1]), VOLUME, moves=300, heat=0.001, seed=1)
    assert found.slot.tolist() == [1, 1, 1] and found.cost == 11.0 + 11.0


def test_more_rows_in_a_slot_than_a_step_takes_out():
    tree = TREES["small"]
    core, _ = instance(8, 3, search.MOST_REMOVED + 1500, density=1.0, side=0.02)
    capacity = np.full(3, np.ceil(core.weight.sum() / 3))
    found = improve(core, tree, capacity, 2, np.zeros(len(core.low), dtype=np.int64), VOLUME, moves=60_000, heat=0.03, seed=1)
    assert_valid(found, core, tree, capacity, 2)
    assert found.overload < core.weight.sum() - capacity[0]


# ---------------------------------------------------------------- never worse than the start


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from(sorted(TREES)), st.integers(1, 3), st.sampled_from([0.001, 0.1, 1000.0]))
def test_never_worse_than_the_start(seed, name, alpha, heat):
    tree = TREES[name]
    core, rng = instance(seed, len(tree.leaves), 20 + seed % 40)
    capacity = np.full(len(tree.leaves), np.ceil(core.weight.sum() / len(tree.leaves) * 1.2))
    cold = improve(core, tree, capacity, alpha, random_slots(core, rng, alpha), VOLUME, moves=10_000, heat=0.01, seed=seed)
    for start in (random_slots(core, rng, alpha), cold.slot):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(search, "CHUNKS", 1)  # so that a hot stretch goes far from where it started
            found = improve(core, tree, capacity, alpha, start, VOLUME, moves=2000, heat=heat, seed=seed + 1)
        overload, cost = evaluate(core, tree, capacity, alpha, start)
        assert (found.overload, found.cost) <= (overload, cost * (1 + 1e-9))  # weights are whole: loads are exact


TWO = broker_tree(-1, 0, 0)


def test_a_start_within_capacity_stays_within():
    core, start = intervals(0, 1, 100, 101, 102, 103), np.array([0, 0, 0, 1, 1, 1])
    found = improve(core, TWO, np.full(2, 3.0), 1, start, VOLUME, moves=2000, heat=0.1, seed=1)
    assert evaluate(core, TWO, np.full(2, 3.0), 1, start) == (0.0, 104.0)
    assert found.overload == 0.0


def test_an_overloaded_start_is_worked_back_into_its_limits():
    for seed in range(5):
        core, _ = instance(seed, 4, 60, density=1.0, weighted=False)
        for name in ("two levels", "unbalanced"):
            found = improve(core, TREES[name], np.full(4, 15.0), 2, np.zeros(60, dtype=np.int64), VOLUME, moves=8000, heat=0.05, seed=seed)
            assert found.overload == 0
            assert_valid(found, core, TREES[name], np.full(4, 15.0), 2)


def test_an_overloaded_start_is_worked_back_by_events_too():
    """Events are uniform, so a search by volume does nearly the same work; it ends with nothing beyond capacity."""
    core, rng = instance(1, 4, 60, density=1.0, weighted=False)
    measure = Measure.events(rng.random((2000, 2)) * 1.4, np.ones(2000), np.zeros(2), np.full(2, 1.4))
    capacity, start = np.full(4, 15.0), np.zeros(60, dtype=np.int64)
    by_events, by_volume = (
        improve(core, TREES["unbalanced"], capacity, 2, start, by, moves=30_000, heat=0.05, seed=1) for by in (measure, VOLUME)
    )
    assert by_volume.overload == 0
    assert by_events.overload == 0
    assert by_events.cost < 1.15 * evaluate(core, TREES["unbalanced"], capacity, 2, by_volume.slot, measure)[1]


def test_an_overloaded_start_is_worked_back_whatever_it_costs():
    core, start = intervals(0, 1, 2, 100, 101, 102), np.array([0, 0, 0, 1, 1, 1])
    found = improve(core, TWO, np.array([2.0, 4.0]), 1, start, VOLUME, moves=20_000, heat=0.5, seed=1)
    assert found.overload == 0.0


def test_an_overloaded_start_of_points_is_worked_back():
    points = np.arange(4.0)[:, None]
    core = Coreset.of(points, points, np.ones(4), np.ones((4, 2), dtype=bool))
    found = improve(core, TWO, np.full(2, 2.0), 4, np.arange(4), VOLUME, moves=2000, heat=0.1, seed=1)
    assert found.cost == 0.0 and found.overload == 0.0


def test_rows_without_weight_are_no_load():
    """The leaf without room takes them all, and nothing else."""
    core = intervals(0, 1, 2, 100, 101, 102)
    light = Coreset(core.low, core.high, np.array([0.0, 0, 0, 1, 1, 1]), core.start, core.leaf)
    capacity, nowhere = np.array([3.0, 0.0]), np.full(6, -1)
    found = improve(light, TWO, capacity, 1, nowhere, VOLUME, moves=1000, heat=0.1, seed=1)
    assert (found.overload, found.cost) == (0.0, 6.0) and found.slot.tolist() == [1, 1, 1, 0, 0, 0]
    assert improve(core, TWO, capacity, 1, nowhere, VOLUME, moves=1000, heat=0.1, seed=1).overload == 3.0


# ---------------------------------------------------------------- seeds, no moves, no time


def test_the_seed_decides():
    core, rng = instance(11, 4, 80)
    start, capacity = random_slots(core, rng, 2), np.full(4, 20.0)
    run = lambda seed: improve(core, TREES["two levels"], capacity, 2, start, VOLUME, moves=1500, heat=0.3, seed=seed)  # noqa: E731
    first = [run(seed) for seed in range(6)]
    again = [run(seed) for seed in range(6)]
    assert all(np.array_equal(a.slot, b.slot) and a.cost == b.cost for a, b in zip(first, again))
    assert len({a.slot.tobytes() for a in first}) >= 5


def test_without_moves_a_plan_is_only_evaluated():
    for name, tree in TREES.items():
        core, rng = instance(12, len(tree.leaves), 40)
        capacity, start = np.full(len(tree.leaves), 5.0), random_slots(core, rng, 2)
        found = improve(core, tree, capacity, 2, start, VOLUME, moves=0, heat=0.1, seed=1)
        assert np.array_equal(found.slot, start) and found.moves == 0, name
        assert (found.overload, found.cost) == pytest.approx(evaluate(core, tree, capacity, 2, start))


@pytest.mark.parametrize("name", sorted(TREES))
def test_without_moves_waiting_rows_are_placed(name):
    tree = TREES[name]
    core, rng = instance(13, len(tree.leaves), 60)
    capacity, start = np.full(len(tree.leaves), 30.0), random_slots(core, rng, 2)
    waiting = rng.random(60) < 0.5
    found = improve(core, tree, capacity, 2, np.where(waiting, -1, start), VOLUME, moves=0, heat=0.1, seed=1)
    assert_valid(found, core, tree, capacity, 2)
    assert np.array_equal(found.slot[~waiting] // 2, start[~waiting] // 2)  # the others stay at their leaves
    assert evaluate(core, tree, capacity, 2, found.slot)[1] < evaluate(core, tree, capacity, 2, start)[1]  # a random place is worse
    alone = improve(core, tree, capacity, 2, np.full(60, -1), VOLUME, moves=0, heat=0.1, seed=1)
    assert_valid(alone, core, tree, capacity, 2)


def test_a_waiting_row_goes_where_it_costs_nothing_while_there_is_room():
    core = intervals(0, 10, 4, 50)
    start = np.array([0, 0, -1, 1])
    assert improve(core, TWO, np.array([3.0, 3.0]), 1, start, VOLUME, moves=0, heat=0.1, seed=1).slot.tolist() == [0, 0, 0, 1]
    barred = Coreset.of(core.low, core.high, core.weight, np.array([[1, 1], [1, 1], [0, 1], [1, 1]], dtype=bool))
    found = improve(barred, TWO, np.array([3.0, 3.0]), 1, start, VOLUME, moves=0, heat=0.1, seed=1)
    assert found.slot.tolist() == [0, 0, 1, 1] and found.cost == 11.0 + 47.0


def test_a_waiting_row_goes_where_the_whole_path_grows_least():
    """Its leaf grows by 5 at the left and by 7 at the right, but there the broker above covers it already."""
    tree = broker_tree(-1, 0, 0, 1, 2, 2)
    low = np.array([[0.0], [12.0], [4.0], [5.0]])
    core = Coreset.of(low, low + 1, np.ones(4), np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]], dtype=bool))
    found = improve(core, tree, np.full(3, 9.0), 1, np.array([0, 1, 2, -1]), VOLUME, moves=0, heat=0.1, seed=1)
    assert found.slot.tolist() == [0, 1, 2, 1] and found.cost == 1.0 + 1.0 + (8.0 + 1.0 + 9.0)


def test_no_time_left(monkeypatch):
    """One chunk is always made, so that every waiting row has a place."""
    monkeypatch.setattr(search, "CHUNK", 1000)
    core, _ = instance(14, 4, 50)
    start, capacity = np.full(50, -1), np.full(4, 20.0)
    for moves, done in ((10**9, 1000), (0, 0)):
        began = time.time()
        found = improve(core, TREES["two levels"], capacity, 2, start, VOLUME, moves=moves, heat=0.1, seed=1, deadline=began - 1)
        assert_valid(found, core, TREES["two levels"], capacity, 2)
        assert found.moves == done and (start == -1).all() and time.time() - began < 20


def test_without_heat_only_better_steps_stay():
    core, rng = instance(16, 3, 30)
    start, capacity = random_slots(core, rng, 2), np.full(3, 12.0)
    found = improve(core, TREES["one level"], capacity, 2, start, VOLUME, moves=500, heat=0.0, seed=1)
    assert_valid(found, core, TREES["one level"], capacity, 2)


# ---------------------------------------------------------------- events


@pytest.mark.parametrize(("dims", "tolerance"), [(1, 0.002), (2, 0.01), (3, 0.02)])
def test_the_cost_by_events_is_the_share_of_events(dims, tolerance):
    tree = TREES["one level"]
    core, rng = instance(15 + dims, 3, 40, dims)
    points, weights = rng.beta(2, 4, (4000, dims)) * 1.4, rng.uniform(0.5, 1.5, 4000)
    measure = Measure.events(points, weights, core.low.min(0), core.high.max(0))
    found = improve(core, tree, np.full(3, 14.0), 2, np.full(40, -1), measure, moves=3000, heat=0.1, seed=1)
    low, high, used = slot_boxes(core.low, core.high, found.slot, 6)
    shares = [event_share(low[s : s + 1], high[s : s + 1], points, weights) for s in np.flatnonzero(used)]
    assert len(shares) >= 3 and 0.1 < sum(shares) < 6
    assert found.cost == pytest.approx(sum(shares), abs=tolerance * len(shares))


def test_events_in_a_gap_keep_it_open():
    """By volume the middle joins the left, across the small gap; by events the right, across the large gap where little happens."""
    core = intervals(0, 4, 14)
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.uniform(1.5, 3.5, 900), rng.uniform(0, 15, 100)])[:, None]
    measure = Measure.events(points, np.ones(1000), np.zeros(1), np.full(1, 15.0))
    run = lambda by: improve(core, TWO, np.full(2, 2.0), 1, np.array([0, 1, 0]), by, moves=500, heat=0.1, seed=1).slot  # noqa: E731
    left, middle, right = run(VOLUME)
    assert left == middle != right
    left, middle, right = run(measure)
    assert left != middle == right
    for by, expected in ((VOLUME, [0, 0, 1]), (measure, [0, 1, 1])):  # already when the middle is put in
        assert improve(core, TWO, np.full(2, 2.0), 1, np.array([0, -1, 1]), by, moves=0, heat=0.1, seed=1).slot.tolist() == expected


def test_a_waiting_row_goes_where_fewest_events_are_let_in():
    """Events on two quarters of a diagonal: each coordinate alone is uniform, the quarter at the upper left is empty."""
    rng = np.random.default_rng(2)
    points = rng.uniform(0, 5, (4000, 2)) + 5.0 * rng.integers(0, 2, 4000)[:, None]
    measure = Measure.events(points, np.ones(4000), np.zeros(2), np.full(2, 10.0))
    low = np.array([[1.0, 9.0], [1.0, 3.0], [4.0, 5.2]])
    core = Coreset.of(low, low + 0.1, np.ones(3), np.ones((3, 2), dtype=bool))
    for by, expected in ((VOLUME, [0, 1, 1]), (measure, [0, 1, 0])):
        assert improve(core, TWO, np.full(2, 2.0), 1, np.array([0, 1, -1]), by, moves=0, heat=0.1, seed=1).slot.tolist() == expected


# ---------------------------------------------------------------- the parts


def test_slot_boxes():
    low, high = np.array([[0.0, 5], [3, 1], [2, 2]]), np.array([[1.0, 6], [4, 2], [9, 3]])
    box_low, box_high, used = slot_boxes(low, high, np.array([2, 0, 2]), 4)
    assert used.tolist() == [True, False, True, False]
    assert box_low.tolist() == [[3, 1], [0, 0], [0, 2], [0, 0]] and box_high.tolist() == [[4, 2], [0, 0], [9, 6], [0, 0]]


def test_a_coreset_lists_the_leaves_of_each_row():
    core = Coreset.of(np.zeros((3, 1)), np.ones((3, 1)), np.array([1, 0, 1]), np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]], dtype=bool))
    assert core.start.tolist() == [0, 2, 2, 4] and core.leaf.tolist() == [0, 2, 1, 2] and core.weight.dtype == np.float64
