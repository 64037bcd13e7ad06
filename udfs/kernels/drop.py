"""Alpha-aware drop: delete rectangles that randomized rounding gave to brokers and that nobody needs.

Rounding (section IV-A of Yu, Agarwal, Yang, ICDE) hands brokers more rectangles than the subscribers need, and the
adjustment that follows merges them to alpha boxes, whatever they were for. So the (broker, rectangle) pair goes first
whose deletion most lowers the volume that is left after merging, as long as every sampled subscriber (row) stays
covered by an allowed broker and every row of weight 1 has a place at one, within the capacities.

Places only become fewer, so a pair that could not go once never can: it is tried once. Gains of a broker's pairs
depend on that broker alone: a deletion renews those, at once or, where the broker holds many, when they come up.
When no single deletion gains any more, rectangles without any gain go too, the largest first: two that hide each other
gain only together (0 to 3% less volume). At the end all pairs that cost nothing come back: they give a later flow room.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.boxes import merge_in_place, union_of
from udfs.kernels.compiled import compiled

__all__ = ["drop_rectangles", "merged_volume"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
EAGER = 24
"""Brokers with more rectangles have their gains renewed one by one, as they come up."""
SLACK = 1e-12
"""Gains below this part of the broker's volume are rounding."""
BITS = 63
"""Brokers in one word of a row's set; the sign bit stays free."""
OPEN, FIXED, GONE = 0, 1, 2


def drop_rectangles(
    chosen: Flags,
    rect_low: Floats,
    rect_high: Floats,
    allowed: Flags,
    inside: Flags,
    weight: NDArray[np.int64] | NDArray[np.float64] | Flags,
    capacity: Ints | Floats,
    alpha: int,
) -> Flags:
    """The (brokers, rectangles) pairs of ``chosen`` to keep.

    ``allowed`` is (rows, brokers), ``inside`` (rows, rectangles), ``weight`` 1 for a row that needs a place and 0 for
    one that only has to be covered. Rows that ``chosen`` leaves uncovered or without a place bind nothing.
    """
    if not np.isin(weight, (0, 1)).all():
        raise ValueError(f"weight must be 0 or 1 for every row, got {np.unique(weight)[:5].tolist()}")
    broker, rectangle = (np.ascontiguousarray(index) for index in np.nonzero(chosen))
    used, column = np.unique(rectangle, return_inverse=True)
    member_of, member = np.nonzero(inside[:, used].T)
    kept = _drop(
        np.searchsorted(broker, np.arange(chosen.shape[0] + 1)),
        broker,
        column.astype(np.int64),
        np.ascontiguousarray(rect_low[used], dtype=np.float64),
        np.ascontiguousarray(rect_high[used], dtype=np.float64),
        np.searchsorted(member_of, np.arange(len(used) + 1)),
        np.ascontiguousarray(member),
        np.ascontiguousarray(allowed, dtype=np.bool_),
        np.asarray(weight).astype(np.bool_),
        np.floor(capacity).astype(np.int64),
        alpha,
    )
    result = np.zeros(chosen.shape, dtype=bool)
    result[broker[kept], rectangle[kept]] = True
    return result


def merged_volume(chosen: Flags, rect_low: Floats, rect_high: Floats, alpha: int) -> float:
    """The sum over brokers of the volume of the union of their rectangles, merged to ``alpha`` boxes."""
    total = 0.0
    for rectangles in chosen:
        low, high = rect_low[rectangles].astype(np.float64), rect_high[rectangles].astype(np.float64)
        count = merge_in_place(low, high, len(low), alpha)
        total += union_of(low[:count], high[:count])
    return total


@compiled
def _drop(start, broker, rectangle, low, high, member_start, member, allowed, weight, capacity, alpha):  # type: ignore[no-untyped-def]
    pairs, brokers, rows, dims = len(broker), len(start) - 1, allowed.shape[0], low.shape[1]
    most = 1
    for i in range(brokers):
        most = max(most, start[i + 1] - start[i])
    box_low, box_high = np.empty((most, dims)), np.empty((most, dims))
    state = np.full(pairs, OPEN)
    value, size = np.zeros(brokers), np.ones(pairs)
    gain, fresh = np.zeros(pairs), np.ones(pairs, dtype=np.bool_)
    for p in range(pairs):
        for k in range(dims):
            size[p] *= high[rectangle[p], k] - low[rectangle[p], k]
    for i in range(brokers):
        _renew(i, start, rectangle, low, high, alpha, state, value, gain, fresh, box_low, box_high)

    # how many of a broker's rectangles cover a row, the set of brokers that cover it, and how many they are
    held = np.zeros((rows, brokers), dtype=np.int32)
    cover, ways = np.zeros((rows, (brokers - 1) // BITS + 1), dtype=np.int64), np.zeros(rows, dtype=np.int64)
    for p in range(pairs):
        i = broker[p]
        for s in range(member_start[rectangle[p]], member_start[rectangle[p] + 1]):
            r = member[s]
            if allowed[r, i]:
                if held[r, i] == 0:
                    ways[r] += 1
                    cover[r, i // BITS] |= 1 << (i % BITS)
                held[r, i] += 1

    place, load = np.full(rows, -1), np.zeros(brokers, dtype=np.int64)
    links = np.full((3, max(rows, brokers)), -1)  # the rows at a broker: first, next, previous
    via, queue, seen = np.empty(brokers, dtype=np.int64), np.empty(brokers, dtype=np.int64), np.empty(cover.shape[1], dtype=np.int64)
    for r in range(rows):
        if weight[r]:
            _augment(r, cover, place, load, capacity, links, via, queue, seen)

    gone, many = np.empty(pairs, dtype=np.int64), 0
    lost = np.empty(rows, dtype=np.int64)
    while True:
        p, stale = _best(broker, state, value, gain, fresh, size)
        if stale:
            for q in range(pairs):
                if (q == p or p < 0) and state[q] == OPEN and not fresh[q]:
                    gain[q] = _gain(q, broker[q], start, rectangle, low, high, alpha, state, value, box_low, box_high)
                    fresh[q] = True
            continue
        if p < 0:
            break
        i = broker[p]
        members = member[member_start[rectangle[p]] : member_start[rectangle[p] + 1]]
        if _delete(i, members, allowed, held, cover, ways, place, load, capacity, links, via, queue, seen, lost):
            state[p] = GONE
            gone[many] = p
            many += 1
            _renew(i, start, rectangle, low, high, alpha, state, value, gain, fresh, box_low, box_high)
        else:
            state[p] = FIXED

    for s in range(many - 1, -1, -1):
        p = gone[s]
        i = broker[p]
        state[p] = FIXED
        if _merged(i, -1, start, rectangle, low, high, alpha, state, box_low, box_high) > value[i] * (1.0 + SLACK):
            state[p] = GONE
    return state != GONE


@compiled
def _best(broker, state, value, gain, fresh, size):  # type: ignore[no-untyped-def]
    """(The pair to try next or -1, whether its gain must be renewed first; -1 and True: all that are not fresh).

    The largest gain; without any, the largest rectangle that costs nothing to delete.
    """
    pick, most, stale = -1, 0.0, False
    for p in range(len(broker)):
        if state[p] == OPEN:
            stale = stale or not fresh[p]
            if gain[p] > most and gain[p] > SLACK * value[broker[p]]:
                pick, most = p, gain[p]
    if pick >= 0:
        return pick, not fresh[pick]
    if stale:
        return -1, True
    most = -1.0
    for p in range(len(broker)):
        if state[p] == OPEN and size[p] > most and gain[p] >= -SLACK * value[broker[p]]:
            pick, most = p, size[p]
    return pick, False


@compiled
def _merged(i, without, start, rectangle, low, high, alpha, state, box_low, box_high):  # type: ignore[no-untyped-def]
    """The volume of a broker's rectangles merged to alpha boxes, but for the pair ``without``."""
    count = 0
    for p in range(start[i], start[i + 1]):
        if state[p] != GONE and p != without:
            for k in range(low.shape[1]):
                box_low[count, k], box_high[count, k] = low[rectangle[p], k], high[rectangle[p], k]
            count += 1
    count = merge_in_place(box_low, box_high, count, alpha)
    return union_of(box_low[:count], box_high[:count])


@compiled
def _gain(p, i, start, rectangle, low, high, alpha, state, value, box_low, box_high):  # type: ignore[no-untyped-def]
    """The volume that deleting a pair saves: nothing for a rectangle inside another of the same broker."""
    for q in range(start[i], start[i + 1]):
        if q != p and state[q] != GONE:
            inner = True
            for k in range(low.shape[1]):
                if low[rectangle[p], k] < low[rectangle[q], k] or high[rectangle[p], k] > high[rectangle[q], k]:
                    inner = False
                    break
            if inner:
                return 0.0
    return value[i] - _merged(i, p, start, rectangle, low, high, alpha, state, box_low, box_high)


@compiled
def _renew(i, start, rectangle, low, high, alpha, state, value, gain, fresh, box_low, box_high):  # type: ignore[no-untyped-def]
    """The value of a broker whose rectangles changed, and the gains of its pairs."""
    value[i] = _merged(i, -1, start, rectangle, low, high, alpha, state, box_low, box_high)
    left = 0
    for p in range(start[i], start[i + 1]):
        left += state[p] != GONE
    for p in range(start[i], start[i + 1]):
        if state[p] == OPEN:
            fresh[p] = left <= EAGER
            if fresh[p]:
                gain[p] = _gain(p, i, start, rectangle, low, high, alpha, state, value, box_low, box_high)


@compiled
def _delete(i, members, allowed, held, cover, ways, place, load, capacity, links, via, queue, seen, lost):  # type: ignore[no-untyped-def]
    """Take a rectangle with the given rows from broker ``i``, if all of them can do without; else nothing changes."""
    word, bit = i // BITS, 1 << (i % BITS)
    count, movers = 0, 0
    for r in members:
        if allowed[r, i] and held[r, i] == 1:
            if ways[r] == 1:
                return False
            movers += place[r] == i
            lost[count] = r
            count += 1
    before = place.copy() if movers > 0 else place
    for s in range(count):
        r = lost[s]
        cover[r, word] ^= bit
        if place[r] == i:
            _unlink(r, i, links)
            place[r] = -1
            load[i] -= 1
    for s in range(count):
        r = lost[s]
        if before[r] == i and not _augment(r, cover, place, load, capacity, links, via, queue, seen):
            for t in range(count):
                cover[lost[t], word] ^= bit
            _restore(before, place, load, links)
            return False
    for s in range(count):
        ways[lost[s]] -= 1
    for r in members:
        if allowed[r, i]:
            held[r, i] -= 1
    return True


@compiled
def _restore(before, place, load, links):  # type: ignore[no-untyped-def]
    for i in range(len(load)):
        load[i] = 0
        links[0, i] = -1
    for r in range(len(place)):
        place[r] = before[r]
        if place[r] >= 0:
            _link(r, place[r], links)
            load[place[r]] += 1


@compiled
def _link(r, i, links):  # type: ignore[no-untyped-def]
    after = links[0, i]
    links[1, r], links[2, r] = after, -1
    if after >= 0:
        links[2, after] = r
    links[0, i] = r


@compiled
def _unlink(r, i, links):  # type: ignore[no-untyped-def]
    after, before = links[1, r], links[2, r]
    if before >= 0:
        links[1, before] = after
    else:
        links[0, i] = after
    if after >= 0:
        links[2, after] = before


@compiled
def _augment(r, cover, place, load, capacity, links, via, queue, seen):  # type: ignore[no-untyped-def]
    """Place a row: at a broker with room, or along a shortest chain of rows that each move on to another broker."""
    for w in range(len(seen)):
        seen[w] = 0
    first, last, row = 0, 0, r
    while True:
        for w in range(len(seen)):
            new = cover[row, w] & ~seen[w]
            seen[w] |= new
            i = w * BITS
            while new != 0:
                if new & 1:
                    via[i] = row
                    if load[i] < capacity[i]:
                        load[i] += 1
                        while True:
                            row = via[i]
                            come_from = place[row]
                            if come_from >= 0:
                                _unlink(row, come_from, links)
                            _link(row, i, links)
                            place[row] = i
                            if row == r:
                                return True
                            i = come_from
                    queue[last] = i
                    last += 1
                new >>= 1
                i += 1
        row = links[1, row] if row != r else -1
        while row < 0:
            if first == last:
                return False
            row = links[0, queue[first]]
            first += 1
