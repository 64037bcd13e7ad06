"""Filter adjustment (section IV-C of Yu, Agarwal, Yang, ICDE): the boxes of a filter replaced by at most alpha boxes.

Every given box lies inside one of the result's, and the volume of their union is to be small; the least one is
NP-hard to find. The paper clusters the boxes into alpha groups and takes the groups' minimum enclosing boxes (MEBs).
We start from three clusterings (agglomerative merging; guillotine cuts that leave the least union, and the least sum,
of the two parts' volumes), improve each by peeling boxes off the faces of the groups, and keep the best.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.boxes import merge_in_place, sort_by, thin_in_place, union_of
from udfs.kernels.compiled import compiled

__all__ = ["alpha_boxes"]

Floats = NDArray[np.float64]
PEEL = 24
"""The most boxes that one step moves from a face of a group to another group."""
STEPS = 60
"""The most steps of one improvement; a dozen is common."""
CELLS = 1000
"""Where the boxes of a result cut space into more cells than this, steps go by the sum of volumes: the union takes too long."""


def alpha_boxes(low: Floats, high: Floats, alpha: int) -> tuple[Floats, Floats]:
    """At most ``alpha`` boxes, each given box inside one of them, with a small union (ties: a small sum of volumes)."""
    if alpha < 1:
        raise ValueError(f"alpha must be at least 1, got {alpha}")
    low, high = np.array(low, dtype=np.float64, order="C"), np.array(high, dtype=np.float64, order="C")
    if len(low) < 2:
        return low, high
    count = thin_in_place(low, high, len(low))
    low, high = low[:count].copy(), high[:count].copy()
    return (low, high) if count <= alpha else _best_clusters(low, high, alpha)


def _best_clusters(low: Floats, high: Floats, alpha: int) -> tuple[Floats, Floats]:
    best: tuple[tuple[float, float], Floats, Floats] | None = None
    for label in (_merged(low, high, alpha), _cut(low, high, alpha, True), _cut(low, high, alpha, False)):
        for around_low, around_high, size in (_enclose(low, high, label, alpha), _improve(low, high, label, alpha)):
            some_low, some_high = around_low[size > 0], around_high[size > 0]
            value = (union_of(some_low, some_high), _total(some_low, some_high))
            if best is None or value < best[0]:
                best = (value, some_low, some_high)
    assert best is not None
    kept = thin_in_place(best[1], best[2], len(best[1]))
    return best[1][:kept].copy(), best[2][:kept].copy()


@compiled
def _volume(low, high):  # type: ignore[no-untyped-def]
    volume = 1.0
    for k in range(low.shape[0]):
        volume *= max(high[k] - low[k], 0.0)
    return volume


@compiled
def _overlap(low, high, other_low, other_high):  # type: ignore[no-untyped-def]
    volume = 1.0
    for k in range(low.shape[0]):
        volume *= max(min(high[k], other_high[k]) - max(low[k], other_low[k]), 0.0)
    return volume


@compiled
def _total(low, high):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(low.shape[0]):
        total += _volume(low[i], high[i])
    return total


@compiled
def _stretch(low, high, to_low, to_high):  # type: ignore[no-untyped-def]
    """Enlarge the first box, in place, to contain the second."""
    for k in range(low.shape[0]):
        low[k], high[k] = min(low[k], to_low[k]), max(high[k], to_high[k])


@compiled
def _copy(low, high, to_low, to_high):  # type: ignore[no-untyped-def]
    for k in range(low.shape[0]):
        to_low[k], to_high[k] = low[k], high[k]


@compiled
def _enclose(low, high, label, groups):  # type: ignore[no-untyped-def]
    """The MEB and the size of every group; an empty one has the empty box (inf, -inf)."""
    around_low, around_high = np.full((groups, low.shape[1]), np.inf), np.full((groups, low.shape[1]), -np.inf)
    size = np.zeros(groups, dtype=np.int64)
    for i in range(low.shape[0]):
        _stretch(around_low[label[i]], around_high[label[i]], low[i], high[i])
        size[label[i]] += 1
    return around_low, around_high, size


@compiled
def _merged(low, high, alpha):  # type: ignore[no-untyped-def]
    """The groups of agglomerative merging: a box belongs to the first merged box that contains it."""
    around_low, around_high = low.copy(), high.copy()
    groups = merge_in_place(around_low, around_high, low.shape[0], alpha)
    label = np.zeros(low.shape[0], dtype=np.int64)
    for i in range(low.shape[0]):
        for g in range(groups):
            inside = True
            for k in range(low.shape[1]):
                if low[i, k] < around_low[g, k] or high[i, k] > around_high[g, k]:
                    inside = False
            if inside:
                label[i] = g
                break
    return label


@compiled
def _cut(low, high, alpha, by_union):  # type: ignore[no-untyped-def]
    """The groups after alpha - 1 guillotine cuts, each the one that gains most."""
    label = np.zeros(low.shape[0], dtype=np.int64)
    gain = np.zeros(alpha)
    part = np.zeros(low.shape[0], dtype=np.bool_)  # for every group its own best cut: the boxes that would leave it
    gain[0] = _best_cut(low, high, label, 0, by_union, part)
    for g in range(1, alpha):
        split = 0
        for s in range(1, g):
            if gain[s] > gain[split]:
                split = s
        if not gain[split] > 0.0:
            break
        for i in range(low.shape[0]):
            if label[i] == split and part[i]:
                label[i] = g
        gain[split] = _best_cut(low, high, label, split, by_union, part)
        gain[g] = _best_cut(low, high, label, g, by_union, part)
    return label


@compiled
def _best_cut(low, high, label, group, by_union, part):  # type: ignore[no-untyped-def]
    """Mark in ``part`` one side of the best cut of a group by low corners, high corners or centres: the volume gained."""
    rows, dims = low.shape
    order, key, many = np.empty(rows, dtype=np.int64), np.empty(rows), 0
    for i in range(rows):
        if label[i] == group:
            order[many] = i
            many += 1
            part[i] = False
    if many < 2:
        return 0.0
    order = order[:many]
    first_low, first_high = np.empty(dims), np.empty(dims)
    rest_low, rest_high = np.empty((many, dims)), np.empty((many, dims))
    best, best_total, whole = np.inf, np.inf, 0.0
    for k in range(dims):
        for kind in range(3):
            for s in range(many):
                i = order[s]
                key[i] = low[i, k] if kind == 0 else high[i, k] if kind == 1 else low[i, k] + high[i, k]
            sort_by(key, order)
            _copy(low[order[many - 1]], high[order[many - 1]], rest_low[many - 1], rest_high[many - 1])
            for s in range(many - 2, -1, -1):
                _copy(rest_low[s + 1], rest_high[s + 1], rest_low[s], rest_high[s])
                _stretch(rest_low[s], rest_high[s], low[order[s]], high[order[s]])
            whole = _volume(rest_low[0], rest_high[0])
            _copy(low[order[0]], high[order[0]], first_low, first_high)
            at = 0
            for s in range(1, many):
                total = _volume(first_low, first_high) + _volume(rest_low[s], rest_high[s])
                left = total - _overlap(first_low, first_high, rest_low[s], rest_high[s]) if by_union else total
                if left < best or (left == best and total < best_total):
                    best, best_total, at = left, total, s
                _stretch(first_low, first_high, low[order[s]], high[order[s]])
            if at > 0:
                for s in range(many):
                    part[order[s]] = s >= at
    return whole - best


@compiled
def _improve(low, high, label, groups):  # type: ignore[no-untyped-def]
    """Move boxes between groups while that lowers the volume of the union of the MEBs (ties: their sum): MEBs and sizes.

    A step takes the boxes that reach furthest towards one face of a group, 1 to ``PEEL`` of them, and gives them to
    one other group, which may be empty: the step that gains most. (One box alone often hides behind a second one.)
    """
    dims = low.shape[1]
    exact = (2.0 * groups) ** (dims - 1) <= CELLS
    around_low, around_high, size = _enclose(low, high, label, groups)
    spare_low, spare_high = np.empty((groups, dims)), np.empty((groups, dims))
    union, total = _measure(around_low, around_high, size, exact, spare_low, spare_high)
    front, best_front = np.empty(PEEL, dtype=np.int64), np.empty(PEEL, dtype=np.int64)
    rest_low, rest_high = np.empty((PEEL + 1, dims)), np.empty((PEEL + 1, dims))
    old_low, old_high = np.empty(dims), np.empty(dims)
    for _ in range(STEPS):
        best_union, best_total, best_many, best_to = union, total, 0, 0
        for g in range(groups):
            for face in range(2 * dims):
                reach = _front(low, high, label, g, face, front, rest_low, rest_high)
                if reach == 0:
                    break
                mine = size[g]
                for h in range(groups):
                    if h == g:
                        continue
                    theirs = size[h]
                    _copy(around_low[h], around_high[h], old_low, old_high)
                    for many in range(1, reach + 1):
                        _stretch(around_low[h], around_high[h], low[front[many - 1]], high[front[many - 1]])
                        _copy(rest_low[many], rest_high[many], around_low[g], around_high[g])
                        if exact and not _promises(
                            around_low, around_high, g, h, rest_low[0], rest_high[0], old_low, old_high, union, total, best_union, best_total
                        ):
                            continue
                        size[g], size[h] = mine - many, theirs + many
                        new_union, new_total = _measure(around_low, around_high, size, exact, spare_low, spare_high)
                        if _less(new_union, new_total, best_union, best_total):
                            best_union, best_total, best_many, best_to = new_union, new_total, many, h
                            for s in range(many):
                                best_front[s] = front[s]
                    size[g], size[h] = mine, theirs
                    _copy(rest_low[0], rest_high[0], around_low[g], around_high[g])
                    _copy(old_low, old_high, around_low[h], around_high[h])
        if best_many == 0:
            break
        for s in range(best_many):
            label[best_front[s]] = best_to
        around_low, around_high, size = _enclose(low, high, label, groups)
        union, total = best_union, best_total
    return around_low, around_high, size


@compiled
def _promises(around_low, around_high, g, h, g_low, g_high, h_low, h_high, union, total, than_union, than_total):  # type: ignore[no-untyped-def]
    """Whether a step that has changed the boxes of g and h can beat what was found, by a bound much cheaper than the union.

    Of the volume that g's box gave up, what one other box holds is not freed; of the volume that h's box won, all is
    new but for what the other boxes hold.
    """
    freed = _volume(g_low, g_high) - _volume(around_low[g], around_high[g])
    if freed <= 0.0:
        return False
    won = _volume(around_low[h], around_high[h]) - _volume(h_low, h_high)
    new_total = total - freed + won
    still = _overlap(h_low, h_high, g_low, g_high) - _overlap(h_low, h_high, around_low[g], around_high[g])
    new = won
    for o in range(around_low.shape[0]):
        if o != h:
            new -= _overlap(around_low[o], around_high[o], around_low[h], around_high[h]) - _overlap(around_low[o], around_high[o], h_low, h_high)
            if o != g:
                taken = _overlap(around_low[o], around_high[o], g_low, g_high) - _overlap(around_low[o], around_high[o], around_low[g], around_high[g])
                still = max(still, taken)
    return _less(union - freed + still + max(new, 0.0), new_total, than_union, than_total)


@compiled
def _less(union, total, than_union, than_total):  # type: ignore[no-untyped-def]
    """Whether a pair is less by more than rounding: each step must gain, or steps could run in a circle."""
    close = 1e-12 * than_total
    return union < than_union - close or (union < than_union + close and total < than_total - close)


@compiled
def _measure(around_low, around_high, size, exact, spare_low, spare_high):  # type: ignore[no-untyped-def]
    """(volume of the union, sum of the volumes) of the boxes of the groups that are not empty; if not exact, the sum twice."""
    used = 0
    for g in range(len(size)):
        if size[g] > 0:
            _copy(around_low[g], around_high[g], spare_low[used], spare_high[used])
            used += 1
    total = _total(spare_low[:used], spare_high[:used])
    return union_of(spare_low[:used], spare_high[:used]) if exact else total, total


@compiled
def _front(low, high, label, group, face, front, rest_low, rest_high):  # type: ignore[no-untyped-def]
    """The boxes of a group that reach furthest towards a face, the furthest first, and the MEBs of what they leave.

    ``rest[many]`` is the MEB of the group without the first ``many`` of them; how many there are is returned.
    """
    k, reach = face // 2, 0
    key = np.empty(PEEL)
    for s in range(PEEL + 1):
        for j in range(low.shape[1]):
            rest_low[s, j], rest_high[s, j] = np.inf, -np.inf
    for i in range(low.shape[0]):
        if label[i] != group:
            continue
        value = low[i, k] if face % 2 == 0 else -high[i, k]
        if reach == PEEL and value >= key[PEEL - 1]:
            _stretch(rest_low[PEEL], rest_high[PEEL], low[i], high[i])
            continue
        if reach == PEEL:
            _stretch(rest_low[PEEL], rest_high[PEEL], low[front[PEEL - 1]], high[front[PEEL - 1]])
        else:
            reach += 1
        s = reach - 1
        while s > 0 and key[s - 1] > value:
            key[s], front[s] = key[s - 1], front[s - 1]
            s -= 1
        key[s], front[s] = value, i
    for s in range(reach - 1, -1, -1):
        _copy(rest_low[s + 1], rest_high[s + 1], rest_low[s], rest_high[s])
        _stretch(rest_low[s], rest_high[s], low[front[s]], high[front[s]])
    return reach
