"""LPRelax (section IV-A.1 of Yu, Agarwal, Yang, ICDE): the fractional filter assignment, exactly or by ascent of its dual.

Minimise sum cost_k y_ik subject to (C1) at most alpha rectangles a broker, (C2) every row assigned, (C3) load within
capacity, (C4) a row only at a broker whose rectangles contain it; x, y in [0, 1].

With u_j for (C2) and v_i for (C3) the dual is

    D(u, v) = sum_j u_j - sum_i cap_i v_i - sum_i (the alpha largest positive parts over k of
              [ sum over rows j in R_k that i may serve of max(0, u_j - w_j v_i) - cost_k ]),

rows + brokers variables without (C1) and (C4), and every u, v >= 0 gives a bound. The y that attain the inner maximum are
its subgradient; averaged over an ascent they tend to an optimal y.

Rows with the same brokers and the same rectangles are one row with their summed weight: averaging their x keeps
every constraint, so the optimum is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array

from udfs.kernels.compiled import compiled
from udfs.kernels.flow import assign_sets

__all__ = ["SMALL", "Fractional", "LpInstance", "dual_ascent", "lp_relax", "solve_exactly"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SMALL = 20
"""Most brokers for which the exact solver is tried."""
AFFORDABLE = 150_000
"""Most non-zeros of (C4) for the exact solver: a second or two."""
COARSE = 1e-3
"""An optimum below this many units is solved for again, in units of itself."""
UNITS = 10_000_000
"""The load in all as whole numbers, for the flow."""
DECAY = 0.9
FIRST_STEP, AGAIN_STEP, LAST_STEP = 0.3, 0.1, 0.005
"""Relative steps: of the first chunk, of later ones, at the end of a chunk."""
FLOOR_U, FLOOR_V = 0.03, 0.3
"""A variable near 0 moves as if it were this large, in units of a typical u."""
FARTHEST = 100.0
"""A typical u is at most this many times the mean one of the start."""


@dataclass(frozen=True)
class LpInstance:
    """Rows are the sampled subscribers, columns brokers (n) or candidate rectangles (u)."""

    allowed: Bools
    """(m, n) whether the broker is in time for the row."""
    inside: Bools
    """(m, u) whether the rectangle contains the row's subscription."""
    cost: Floats
    """(u,) volume of each rectangle."""
    weight: Floats
    """(m,) load of each row: 1 in S_b, 0 for rows that must only be covered."""
    capacity: Floats
    """(n,) most load of each broker."""
    alpha: int

    def __post_init__(self) -> None:
        rows, brokers = self.allowed.shape
        expected = {"inside": (rows, len(self.cost)), "weight": (rows,), "capacity": (brokers,)}
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has shape {getattr(self, name).shape}, expected {shape} from allowed and cost")
        if self.alpha < 1:
            raise ValueError(f"alpha={self.alpha} must be at least 1")
        if (self.weight < 0).any() or (self.cost < 0).any():
            raise ValueError("weight and cost must not be negative")

    @property
    def coverable(self) -> bool:
        """Whether every row has a broker and a rectangle."""
        return bool(self.allowed.any(1).all() and self.inside.any(1).all())

    @property
    def ceiling(self) -> float:
        """No feasible y costs more: a bound above it proves that there is none."""
        return float(len(self.capacity) * np.sort(self.cost)[-self.alpha :].sum())

    def merged(self) -> tuple[LpInstance, Floats]:
        """The instance with equal rows as one, and how many each stands for."""
        key = np.packbits(np.hstack([self.allowed, self.inside]), axis=1)
        pad = np.zeros((len(key), -key.shape[1] % 8), dtype=np.uint8)
        words = np.ascontiguousarray(np.hstack([key, pad]))
        _, first, group = np.unique(words.view([("", f"V{words.shape[1]}")]).ravel(), return_index=True, return_inverse=True)
        order = np.argsort(first)  # groups in the order of their first rows, whatever the order of the keys
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        group = position[group.ravel()]
        first = first[order]
        count = np.bincount(group, minlength=len(first)).astype(float)
        weight = np.bincount(group, weights=self.weight, minlength=len(first)).astype(float)
        return LpInstance(self.allowed[first], self.inside[first], self.cost, weight, self.capacity, self.alpha), count


@dataclass(frozen=True)
class Fractional:
    """A fractional filter assignment."""

    y: Floats
    """(n, u) the share of each rectangle in each broker's filter."""
    value: float
    """Cost of ``y``."""
    bound: float
    """No feasible y of this instance costs less."""
    iterations: int


def lp_relax(instance: LpInstance, scale: float) -> Fractional | None:
    """The exact solver for few brokers and an affordable size, the dual's ascent otherwise; None where nothing is feasible."""
    if not instance.coverable or not _placeable(instance):
        return None
    if len(instance.capacity) <= SMALL:
        merged, _ = instance.merged()
        if _nonzeros(merged) <= AFFORDABLE:
            return solve_exactly(instance)
    found = dual_ascent(instance, scale=scale)
    return None if found.bound > instance.ceiling * (1 + 1e-9) else found


def _placeable(instance: LpInstance) -> bool:
    """Whether the loads fit the brokers in time, filters aside; False is a proof: loads are rounded down, capacities up."""
    loaded = instance.weight > 0
    if not loaded.any():
        return True
    sets, group = np.unique(np.packbits(instance.allowed[loaded], axis=1), axis=0, return_inverse=True)
    load = np.bincount(group.ravel(), weights=instance.weight[loaded], minlength=len(sets))
    unit = load.sum() / UNITS
    counts, room = np.floor(load / unit).astype(np.int64), np.ceil(np.maximum(instance.capacity, 0) / unit).astype(np.int64)
    members = np.unpackbits(sets, axis=1, count=len(room)).astype(bool)
    return assign_sets(members, counts, np.minimum(room, 2 * UNITS))[1] == int(counts.sum())


def _nonzeros(instance: LpInstance) -> int:
    return int((instance.allowed.sum(1) * instance.inside.sum(1)).sum())


def solve_exactly(instance: LpInstance) -> Fractional | None:
    """The optimum by HiGHS; None where the instance is infeasible. The bound is the dual's value at the solver's prices, so it
    holds whatever the solver's tolerances are."""
    if not instance.coverable:
        return None
    small, _ = instance.merged()
    rows, brokers = small.allowed.shape
    rectangles = len(small.cost)
    # a broker needs a variable only for the rectangles that hold a row it may serve
    useful = (small.allowed.astype(np.float32).T @ small.inside.astype(np.float32)) > 0
    y_of = np.full((brokers, rectangles), -1)
    y_of[useful] = np.arange(int(useful.sum()))
    pair_row, pair_broker = np.nonzero(small.allowed)
    pairs, shares = len(pair_row), int(useful.sum())
    x_at = shares + np.arange(pairs)
    share_broker, share_rectangle = np.nonzero(useful)
    # (C4): x of a pair minus the y of the rectangles that contain its row
    row_start = np.concatenate([[0], np.cumsum(small.inside.sum(1))])
    rectangle_of = np.nonzero(small.inside)[1]
    many = small.inside.sum(1)[pair_row]
    within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    nest_row = np.repeat(np.arange(pairs), many)
    nest_column = y_of[np.repeat(pair_broker, many), rectangle_of[np.repeat(row_start[pair_row], many) + within]]
    at = 0
    entries = []
    entries.append((share_broker, np.arange(shares), np.ones(shares)))
    at += brokers
    entries.append((at + pair_row, x_at, -np.ones(pairs)))
    at += rows
    entries.append((at + pair_broker, x_at, small.weight[pair_row]))
    at += brokers
    entries.append((at + np.arange(pairs), x_at, np.ones(pairs)))
    entries.append((at + nest_row, nest_column, -np.ones(len(nest_row))))
    at += pairs
    data = np.concatenate([e[2] for e in entries])
    index = (np.concatenate([e[0] for e in entries]), np.concatenate([e[1] for e in entries]))
    matrix = coo_array((data, index), shape=(at, shares + pairs)).tocsc()
    limit = np.concatenate([np.full(brokers, float(small.alpha)), -np.ones(rows), small.capacity, np.zeros(pairs)])
    cost = np.concatenate([small.cost[share_rectangle], np.zeros(pairs)])
    ranges = np.stack([np.zeros(shares + pairs), np.repeat([1.0, np.inf], [shares, pairs])], axis=1)  # x > 1 gains nothing, and x <= 1 would have a price

    def solved(unit: float):  # type: ignore[no-untyped-def]
        """Without presolve, which takes half the time and removes little."""
        return linprog(cost / unit, A_ub=matrix, b_ub=limit, bounds=ranges, method="highs-ds", options={"presolve": False})

    unit = float(small.cost.max()) or 1.0
    found = solved(unit)
    if found.status == 2:
        return None
    if found.status != 0:
        raise RuntimeError(f"HiGHS ended with status {found.status}: {found.message}")
    while 0 < found.fun < COARSE:  # the solver's tolerances are absolute: an optimum far below the unit is not exact
        finer = solved(unit * float(found.fun))
        if finer.status != 0:
            break
        unit, found = unit * float(found.fun), finer
    y = np.zeros((brokers, rectangles))
    y[share_broker, share_rectangle] = np.clip(found.x[:shares], 0.0, 1.0)
    price = np.maximum(-found.ineqlin.marginals, 0.0) * unit
    u, v = price[brokers : brokers + rows], price[brokers + rows : 2 * brokers + rows]
    allowed = small.allowed.astype(np.float64)
    bound = float(_dual_value(u, v, allowed, small.weight, small.capacity, small.cost, small.alpha, *_pieces(small.inside)))
    return Fractional(y, float((y @ small.cost).sum()), max(bound, 0.0), int(found.nit))


def dual_ascent(instance: LpInstance, *, scale: float, gap: float = 0.03, chunk: int = 400, chunks: int = 6) -> Fractional:
    """Adam on the dual until bound and average are within ``gap``, at most ``chunks`` times ``chunk`` iterations.

    ``scale`` is about the cost of a heuristic solution divided by the rows, the unit of u. ``bound`` is that of the best
    iterate, evaluated anew in double precision; ``value`` is the cost of the average y, which meets the constraints only
    in the limit: the test of the gap adds what its uncovered shares would cost at the prices u.

    The prices u of different rows differ by orders of magnitude, so steps are relative to the variable. The start,
    u_j = the least cost per row of a rectangle around j, is feasible for the dual: its bound is above 0 at once.
    """
    if not scale > 0:
        raise ValueError(f"scale={scale} must be positive: the cost of a heuristic solution divided by the rows")
    small, count = instance.merged()
    pieces = _pieces(small.inside)
    brokers = len(small.capacity)
    cost = small.cost / scale
    mask = small.allowed.astype(np.float32)
    members = _lists(small.inside.T)
    u, v = _start(mask, count, cost, *pieces, *members), np.zeros(brokers)
    unit = FARTHEST * float(u.sum() / count.sum())
    if 0 < unit < 1:  # the heuristic paid orders of magnitude too much: its price is no unit
        u, cost, scale = u / unit, cost / unit, scale * unit
    floor = FLOOR_U * count * np.maximum(u / count / max(float((u / count).mean()), 1e-300), 0.01)
    best_u, best_v, best = u.copy(), v.copy(), -np.inf
    y = np.zeros((brokers, len(cost)))
    value, bound, done = 0.0, 0.0, 0
    for number in range(chunks):
        first = FIRST_STEP if number == 0 else AGAIN_STEP
        y, reached, at_u, at_v = _ascend(u, v, mask, small.weight, small.capacity, cost, floor, small.alpha, *pieces, *members, chunk, first, LAST_STEP)
        done += chunk
        if reached > best:
            best, best_u, best_v = reached, at_u, at_v
        u, v = best_u.copy(), best_v.copy()
        exact = _dual_value(best_u, best_v, small.allowed.astype(np.float64), small.weight, small.capacity, cost, small.alpha, *pieces)
        bound = max(bound, scale * float(exact))
        value = float((y @ small.cost).sum())
        used = y.any(0)
        short = np.maximum(1.0 - ((small.inside[:, used] @ y[:, used].T.astype(np.float32)) * mask).sum(1), 0.0)
        repaired = value + scale * float(best_u @ short)
        if bound > instance.ceiling or (value >= (1 - gap) * bound and repaired <= (1 + gap) * bound):
            break
    return Fractional(y, value, bound, done)


def _lists(member: Bools) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """A boolean matrix as (start, columns): the columns of row k are ``columns[start[k]:start[k + 1]]``."""
    start = np.concatenate([[0], np.cumsum(member.sum(1))]).astype(np.int64)
    return start, np.nonzero(member)[1].astype(np.int32)


def _pieces(inside: Bools) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Every rectangle's rows as a disjoint union of smaller rectangles' rows and single rows: few additions for all the sums.

    Returns the rectangles in ascending order of size, and the (start, list) of the parts and of the single rows by place in it.
    """
    rows, count = inside.shape
    size = inside.sum(0)
    order = np.argsort(size, kind="stable").astype(np.int64)
    sets = np.packbits(inside.T[order], axis=1)
    sets = np.ascontiguousarray(np.hstack([sets, np.zeros((count, -sets.shape[1] % 8), dtype=np.uint8)])).view(np.uint64)
    part_start, parts, rest = _decompose(sets, size[order])
    left = np.unpackbits(rest.view(np.uint8), axis=1, count=rows).astype(bool)
    return order, part_start, parts, *_lists(left)


@compiled
def _decompose(sets, size):  # type: ignore[no-untyped-def]
    count, words = sets.shape
    rest = sets.copy()
    start = np.zeros(count + 1, dtype=np.int64)
    parts = np.empty(1024, dtype=np.int32)
    used = 0
    for k in range(count):
        left = size[k]
        at = k - 1
        while at >= 0 and size[at] > 1 and left > 1:
            if size[at] <= left:
                fits = True
                for w in range(words):
                    if sets[at, w] & ~rest[k, w]:
                        fits = False
                        break
                if fits:
                    if used == len(parts):
                        grown = np.empty(2 * used, dtype=np.int32)
                        grown[:used] = parts
                        parts = grown
                    parts[used] = at
                    used += 1
                    left -= size[at]
                    for w in range(words):
                        rest[k, w] &= ~sets[at, w]
            at -= 1
        start[k + 1] = used
    return start, parts[:used].copy(), rest


@compiled
def _sums(z, sums, part_start, parts, row_start, row_list):  # type: ignore[no-untyped-def]
    """sums[k] = the sum of z over the rows of the k-th rectangle by size, all brokers at once; four rows a turn to save stores."""
    brokers = z.shape[1]
    for k in range(len(part_start) - 1):
        total = sums[k]
        for i in range(brokers):
            total[i] = 0.0
        for p in range(part_start[k], part_start[k + 1]):
            part = sums[parts[p]]
            for i in range(brokers):
                total[i] += part[i]
        at, end = row_start[k], row_start[k + 1]
        while at + 4 <= end:
            a, b, c, d = z[row_list[at]], z[row_list[at + 1]], z[row_list[at + 2]], z[row_list[at + 3]]
            for i in range(brokers):
                total[i] += (a[i] + b[i]) + (c[i] + d[i])
            at += 4
        while at < end:
            a = z[row_list[at]]
            for i in range(brokers):
                total[i] += a[i]
            at += 1


@compiled
def _start(mask, count, cost, order, part_start, parts, row_start, row_list, member_start, members):  # type: ignore[no-untyped-def]
    """Prices at which no rectangle is worth its cost at any broker: u_j is the least cost per row served of a rectangle around j."""
    rows, brokers = mask.shape
    z = np.empty((rows, brokers), dtype=np.float32)
    for j in range(rows):
        for i in range(brokers):
            z[j, i] = mask[j, i] * count[j]
    sums = np.empty((len(order), brokers), dtype=np.float32)
    _sums(z, sums, part_start, parts, row_start, row_list)
    u = np.full(rows, np.inf)
    for place in range(len(order)):
        k = order[place]
        each = cost[k] / max(sums[place].max(), 1.0)
        for at in range(member_start[k], member_start[k + 1]):
            u[members[at]] = min(u[members[at]], each)
    for j in range(rows):
        u[j] = u[j] * count[j] if u[j] < np.inf else count[j]  # a row in no rectangle: the dual is unbounded along its u
    return u


@compiled
def _fill(z, u, v, mask, weight):  # type: ignore[no-untyped-def]
    for j in range(z.shape[0]):
        a, w = z.dtype.type(u[j]), z.dtype.type(weight[j])
        for i in range(z.shape[1]):
            z[j, i] = max(z.dtype.type(0.0), a - w * v[i]) * mask[j, i]


@compiled
def _largest(sums, cost, order, alpha, chosen, gain):  # type: ignore[no-untyped-def]
    """The alpha largest positive sums minus costs of every broker, by rectangle index; -1 fills up."""
    chosen[:] = -1
    gain[:] = 0.0
    for k in range(sums.shape[0]):
        price = cost[order[k]]
        for i in range(sums.shape[1]):
            over = sums[k, i] - price
            if over > gain[i, alpha - 1]:
                at = alpha - 1
                while at > 0 and gain[i, at - 1] < over:
                    gain[i, at] = gain[i, at - 1]
                    chosen[i, at] = chosen[i, at - 1]
                    at -= 1
                gain[i, at] = over
                chosen[i, at] = order[k]


@compiled
def _dual_value(u, v, mask, weight, capacity, cost, alpha, order, part_start, parts, row_start, row_list):  # type: ignore[no-untyped-def]
    """D(u, v) in double precision."""
    brokers = len(v)
    z = np.empty(mask.shape)
    _fill(z, u, v, mask, weight)
    sums = np.empty((len(order), brokers))
    _sums(z, sums, part_start, parts, row_start, row_list)
    chosen, gain = np.empty((brokers, alpha), dtype=np.int64), np.empty((brokers, alpha))
    _largest(sums, cost, order, alpha, chosen, gain)
    return u.sum() - (capacity * v).sum() - gain.sum()


@compiled
def _ascend(
    u, v, mask, weight, capacity, cost, floor, alpha, order, part_start, parts, row_start, row_list, member_start, members, steps, first, last
):  # type: ignore[no-untyped-def]
    """One chunk: (the average y over the second half, the best D, the u and v it was at).

    Sums are in single precision: they only choose, the caller evaluates the best iterate anew.
    """
    rows, brokers = mask.shape
    z = np.empty((rows, brokers), dtype=np.float32)
    sums = np.empty((len(order), brokers), dtype=np.float32)
    v32 = np.empty(brokers, dtype=np.float32)
    chosen, gain = np.empty((brokers, alpha), dtype=np.int64), np.empty((brokers, alpha))
    slope_u, slope_v = np.empty(rows), np.empty(brokers)
    mean_u, mean_v, square_u, square_v = np.zeros(rows), np.zeros(brokers), np.zeros(rows), np.zeros(brokers)
    y = np.zeros((brokers, len(cost)))
    best, best_u, best_v, mass = -np.inf, u.copy(), v.copy(), 0.0
    for t in range(steps):
        step = first * (last / first) ** (t / max(steps - 1, 1))
        for i in range(brokers):
            v32[i] = v[i]
        _fill(z, u, v32, mask, weight)
        _sums(z, sums, part_start, parts, row_start, row_list)
        _largest(sums, cost, order, alpha, chosen, gain)
        value = u.sum() - (capacity * v).sum() - gain.sum()
        if value > best:
            best = value
            best_u[:] = u
            best_v[:] = v
        slope_u[:] = 1.0
        for i in range(brokers):
            load = 0.0
            for a in range(alpha):
                k = chosen[i, a]
                if k < 0:
                    break
                for at in range(member_start[k], member_start[k + 1]):
                    j = members[at]
                    if z[j, i] > 0.0:
                        slope_u[j] -= 1.0
                        load += weight[j]
                if 2 * t >= steps:
                    y[i, k] += step
            slope_v[i] = load - capacity[i]
        if 2 * t >= steps:
            mass += step
        fix = 1.0 - DECAY ** (t + 1)
        for j in range(rows):
            mean_u[j] = DECAY * mean_u[j] + (1 - DECAY) * slope_u[j]
            square_u[j] = DECAY * square_u[j] + (1 - DECAY) * slope_u[j] ** 2
            u[j] = max(0.0, u[j] + (u[j] + floor[j]) * step * (mean_u[j] / fix) / (np.sqrt(square_u[j] / fix) + 1e-8))
        for i in range(brokers):
            mean_v[i] = DECAY * mean_v[i] + (1 - DECAY) * slope_v[i]
            square_v[i] = DECAY * square_v[i] + (1 - DECAY) * slope_v[i] ** 2
            v[i] = max(0.0, v[i] + (v[i] + FLOOR_V) * step * (mean_v[i] / fix) / (np.sqrt(square_v[i] / fix) + 1e-8))
    return y / mass, best, best_u, best_v
