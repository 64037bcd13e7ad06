"""Local search on a plan of a coreset: take rectangles apart, put their rows back where filters grow least.

Ruin and recreate (Schrimpf et al. 2000) with random skips (Christiaens and Vanden Berghe 2020). The plan is the rectangle,
"slot" leaf x alpha + r, that serves each row; a slot's box is always the minimum enclosing box of its rows, so taking
rows out shrinks filters at once. A step empties one to three slots or peels a face off them, and puts the rows back one
by one, each into the leaf whose path to the root grows least. It stays if the cost falls, or by chance at a falling
temperature. The cost is the measure of all rectangles of all brokers plus a price on load beyond the capacity, so that
a plan that starts overloaded is worked back into its limits.

Interior brokers hold what ``merge_in_place`` makes of their children's boxes, renewed along the touched paths.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.boxes import merge_in_place
from udfs.kernels.compiled import compiled
from udfs.kernels.greedy import insert_box
from udfs.kernels.measure import Measure, box_measure
from udfs.kernels.tree import BrokerTree

__all__ = ["Coreset", "Found", "improve", "slot_boxes"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_REMOVED = 3000
"""Rows a step takes out at most."""
WHOLE = 0.35
"""How often a slot is emptied; else one of its faces is peeled."""
SKIP = 0.01
"""How often a good leaf is passed over, so that the same rows do not always return to the same place."""
COOLING = 100.0
"""The temperature falls by this factor from the first to the last move."""
DEEP = 3
"""What a move counts for where paths have interior brokers: it takes about as much longer."""
CHUNK, CHUNKS = 500_000, 10
"""Most moves between two looks at the clock and at the load, and the fewest such stretches."""
DEARER = 4.0
"""By what the price on load rises after a stretch that ends with load beyond capacity."""


@dataclass(frozen=True)
class Coreset:
    """Rows of subscribers: boxes, candidate leaves (CSR), and the load a row stands for (0: it must only be covered)."""

    low: Floats
    high: Floats
    weight: Floats
    start: Ints
    leaf: NDArray[np.int32]

    @classmethod
    def of(cls, low: Floats, high: Floats, weight: Floats, allowed: NDArray[np.bool_]) -> Coreset:
        start = np.concatenate([[0], np.cumsum(allowed.sum(1))]).astype(np.int64)
        leaf = np.nonzero(allowed)[1].astype(np.int32)
        return cls(np.ascontiguousarray(low), np.ascontiguousarray(high), weight.astype(np.float64), start, leaf)


@dataclass(frozen=True)
class Found:
    """The best plan of a run: the slot of each row, its cost without the price on load, and the load beyond capacity."""

    slot: Ints
    cost: float
    overload: float
    moves: int


def slot_boxes(low: Floats, high: Floats, slot: Ints, slots: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """(low, high, used) of every slot: the minimum enclosing box of its rows."""
    box_low, box_high = np.full((slots, low.shape[1]), np.inf), np.full((slots, low.shape[1]), -np.inf)
    np.minimum.at(box_low, slot, low)
    np.maximum.at(box_high, slot, high)
    used = np.zeros(slots, dtype=bool)
    used[slot] = True
    box_low[~used], box_high[~used] = 0.0, 0.0
    return box_low, box_high, used


def improve(
    coreset: Coreset,
    tree: BrokerTree,
    capacity: Floats,
    alpha: int,
    slot: Ints,
    measure: Measure,
    *,
    moves: int,
    heat: float,
    seed: int,
    deadline: float | None = None,
) -> Found:
    """About ``moves`` moves (rows put back) from the plan ``slot`` (-1: a row without a place yet; it is put in first).

    ``heat`` is the first temperature as a share of the mean cost of a leaf. The best plan met is returned, never one
    worse than the start. The same seed gives the same moves; ``deadline`` (a ``time.time()``) ends them early.
    """
    shape = _Shape(
        *measure.map(coreset.low, coreset.high), coreset.weight, coreset.start, coreset.leaf,
        tree.leaves, tree.paths, *_children(tree), capacity.astype(np.float64), alpha, measure.table, measure.sides, 1.0 / float(np.prod(measure.sides - 1.0)),
    )  # fmt: skip
    current = slot.astype(np.int64).copy()
    best, done, chunk, dearer = None, 0, 0, 1.0
    while best is None or (done < moves and (deadline is None or time.time() < deadline)):
        size = min(CHUNK, -(-moves // CHUNKS), moves - done)
        first, last = (heat * COOLING ** (-at / max(moves, 1)) for at in (done, done + size))
        state = np.array([(seed + 1) * 0x9E3779B97F4A7C15 + chunk * 0xD1B54A32D192ED03 & (1 << 64) - 1 | 1], dtype=np.uint64)
        slots, beyond, cost, still_beyond = _search(shape, current, size, first, last, dearer, state)
        dearer = dearer * DEARER if still_beyond > 0 else 1.0
        if best is None or (beyond, cost) < (best.overload, best.cost):
            best = Found(slots, cost, beyond, done + size)
        done, chunk = done + size, chunk + 1
    return Found(best.slot, best.cost, best.overload, done)


class _Shape(NamedTuple):
    """What does not change: rows, candidates, the tree, capacities, the measure."""

    row_low: Floats
    row_high: Floats
    weight: Floats
    start: Ints
    candidate: NDArray[np.int32]
    leaf_node: Ints
    paths: Ints
    children: Ints
    child_start: Ints
    capacity: Floats
    alpha: int
    table: Floats
    sides: Ints
    unit: float
    """What a unit of volume measures: 1, or a cell's share of the events' grid."""


class _Plan(NamedTuple):
    """What a step changes. Rows of a slot are a doubly linked list; ``own`` is the measure of each slot's box, ``pair``
    what merging the cheapest two slots of a leaf adds (infinite while a slot is free)."""

    slot_of: Ints
    head: Ints
    after: Ints
    before: Ints
    low: Floats
    high: Floats
    own: Floats
    pair: Floats
    load: Floats
    node_low: Floats
    node_high: Floats
    node_count: Ints
    dirty: NDArray[np.bool_]


class _Old(NamedTuple):
    """The plan before a step, but for the rows' slots, which the list of moves restores."""

    low: Floats
    high: Floats
    own: Floats
    pair: Floats
    load: Floats
    node_low: Floats
    node_high: Floats
    node_count: Ints


class _Space(NamedTuple):
    """Scratch arrays, and the list of moves (``undone[0]`` of them) that takes a step back."""

    removed: Ints
    undo_row: Ints
    undo_slot: Ints
    undone: Ints
    box_low: Floats
    box_high: Floats
    pending_low: Floats
    pending_high: Floats
    next_low: Floats
    next_high: Floats
    node_low: Floats
    node_high: Floats
    child_low: Floats
    child_high: Floats


def _children(tree: BrokerTree) -> tuple[Ints, Ints]:
    order = np.argsort(tree.parent[1:], kind="stable") + 1
    counts = np.bincount(tree.parent[1:], minlength=len(tree.parent))
    return order.astype(np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@compiled
def _draw(state):  # type: ignore[no-untyped-def]
    """A uniform number in [0, 1), by xorshift64."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return (x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def _copy(source, target):  # type: ignore[no-untyped-def]
    """All of an array; a plain loop compiles in a tenth of the time that an assignment to a slice takes."""
    some, other = source.ravel(), target.ravel()
    for i in range(some.shape[0]):
        other[i] = some[i]


@compiled
def _copy_box(low, high, i, to_low, to_high, j):  # type: ignore[no-untyped-def]
    for k in range(low.shape[1]):
        to_low[j, k], to_high[j, k] = low[i, k], high[i, k]


@compiled
def _unlink(plan, row):  # type: ignore[no-untyped-def]
    p, n, slot = plan.before[row], plan.after[row], plan.slot_of[row]
    if p >= 0:
        plan.after[p] = n
    else:
        plan.head[slot] = n
    if n >= 0:
        plan.before[n] = p
    plan.slot_of[row] = -1


@compiled
def _link(plan, row, slot):  # type: ignore[no-untyped-def]
    first = plan.head[slot]
    plan.after[row], plan.before[row] = first, -1
    if first >= 0:
        plan.before[first] = row
    plan.head[slot] = row
    plan.slot_of[row] = slot


@compiled
def _fit(shape, plan, slot):  # type: ignore[no-untyped-def]
    """Set a slot's box to the minimum enclosing box of its rows."""
    row = plan.head[slot]
    if row < 0:
        return
    _copy_box(shape.row_low, shape.row_high, row, plan.low, plan.high, slot)
    row = plan.after[row]
    while row >= 0:
        for k in range(plan.low.shape[1]):
            plan.low[slot, k] = min(plan.low[slot, k], shape.row_low[row, k])
            plan.high[slot, k] = max(plan.high[slot, k], shape.row_high[row, k])
        row = plan.after[row]


@compiled
def _cheapest_pair(shape, plan, space, first):  # type: ignore[no-untyped-def]
    """The two slots from ``first`` on whose minimum enclosing box adds the least: (added, one, other)."""
    best, one, other = np.inf, -1, -1
    for r in range(first, first + shape.alpha):
        for s in range(r + 1, first + shape.alpha):
            for k in range(plan.low.shape[1]):
                space.box_low[k] = min(plan.low[r, k], plan.low[s, k])
                space.box_high[k] = max(plan.high[r, k], plan.high[s, k])
            added = box_measure(space.box_low, space.box_high, shape.table, shape.sides) - plan.own[r] - plan.own[s]
            if added < best:
                best, one, other = added, r, s
    return best, one, other


@compiled
def _renew_leaf(shape, plan, space, leaf):  # type: ignore[no-untyped-def]
    full = shape.alpha > 1
    first = leaf * shape.alpha
    for r in range(first, first + shape.alpha):
        used = plan.head[r] >= 0
        plan.own[r] = box_measure(plan.low[r], plan.high[r], shape.table, shape.sides) if used else 0.0
        full = full and used
    plan.pair[leaf] = _cheapest_pair(shape, plan, space, first)[0] if full else np.inf


@compiled
def _mark_path(shape, plan, leaf):  # type: ignore[no-untyped-def]
    for hop in range(1, shape.paths.shape[1]):
        if shape.paths[leaf, hop] >= 0:
            plan.dirty[shape.paths[leaf, hop]] = True


@compiled
def _renew_interior(shape, plan, space, leaf_number):  # type: ignore[no-untyped-def]
    """Marked interior nodes cover their children's boxes anew, from the bottom up."""
    for node in range(plan.node_count.shape[0] - 1, 0, -1):
        if not plan.dirty[node]:
            continue
        plan.dirty[node] = False
        count = 0
        for c in range(shape.child_start[node], shape.child_start[node + 1]):
            child = shape.children[c]
            leaf = leaf_number[child]
            if leaf >= 0:
                for r in range(leaf * shape.alpha, leaf * shape.alpha + shape.alpha):
                    if plan.head[r] >= 0:
                        _copy_box(plan.low, plan.high, r, space.child_low, space.child_high, count)
                        count += 1
            else:
                for r in range(plan.node_count[child]):
                    _copy_box(plan.node_low[child], plan.node_high[child], r, space.child_low, space.child_high, count)
                    count += 1
        count = merge_in_place(space.child_low, space.child_high, count, shape.alpha)
        for r in range(count):
            _copy_box(space.child_low, space.child_high, r, plan.node_low[node], plan.node_high[node], r)
        plan.node_count[node] = count


@compiled
def _path_growth(shape, plan, space, leaf, limit, apply):  # type: ignore[no-untyped-def]
    """By how much the interior nodes above a leaf grow to cover ``space.pending[0]``; with ``apply`` they do grow.

    Where there are events this is the volume on their grid, as a share of all of it.
    """
    pending, total = 1, 0.0
    for hop in range(1, shape.paths.shape[1]):
        node = shape.paths[leaf, hop]
        if node < 0 or pending == 0 or total > limit:
            break
        count = plan.node_count[node]
        node_low, node_high = space.node_low, space.node_high
        if apply:
            node_low, node_high = plan.node_low[node], plan.node_high[node]
        else:
            for r in range(count):
                _copy_box(plan.node_low[node], plan.node_high[node], r, node_low, node_high, r)
        changed = 0
        for p in range(pending):
            growth, changed, count = insert_box(
                node_low, node_high, count, shape.alpha, space.pending_low[p], space.pending_high[p], space.next_low, space.next_high, changed
            )
            total += growth * shape.unit
        if apply:
            plan.node_count[node] = count
        for p in range(changed):
            _copy_box(space.next_low, space.next_high, p, space.pending_low, space.pending_high, p)
        pending = changed
    return total


@compiled
def _growth(leaf, row, row_own, alpha, row_low, row_high, low, high, head, own, pair, box_low, box_high, table, sides):  # type: ignore[no-untyped-def]
    """(least growth of a leaf that takes the row, the slot that takes it; -2: merge the cheapest pair, then a new slot).

    The innermost loop: it takes plain arrays, since a named tuple costs a reference count a field and call.
    """
    best, pick, empty = np.inf, -1, -1
    for r in range(leaf * alpha, leaf * alpha + alpha):
        if head[r] < 0:
            empty = r
            continue
        merged, inside = 1.0, True
        for k in range(low.shape[1]):
            a, b = low[r, k], high[r, k]
            if row_low[row, k] < a:
                a, inside = row_low[row, k], False
            if row_high[row, k] > b:
                b, inside = row_high[row, k], False
            merged *= b - a
            box_low[k], box_high[k] = a, b
        if inside:
            return 0.0, r
        if sides.shape[0]:
            merged = box_measure(box_low, box_high, table, sides)
        if merged - own[r] < best:
            best, pick = merged - own[r], r
    if empty >= 0:
        if row_own < best or pick < 0:
            best, pick = row_own, empty
    elif pair[leaf] + row_own < best:
        best, pick = pair[leaf] + row_own, -2
    return best, pick


@compiled
def _nearest_slot(shape, plan, leaf, row):  # type: ignore[no-untyped-def]
    least, slot = np.inf, -1
    for r in range(leaf * shape.alpha, leaf * shape.alpha + shape.alpha):
        if plan.head[r] >= 0:
            merged, own = 1.0, 1.0
            for k in range(plan.low.shape[1]):
                merged *= max(plan.high[r, k], shape.row_high[row, k]) - min(plan.low[r, k], shape.row_low[row, k])
                own *= plan.high[r, k] - plan.low[r, k]
            if merged - own < least:
                least, slot = merged - own, r
    return slot


@compiled
def _take_out(shape, plan, space, state):  # type: ignore[no-untyped-def]
    """Empty or peel the slot of a random row and up to two slots near it that the row could use: how many rows are out."""
    anchor, out = int(_draw(state) * plan.slot_of.shape[0]), 0
    home = plan.slot_of[anchor]
    for turn in range(1 + int(_draw(state) * 3)):
        slot = home
        if turn > 0:
            choices = shape.start[anchor + 1] - shape.start[anchor]
            slot = _nearest_slot(shape, plan, shape.candidate[shape.start[anchor] + int(_draw(state) * choices)], anchor)
        if slot < 0 or plan.head[slot] < 0:
            continue
        whole, lower, share = _draw(state) < WHOLE, _draw(state) < 0.5, _draw(state)
        k = int(_draw(state) * plan.low.shape[1])
        reach = 0.5 * share * share * (plan.high[slot, k] - plan.low[slot, k])
        below, above = plan.low[slot, k] + reach, plan.high[slot, k] - reach
        row = plan.head[slot]
        while row >= 0 and out < min(MOST_REMOVED, space.removed.shape[0]):
            then = plan.after[row]
            if whole or (lower and shape.row_low[row, k] <= below) or (not lower and shape.row_high[row, k] >= above):
                space.removed[out], space.undo_row[out], space.undo_slot[out] = row, row, slot
                out += 1
                _unlink(plan, row)
                plan.load[slot // shape.alpha] -= shape.weight[row]
            row = then
        _fit(shape, plan, slot)
        _renew_leaf(shape, plan, space, slot // shape.alpha)
        _mark_path(shape, plan, slot // shape.alpha)
    space.undone[0] = out
    return out


@compiled
def _put_in(shape, plan, space, row, row_own, price, state):  # type: ignore[no-untyped-def]
    """Put a row where it costs least; False when it has no candidate, or when more rows move than the undo list holds."""
    deep = shape.paths.shape[1] > 1
    candidate, begin, weight, capacity, load = shape.candidate, shape.start[row], shape.weight[row], shape.capacity, plan.load
    row_low, row_high, low, high, head, own, pair = shape.row_low, shape.row_high, plan.low, plan.high, plan.head, plan.own, plan.pair
    box_low, box_high, table, sides = space.box_low, space.box_high, shape.table, shape.sides
    choices = shape.start[row + 1] - begin
    at = int(_draw(state) * choices)
    least, leaf, slot = np.inf, -1, -1
    for _ in range(choices):
        i = candidate[begin + at]
        at = at + 1 if at + 1 < choices else 0
        beyond = min(load[i] + weight - capacity[i], weight)
        extra = price * beyond if beyond > 0.0 else 0.0
        if extra >= least or (leaf >= 0 and _draw(state) < SKIP):
            continue
        growth, where = _growth(
            i, row, row_own, shape.alpha, row_low, row_high, low, high, head, own, pair, box_low, box_high, table, sides
        )
        if growth + extra >= least:
            continue
        if deep and growth > 0.0:
            _copy_box(row_low, row_high, row, space.pending_low, space.pending_high, 0)
            if where >= 0 and head[where] >= 0:
                for k in range(low.shape[1]):
                    space.pending_low[0, k] = min(low[where, k], row_low[row, k])
                    space.pending_high[0, k] = max(high[where, k], row_high[row, k])
            growth += _path_growth(shape, plan, space, i, least - growth - extra, False)
        if growth + extra < least:
            least, leaf, slot = growth + extra, i, where
            if least == 0.0:
                break
    if leaf < 0:
        return False
    keep = -1
    if slot == -2:
        _, keep, slot = _cheapest_pair(shape, plan, space, leaf * shape.alpha)
        while plan.head[slot] >= 0:
            moved = plan.head[slot]
            if space.undone[0] >= space.undo_row.shape[0]:
                return False
            space.undo_row[space.undone[0]], space.undo_slot[space.undone[0]] = moved, slot
            space.undone[0] += 1
            _unlink(plan, moved)
            _link(plan, moved, keep)
        for k in range(plan.low.shape[1]):
            plan.low[keep, k], plan.high[keep, k] = min(plan.low[keep, k], plan.low[slot, k]), max(plan.high[keep, k], plan.high[slot, k])
    changed = plan.head[slot] < 0
    if changed:
        _copy_box(row_low, row_high, row, low, high, slot)
    for k in range(plan.low.shape[1]):
        if shape.row_low[row, k] < plan.low[slot, k]:
            plan.low[slot, k], changed = shape.row_low[row, k], True
        if shape.row_high[row, k] > plan.high[slot, k]:
            plan.high[slot, k], changed = shape.row_high[row, k], True
    _link(plan, row, slot)
    plan.load[leaf] += shape.weight[row]
    if changed:
        _renew_leaf(shape, plan, space, leaf)
        if deep:
            for grown in (keep, slot):
                if grown >= 0:
                    _copy_box(low, high, grown, space.pending_low, space.pending_high, 0)
                    _path_growth(shape, plan, space, leaf, np.inf, True)
            _mark_path(shape, plan, leaf)
    return True


@compiled
def _copy_plan(source, target):  # type: ignore[no-untyped-def]
    """From a ``_Plan`` to an ``_Old``, or back."""
    _copy(source.low, target.low)
    _copy(source.high, target.high)
    _copy(source.own, target.own)
    _copy(source.pair, target.pair)
    _copy(source.load, target.load)
    _copy(source.node_low, target.node_low)
    _copy(source.node_high, target.node_high)
    _copy(source.node_count, target.node_count)


@compiled
def _cost(shape, plan):  # type: ignore[no-untyped-def]
    """(measure of all rectangles, load beyond capacity)."""
    total, beyond = plan.own.sum(), 0.0
    for node in range(plan.node_count.shape[0]):
        for r in range(plan.node_count[node]):
            total += box_measure(plan.node_low[node, r], plan.node_high[node, r], shape.table, shape.sides)
    for i in range(plan.load.shape[0]):
        beyond += max(0.0, plan.load[i] - shape.capacity[i])
    return total, beyond


@compiled
def _search(shape, slot_of, moves, heat_first, heat_last, dearer, state):  # type: ignore[no-untyped-def]
    """(best slots, their load beyond capacity, their cost, load beyond capacity at the end).

    ``slot_of`` is left at the plan of the last step. Of two plans the one with less load beyond capacity is better.
    """
    rows, dims = shape.row_low.shape
    leaves, depth = shape.paths.shape
    slots, nodes, alpha = leaves * shape.alpha, shape.child_start.shape[0] - 1, shape.alpha
    leaf_number = np.full(nodes, -1, dtype=np.int64)
    for i in range(leaves):
        leaf_number[shape.leaf_node[i]] = i
    widest = 1
    for node in range(nodes):
        widest = max(widest, shape.child_start[node + 1] - shape.child_start[node])
    boxes = 2 ** (depth + 1)
    plan = _Plan(
        slot_of, np.full(slots, -1, dtype=np.int64), np.full(rows, -1, dtype=np.int64), np.full(rows, -1, dtype=np.int64),
        np.zeros((slots, dims)), np.zeros((slots, dims)), np.zeros(slots), np.full(leaves, np.inf), np.zeros(leaves),
        np.zeros((nodes, alpha, dims)), np.zeros((nodes, alpha, dims)), np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.bool_),
    )  # fmt: skip
    space = _Space(
        np.empty(rows, dtype=np.int64), np.empty(4 * rows, dtype=np.int64), np.empty(4 * rows, dtype=np.int64), np.zeros(1, dtype=np.int64),
        np.empty(dims), np.empty(dims),
        np.empty((boxes, dims)), np.empty((boxes, dims)), np.empty((boxes, dims)), np.empty((boxes, dims)),
        np.empty((alpha, dims)), np.empty((alpha, dims)), np.empty((widest * alpha, dims)), np.empty((widest * alpha, dims)),
    )  # fmt: skip
    row_own, key = np.empty(rows), np.empty(rows)
    out = 0
    for row in range(rows):
        row_own[row] = box_measure(shape.row_low[row], shape.row_high[row], shape.table, shape.sides)
        if slot_of[row] >= 0:
            _link(plan, row, slot_of[row])
            plan.load[slot_of[row] // alpha] += shape.weight[row]
        else:
            space.removed[out] = row
            out += 1
    for slot in range(slots):
        _fit(shape, plan, slot)
    for i in range(leaves):
        _renew_leaf(shape, plan, space, i)
        _mark_path(shape, plan, i)
    around_low, around_high = shape.row_low[0].copy(), shape.row_high[0].copy()
    for row in range(rows):
        for k in range(dims):
            around_low[k], around_high[k] = min(around_low[k], shape.row_low[row, k]), max(around_high[k], shape.row_high[row, k])
    floor = dearer * (1e-6 * box_measure(around_low, around_high, shape.table, shape.sides) / leaves + 1e-300)
    price = dearer * (plan.own.sum() + row_own.max()) / leaves + floor

    best_slot, best_total, best_beyond, cost, unit = slot_of.copy(), np.inf, np.inf, np.inf, 0.0
    old = _Old(
        plan.low.copy(), plan.high.copy(), plan.own.copy(), plan.pair.copy(), plan.load.copy(),
        plan.node_low.copy(), plan.node_high.copy(), plan.node_count.copy(),
    )  # fmt: skip
    done, by, at_end, first = 0, 0.0, 0.0, True  # the first step puts in the rows that wait, and stays whatever it costs
    while first or done < moves:
        if not first:
            out = _take_out(shape, plan, space, state)
            done += (out + 1) * (DEEP if depth > 1 else 1)
            by = _draw(state)
        for a in range(out):
            row = space.removed[a]
            if by < 0.4:
                key[a] = -row_own[row]
            elif by < 0.7:
                key[a] = shape.start[row + 1] - shape.start[row] + _draw(state)
            else:
                key[a] = _draw(state)
        order = np.argsort(key[:out])
        whole = True
        for half in range(2):  # each function is called in one place: the compiler copies it to every place it is called from
            if half:
                for a in range(out):
                    row = space.removed[order[a]]
                    space.undone[0] = 0 if first else space.undone[0]
                    whole = _put_in(shape, plan, space, row, row_own[row], price, state) and whole
                    if not whole and not first:
                        break
            _renew_interior(shape, plan, space, leaf_number)
        total, beyond = _cost(shape, plan)
        if first:
            price, unit = dearer * total / leaves + floor, total / leaves
        warmth = unit * heat_first * (heat_last / heat_first) ** (done / max(moves, 1)) if heat_first > 0.0 else 0.0
        if first or (whole and total + price * beyond < cost - warmth * np.log(_draw(state) + 1e-300)):
            cost, at_end = total + price * beyond, beyond
            if beyond < best_beyond - 1e-9 or (beyond <= best_beyond + 1e-9 and total < best_total * (1.0 - 1e-12)):
                best_total, best_beyond = total, beyond
                _copy(slot_of, best_slot)
            _copy_plan(plan, old)
        else:
            for a in range(space.undone[0] - 1, -1, -1):
                row = space.undo_row[a]
                if slot_of[row] >= 0:
                    _unlink(plan, row)
                _link(plan, row, space.undo_slot[a])
            _copy_plan(old, plan)
        first = False
    return best_slot, best_beyond, best_total, at_end
