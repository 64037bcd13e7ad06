"""One call of SLP1 on a sample: distribute rows among sibling brokers (section IV of Yu, Agarwal, Yang, ICDE).

Siblings are the children of one broker; on a one-level tree these are all brokers. A child may be the root of a subtree:
then "in time" and "capacity" are those of the supplement ("Extension of Multi-Level SA").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.adjust import alpha_boxes
from udfs.kernels.drop import drop_rectangles
from udfs.kernels.filtergen import candidate_rectangles, contains
from udfs.kernels.flow import assign_sets
from udfs.kernels.greedy import Filters
from udfs.kernels.hashing import uniforms
from udfs.kernels.latency import pack_sets, unpack_sets
from udfs.kernels.lprelax import LpInstance, lp_relax
from udfs.kernels.measure import Measure
from udfs.kernels.rounding import cover_matrix, round_until_covered, smallest_exponent
from udfs.kernels.tree import BrokerTree

__all__ = [
    "Preliminary", "Rows", "child_capacities", "child_sets", "deal", "level_bound", "printed_filters", "rounded_filters", "start_slots",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """A sample: where rows are, what they want, which siblings are in time, and the load each row stands for."""

    location: Floats
    low: Floats
    high: Floats
    allowed: Bools
    weight: Floats


@dataclass(frozen=True)
class Preliminary:
    """A preliminary filter assignment: rectangle k belongs to sibling ``sibling[k]``."""

    sibling: Ints
    low: Floats
    high: Floats
    bound: float
    """Of the linear program, relative to the sample and its candidate rectangles."""
    value: float
    """Cost of the fractional filters that were rounded; above the bound where the dual's ascent did not close the gap."""
    exponent: float
    cover: Bools
    """(rows, siblings): the sibling is in time for the row and holds a rectangle around it."""


# ---------------------------------------------------------------- limits of siblings (supplement)


def child_sets(tree: BrokerTree, node: int, leaf_allowed: Bools, gamma: float) -> tuple[Ints, Bools]:
    """(children of ``node``, rows x children: enough of the child's leaves are in time for the row).

    A child counts when the share of its leaves within the row's limit is at least ``gamma``; where no child has that
    share, the threshold is halved for the row until one has.
    """
    children = np.flatnonzero(tree.parent == node)
    below = tree.leaves_below[children]
    share = leaf_allowed.astype(np.float64) @ below.T / below.sum(1)
    threshold = np.full(len(share), gamma)
    best = share.max(1, initial=0.0)
    short = (best > 0) & (best < threshold)
    threshold[short] = gamma * 0.5 ** np.ceil(np.log2(gamma / best[short]))
    return children, (share >= threshold[:, None] * (1 - 1e-12)) & (share > 0)


def child_capacities(tree: BrokerTree, node: int, rows: float, total: float, lbf: float) -> Floats:
    """Load each child of ``node`` may take of the ``rows`` that reached it, when leaves may have ``lbf`` times their share.

    The excess already spent on the way down is divided out, and what is left is spread over the levels below: the root
    of the order of the child's height, so that an unbalanced tree gives a leaf child all of it.
    """
    children = np.flatnonzero(tree.parent == node)
    spent = rows / (tree.share_below[node] * total)
    levels = 1 + tree.height[children]
    factor = (lbf / max(spent, 1e-300)) ** (1.0 / levels)
    return factor * tree.share_below[children] / tree.share_below[node] * rows


# ---------------------------------------------------------------- filters for siblings


def rounded_filters(
    rows: Rows, tight: Floats, capacity: Floats, alpha: int, *, super_subscriptions: int, measure: Measure, seed: int
) -> Preliminary | None:
    """FilterGen, LPRelax, rounding with the smallest exponent that serves every row, and the alpha-aware drop.

    The linear program keeps the capacities ``tight``, so that the rounded filters have room for a flow at ``capacity``.
    None where it has no solution; an infinite exponent where even 2 ln |S_a| does not serve every row.
    """
    instance, box_low, box_high = _instance(rows, tight, alpha, super_subscriptions, measure, seed)
    solution = lp_relax(instance, _scale(instance))
    if solution is None:
        return None
    draws = uniforms(seed, 2, np.arange(solution.y.size)).reshape(solution.y.shape)
    most = 2.0 * math.log(max(len(rows.weight), 2))
    exponent, chosen = smallest_exponent(solution.y, draws, rows.allowed, instance.inside, rows.weight, capacity, most)
    if not math.isinf(exponent):
        chosen = drop_rectangles(chosen, box_low, box_high, rows.allowed, instance.inside, rows.weight, capacity, alpha)
    sibling, rectangle = np.nonzero(chosen)
    cover = cover_matrix(chosen, rows.allowed, instance.inside)
    return Preliminary(sibling, box_low[rectangle], box_high[rectangle], solution.bound, solution.value, exponent, cover)


def printed_filters(rows: Rows, capacity: Floats, alpha: int, *, super_subscriptions: int, measure: Measure, seed: int) -> Preliminary | None:
    """FilterGen and LPRelax as printed: exponent 2 ln |S_a|, rounded again until every row is covered."""
    instance, box_low, box_high = _instance(rows, capacity, alpha, super_subscriptions, measure, seed)
    solution = lp_relax(instance, _scale(instance))
    if solution is None:
        return None
    exponent = 2.0 * math.log(max(len(rows.weight), 2))
    chosen = round_until_covered(solution.y, exponent, rows.allowed, instance.inside, seed)
    if chosen is None:
        return None
    sibling, rectangle = np.nonzero(chosen)
    cover = cover_matrix(chosen, rows.allowed, instance.inside)
    return Preliminary(sibling, box_low[rectangle], box_high[rectangle], solution.bound, solution.value, exponent, cover)


def _instance(
    rows: Rows, capacity: Floats, alpha: int, super_subscriptions: int, measure: Measure, seed: int
) -> tuple[LpInstance, Floats, Floats]:
    box_low, box_high = candidate_rectangles(rows.location, rows.low, rows.high, k=super_subscriptions, seed=seed)
    inside = contains(box_low, box_high, rows.low, rows.high)
    return LpInstance(rows.allowed, inside, measure.of(box_low, box_high), rows.weight, capacity, alpha), box_low, box_high


def _scale(instance: LpInstance) -> float:
    """A typical price of a row: every broker one mid-sized rectangle."""
    return float(np.median(instance.cost)) * len(instance.capacity) / max(len(instance.weight), 1) + 1e-300


# ---------------------------------------------------------------- rows to siblings


def deal(cover: Bools, allowed: Bools, weight: Floats, capacity: Floats) -> Ints:
    """The sibling of each row: by a flow of the loaded rows on cover sets; rows without load take any that covers them.

    Rows that the flow cannot place go to the covering (else the allowed) sibling with the least load for its capacity.
    """
    given = np.full(len(cover), -1, dtype=np.int64)
    loaded = np.flatnonzero((weight > 0) & cover.any(1))
    if len(loaded):
        keys, member, counts = np.unique(pack_sets(cover[loaded]), axis=0, return_inverse=True, return_counts=True)
        flow, _, _ = assign_sets(unpack_sets(keys, cover.shape[1]), counts, np.floor(capacity + 1e-9).astype(np.int64))
        for group in range(len(keys)):
            rows = loaded[member.ravel() == group]
            siblings = np.repeat(np.arange(flow.shape[1]), flow[group])
            given[rows[: len(siblings)]] = siblings
    load = np.bincount(given[given >= 0], weights=weight[given >= 0], minlength=cover.shape[1])
    for row in np.flatnonzero(given < 0):
        choices = np.flatnonzero(cover[row] if cover[row].any() else allowed[row])
        if len(choices) == 0:
            choices = np.arange(cover.shape[1])
        pick = choices[np.argmin(load[choices] / np.maximum(capacity[choices], 1e-300))]
        given[row] = pick
        load[pick] += weight[row]
    return given


def start_slots(leaf: Ints, low: Floats, high: Floats, alpha: int) -> Ints:
    """Slot (leaf x alpha + r) of each row when every leaf's rows are boxed into alpha rectangles."""
    slot = np.full(len(leaf), -1, dtype=np.int64)
    for i in np.unique(leaf):
        rows = np.flatnonzero(leaf == i)
        box_low, box_high = alpha_boxes(low[rows], high[rows], alpha)
        slot[rows] = i * alpha + contains(box_low, box_high, low[rows], high[rows]).argmax(1)
    return slot


# ---------------------------------------------------------------- a bound for a level


def level_bound(
    tree: BrokerTree, level: int, rows: Rows, filters: Filters, *, alpha: int, lbf: float, super_subscriptions: int, measure: Measure, seed: int
) -> float:
    """Dual bound on the bandwidth of the brokers ``level`` + 1 hops below the root (``rows.allowed`` is by leaf).

    A plan's filters of one level serve every row that reaches it, within the capacity of the leaves below: this is the
    linear program of siblings without nesting. Rows that a higher leaf could serve need not reach the level and are
    left out, so the bounds of all levels may be added. The plan's own rectangles join the candidates.
    """
    nodes = np.flatnonzero(tree.depth == level + 1)
    allowed = rows.allowed @ tree.leaves_below[nodes].T
    kept = ~(rows.allowed & (tree.depth[tree.leaves] <= level)).any(1) & allowed.any(1)
    if not kept.any():
        return 0.0
    box_low, box_high = candidate_rectangles(
        rows.location[kept], rows.low[kept], rows.high[kept], k=super_subscriptions * len(nodes), seed=seed
    )
    held = np.arange(alpha)[None, :] < filters.count[nodes][:, None]
    box_low, box_high = np.concatenate([box_low, filters.low[nodes][held]]), np.concatenate([box_high, filters.high[nodes][held]])
    inside = contains(box_low, box_high, rows.low[kept], rows.high[kept])
    capacity = lbf * tree.share_below[nodes] * rows.weight.sum()
    instance = LpInstance(allowed[kept], inside, measure.of(box_low, box_high), rows.weight[kept], capacity, alpha)
    while (solution := lp_relax(instance, _scale(instance))) is None:  # a sample can be a little heavier somewhere than everyone is
        instance = replace(instance, capacity=instance.capacity * 1.05)
    return max(0.0, solution.bound)
