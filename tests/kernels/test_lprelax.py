"""LPRelax against the linear program of the paper, written out with loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from udfs.kernels.boxes import volumes
from udfs.kernels.filtergen import candidate_rectangles, contains
from udfs.kernels.lprelax import LpInstance, _pieces, dual_ascent, lp_relax, solve_exactly
from udfs.kernels.workload import DefeatsGrStar


def literal(instance):
    """The optimum of (C1)-(C4) with a variable for every x_ij and y_ik; None where it is infeasible."""
    m, n = instance.allowed.shape
    u = len(instance.cost)
    a, b = [], []

    def x(i, j):
        return n * u + i * m + j

    for i in range(n):
        row = np.zeros(n * u + n * m)
        row[i * u : (i + 1) * u] = 1
        a.append(row)
        b.append(instance.alpha)
        row = np.zeros(n * u + n * m)
        for j in range(m):
            if instance.allowed[j, i]:
                row[x(i, j)] = instance.weight[j]
        a.append(row)
        b.append(instance.capacity[i])
    for j in range(m):
        row = np.zeros(n * u + n * m)
        for i in range(n):
            if instance.allowed[j, i]:
                row[x(i, j)] = -1
                nest = np.zeros(n * u + n * m)
                nest[x(i, j)] = 1
                for k in range(u):
                    if instance.inside[j, k]:
                        nest[i * u + k] = -1
                a.append(nest)
                b.append(0)
        a.append(row)
        b.append(-1)
    cost = np.concatenate([np.tile(instance.cost, n), np.zeros(n * m)])
    found = linprog(cost, A_ub=np.array(a), b_ub=np.array(b), bounds=(0, 1), method="highs")
    return found.fun if found.status == 0 else None


def instance(seed, rows=12, brokers=3, k=6, alpha=2, lbf=1.5, density=0.6, dims=2):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 10, (rows, dims))
    high = low + rng.uniform(0.2, 3, (rows, dims))
    location = rng.uniform(0, 1, (rows, 2))
    allowed = rng.random((rows, brokers)) < density
    allowed[np.arange(rows), rng.integers(0, brokers, rows)] = True
    a, b = candidate_rectangles(location, low, high, k=k, seed=seed, most=60)
    weight = (rng.random(rows) < 0.8).astype(float)
    capacity = np.full(brokers, lbf * weight.sum() / brokers)
    return LpInstance(allowed, contains(a, b, low, high), volumes(a, b), weight, capacity, alpha)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_exact_and_dual_against_the_literal_program(seed):
    case = instance(seed, rows=8 + seed % 7, alpha=1 + seed % 3, lbf=1.1 + (seed % 5) / 5)
    optimum = literal(case)
    found = solve_exactly(case)
    if optimum is None:
        assert found is None
        return
    assert found.value == pytest.approx(optimum, rel=1e-6) and found.bound == pytest.approx(optimum, rel=1e-6)
    assert (found.y >= 0).all() and (found.y <= 1).all() and (found.y.sum(1) <= case.alpha + 1e-6).all()
    covered = np.einsum("ik,jk,ji->j", found.y, case.inside.astype(float), case.allowed.astype(float))
    assert (covered >= 1 - 1e-6).all()
    dual = dual_ascent(case, scale=optimum / len(case.weight), chunk=200, chunks=2)
    assert dual.bound <= optimum * (1 + 1e-7)


@pytest.mark.parametrize("factor", [1e4, 1e8, 1e12])
@pytest.mark.parametrize("seed", range(3))
def test_costs_of_many_orders_are_solved_exactly(seed, factor):
    """Rectangles around everything that nobody can afford change nothing: neither the optimum nor its exactness."""
    case = instance(seed, rows=60, brokers=4, k=12, alpha=2, lbf=1.5)
    optimum = solve_exactly(case).value
    inside = np.hstack([case.inside, np.ones((60, 2), dtype=bool)])
    wide = LpInstance(case.allowed, inside, np.append(case.cost, [factor * optimum, 2 * factor * optimum]), case.weight, case.capacity, 2)
    found = solve_exactly(wide)
    assert found.value == pytest.approx(optimum, rel=1e-5)
    assert optimum * (1 - 1e-5) <= found.bound <= optimum * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_dual_comes_close(seed):
    case = instance(seed, rows=150, brokers=6, k=25, alpha=3, lbf=1.3)
    exact = solve_exactly(case)
    dual = dual_ascent(case, scale=2 * exact.value / 150)
    assert 0.97 * exact.value <= dual.bound <= exact.value * (1 + 1e-7)
    assert dual.value == pytest.approx(exact.value, rel=0.06) and dual.value == pytest.approx((dual.y @ case.cost).sum())
    assert (dual.y >= 0).all() and (dual.y <= 1 + 1e-9).all() and (dual.y.sum(1) <= case.alpha + 1e-9).all()
    covered = np.einsum("ik,jk,ji->j", dual.y, case.inside.astype(float), case.allowed.astype(float))
    assert covered.min() > 0.6 and np.maximum(0, 1 - covered).mean() < 0.02
    again = dual_ascent(case, scale=2 * exact.value / 150)
    assert (again.y == dual.y).all() and again.bound == dual.bound


def test_load_binds():
    """Both rows may go to either broker, but one broker holds one row only: the second must pay for a rectangle too."""
    both = np.ones((2, 2), dtype=bool)
    one = LpInstance(both, np.ones((2, 1), dtype=bool), np.array([5.0]), np.ones(2), np.array([2.0, 2.0]), 1)
    assert solve_exactly(one).value == pytest.approx(5.0)
    two = LpInstance(both, np.ones((2, 1), dtype=bool), np.array([5.0]), np.array([1.0, 0.0]), np.array([0.25, 0.75]), 1)
    assert solve_exactly(two).value == pytest.approx(5.0)
    three = LpInstance(np.array([[True, False], [False, True]]), np.ones((2, 1), dtype=bool), np.array([5.0]), np.ones(2), np.array([1.0, 1.0]), 1)
    assert solve_exactly(three).value == pytest.approx(10.0)
    assert dual_ascent(three, scale=5.0).bound == pytest.approx(10.0, rel=0.03)


def test_infeasible():
    both, cost = np.ones((3, 2), dtype=bool), np.array([1.0])
    full = LpInstance(both, np.ones((3, 1), dtype=bool), cost, np.ones(3), np.array([1.0, 1.0]), 1)
    assert solve_exactly(full) is None and lp_relax(full, 1.0) is None
    found = dual_ascent(full, scale=1.0, chunk=800)
    assert found.bound > full.ceiling  # the dual proves it
    crowd = np.zeros((30, 25), dtype=bool)
    crowd[:, 0] = True  # one broker of many, room for 29 of 30: the ascent alone would take long to prove it
    for room, answer in ((29.0, True), (30.0, False)):
        tight = LpInstance(crowd, np.ones((30, 1), dtype=bool), cost, np.ones(30), np.full(25, room), 1)
        assert (lp_relax(tight, 1.0 / 30) is None) == answer
    nowhere = LpInstance(both, np.array([[True], [True], [False]]), cost, np.ones(3), np.array([9.0, 9.0]), 1)
    assert solve_exactly(nowhere) is None and lp_relax(nowhere, 1.0) is None


def test_equal_rows_are_merged_without_a_change():
    case = instance(5, rows=20)
    twice = LpInstance(
        np.repeat(case.allowed, 3, 0), np.repeat(case.inside, 3, 0), case.cost, np.repeat(case.weight, 3), 3 * case.capacity, case.alpha
    )
    small, count = twice.merged()
    assert len(small.weight) <= 20 and count.sum() == 60 and small.weight.sum() == twice.weight.sum()
    assert solve_exactly(twice).value == pytest.approx(solve_exactly(case).value, rel=1e-6)
    assert dual_ascent(twice, scale=1.0).bound <= solve_exactly(case).value * (1 + 1e-7)


def test_pieces_add_up_to_the_rectangles():
    case = instance(2, rows=80, k=20)
    order, part_start, parts, row_start, rows = _pieces(case.inside)
    total = []
    for k in range(len(order)):
        count = np.zeros(80, dtype=int)
        for p in parts[part_start[k] : part_start[k + 1]]:
            count += total[p]
        np.add.at(count, rows[row_start[k] : row_start[k + 1]], 1)
        total.append(count)
        assert (count == case.inside[:, order[k]]).all()
    assert len(parts) + len(rows) < 0.7 * case.inside.sum()


def test_few_brokers_are_solved_exactly_and_many_by_the_dual():
    few = instance(1, rows=40, brokers=4, k=10)
    assert lp_relax(few, 1.0).value == pytest.approx(solve_exactly(few).value, rel=1e-9)
    many = instance(1, rows=120, brokers=24, k=15)
    exact, found = solve_exactly(many), lp_relax(many, solve_exactly(many).value / 120)
    assert found.iterations % 400 == 0 and 0.95 * exact.value <= found.bound <= exact.value * (1 + 1e-7)


def test_the_workload_that_defeats_gr_star():
    """alpha = n = 3, load factor 1: the optimum is at most the plan that gives every broker its home; Gr* pays powers of ten more."""
    model = DefeatsGrStar(3, 3, 12)
    rows = model.rows(np.arange(12))
    allowed = np.ones((12, 3), dtype=bool)
    for j, interest in enumerate(rows.city):
        if interest < 9:
            allowed[j] = np.isin(np.arange(3), model.candidate_pairs()[interest])
    a, b = candidate_rectangles(rows.location, rows.low, rows.high, k=60, seed=1)
    case = LpInstance(allowed, contains(a, b, rows.low, rows.high), volumes(a, b), np.ones(12), np.full(3, 4.0), 3)
    found = solve_exactly(case)
    # home: four consecutive interests, of which the two with the gap of 10 share a rectangle of 11 x 11
    home = 3 * (11.0**2 + 2)
    assert found.value == pytest.approx(literal(case), rel=1e-6) and 12.0 <= found.value <= home
    assert lp_relax(case, 1e6).value == pytest.approx(found.value)
    # also where the unit comes from a heuristic that pays a million times the optimum
    for scale in (home / 12, 1e6 * home):
        assert 0.97 * found.value <= dual_ascent(case, scale=scale).bound <= found.value * (1 + 1e-7)


def test_wrong_shapes_and_scales_are_named():
    case = instance(1)
    with pytest.raises(ValueError, match="weight has shape"):
        LpInstance(case.allowed, case.inside, case.cost, case.weight[:-1], case.capacity, 1)
    with pytest.raises(ValueError, match="alpha=0"):
        LpInstance(case.allowed, case.inside, case.cost, case.weight, case.capacity, 0)
    with pytest.raises(ValueError, match="scale=0"):
        dual_ascent(case, scale=0.0)
