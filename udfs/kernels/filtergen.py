"""FilterGen (section IV-A.3 of Yu, Agarwal, Yang, ICDE): a few thousand candidate rectangles for LPRelax to build filters from.

Subscriptions are clustered in the joint network-event space; the minimum enclosing boxes (MEBs) of the clusters are the
super-subscriptions. In every dimension a family of intervals of doubling lengths holds the super-subscriptions' sides,
no two of one length overlapping by more than a share eta of it. The candidates are the products of the families, each
shrunk to the MEB of the subscriptions it contains. Where the product would be large (always from three dimensions on)
the same scan runs in all dimensions at once, with lengths tied across dimensions up to a small difference in aspect.

Different from the paper: the super-subscriptions themselves and the MEB of everything are candidates too, so every
subscription is inside one of them whatever the families hold; and the number of lengths is capped.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled
from udfs.kernels.hashing import uniforms

__all__ = ["candidate_rectangles", "contains", "interval_family", "super_subscriptions"]

Floats = NDArray[np.float64]
SCALES = 14
"""Most doubling lengths of a dimension: shorter sides than extent / 2^14 count as that long."""
ROUNDS = 8
"""Lloyd rounds; later ones move few rows and the boxes need not be optimal."""
PRODUCT = 40
"""The product of the families is formed up to this many times the rectangles wanted."""
SPREAD = 3
"""Largest difference of the (relative, binary) scales of two dimensions where the product is not formed."""


def super_subscriptions(location: Floats, low: Floats, high: Floats, k: int, seed: int) -> tuple[Floats, Floats]:
    """The MEBs of at most ``k`` clusters of similar place and interest; with ``k`` rows or fewer, the distinct subscriptions."""
    if k >= len(low):
        return _distinct(low, high)
    points = np.hstack([_unit_spread(location), _unit_spread(np.hstack([(low + high) / 2, high - low]))])
    points = np.ascontiguousarray(points, dtype=np.float32)
    cluster = _k_means(points, uniforms(seed, 0, np.arange(k)), ROUNDS)
    box_low, box_high = np.full((k, low.shape[1]), np.inf), np.full((k, low.shape[1]), -np.inf)
    np.minimum.at(box_low, cluster, low)
    np.maximum.at(box_high, cluster, high)
    used = np.bincount(cluster, minlength=k) > 0
    return _distinct(box_low[used], box_high[used])


def _unit_spread(points: Floats) -> Floats:
    """Centred, with a mean squared distance of 1 from the centre: the two spaces then weigh alike."""
    centred = points - points.mean(0)
    spread = np.sqrt((centred**2).sum(1).mean()) if len(points) else 0.0
    return centred / spread if spread > 0 else centred


@compiled
def _k_means(points, draws, rounds):  # type: ignore[no-untyped-def]
    """k-means++ start from the given uniforms, then Lloyd rounds; ties go to the lower cluster."""
    rows, dims = points.shape
    k = len(draws)
    centre = np.empty((k, dims), dtype=points.dtype)
    nearest = np.full(rows, np.inf)
    cluster = np.zeros(rows, dtype=np.int64)
    for c in range(k):
        total = 0.0
        if c > 0:
            for j in range(rows):
                total += nearest[j]
        pick = min(int(draws[c] * rows), rows - 1)
        if total > 0.0:
            wanted, reached = draws[c] * total, 0.0
            for j in range(rows):
                reached += nearest[j]
                if reached >= wanted and nearest[j] > 0.0:
                    pick = j
                    break
        centre[c] = points[pick]
        for j in range(rows):
            squared = points.dtype.type(0.0)
            for d in range(dims):
                gap = points[j, d] - centre[c, d]
                squared += gap * gap
            if squared < nearest[j]:
                nearest[j] = squared
                cluster[j] = c
    size = np.empty(k)
    total_of = np.empty((k, dims))
    for _ in range(rounds):
        size[:] = 0.0
        total_of[:] = 0.0
        for j in range(rows):
            size[cluster[j]] += 1.0
            for d in range(dims):
                total_of[cluster[j], d] += points[j, d]
        for c in range(k):
            if size[c] > 0.0:  # an empty cluster keeps its centre and may fill again
                for d in range(dims):
                    centre[c, d] = total_of[c, d] / size[c]
        moved = 0
        for j in range(rows):
            own = cluster[j]
            least = points.dtype.type(0.0)
            for d in range(dims):
                gap = points[j, d] - centre[own, d]
                least += gap * gap
            best = own
            for c in range(k):
                squared = points.dtype.type(0.0)
                for d in range(dims):
                    gap = points[j, d] - centre[c, d]
                    squared += gap * gap
                    if squared >= least:
                        break
                if squared < least:
                    least = squared
                    best = c
            if best != own:
                cluster[j] = best
                moved += 1
        if moved == 0:
            break
    return cluster


def interval_family(low: Floats, high: Floats, eta: float = 0.5) -> tuple[Floats, Floats]:
    """The family J of one dimension: intervals of lengths 2^j times the shortest side, and the whole extent.

    The shortest side counts as at least extent / 2^SCALES, so points and a huge ratio of lengths give at most SCALES
    lengths. Sides above half of the longest length are inside the whole extent only.
    """
    if len(low) == 0:
        return np.empty(0), np.empty(0)
    left, right = low.min(), high.max()
    extent = right - left
    pairs = [(left, right)]
    if extent > 0:
        length = high - low
        shortest = max(length.min(), extent / 2.0**SCALES)
        order = np.argsort(low, kind="stable")
        for j in range(1, int(np.floor(np.log2(extent / shortest) + 1e-9)) + 1):
            side = shortest * 2.0**j
            short = order[length[order] <= side / 2]
            pairs.extend(_scan(low[short], high[short], side, eta))
    family = np.unique(np.array(pairs), axis=0)
    return family[:, 0].copy(), family[:, 1].copy()


def _scan(low: Floats, high: Floats, side: float, eta: float) -> list[tuple[float, float]]:
    """Intervals of one length over intervals sorted by their left ends, each shrunk to what it contains."""
    found = []
    at = 0
    while at < len(low):
        p = low[at]
        end = int(np.searchsorted(low, p + side, side="right"))
        inside = high[at:end] <= p + side
        # the left end stays at p: the first interval begins there
        found.append((float(p), float(high[at:end][inside].max())))
        at = int(np.searchsorted(low, p + (1.0 - eta) * side, side="right"))
    return found


def candidate_rectangles(
    location: Floats, low: Floats, high: Floats, *, k: int, seed: int, eta: float = 0.5, most: int = 6000
) -> tuple[Floats, Floats]:
    """At most ``most`` distinct rectangles, each the MEB of the subscriptions it contains; every subscription is in one of them."""
    if not 0.5 <= eta < 1.0:
        raise ValueError(f"eta={eta} must be at least 0.5 and below 1")
    if len(low) == 0:
        return np.empty((0, low.shape[1])), np.empty((0, low.shape[1]))
    low, high = np.ascontiguousarray(low, dtype=float), np.ascontiguousarray(high, dtype=float)
    base_low, base_high = super_subscriptions(location, low, high, k, seed)
    dims = low.shape[1]
    families = [interval_family(base_low[:, i], base_high[:, i], eta) for i in range(dims)] if dims <= 2 else []
    order = np.argsort(low[:, 0], kind="stable")
    sorted_low, sorted_high = low[order], high[order]
    if families and np.prod([float(len(a)) for a, _ in families]) <= PRODUCT * most:
        grid_low = np.array(list(itertools.product(*[a for a, _ in families])))
        grid_high = np.array(list(itertools.product(*[b for _, b in families])))
    else:
        grid_low, grid_high = _joint_scan(base_low, base_high, eta, 4 * most)
    shrunk_low, shrunk_high, held = _shrink(grid_low, grid_high, sorted_low, sorted_high)
    found = held > 0
    # a cluster's MEB may hold more rows than its own, but no box around them is smaller: it stays as it is
    kept_low = np.vstack([low.min(0)[None], base_low])
    kept_high = np.vstack([high.max(0)[None], base_high])
    kept_low, kept_high = _distinct(kept_low, kept_high)
    new_low, new_high = _distinct(shrunk_low[found], shrunk_high[found])
    if len(kept_low) + len(new_low) <= most:
        return _distinct(np.vstack([kept_low, new_low]), np.vstack([kept_high, new_high]))
    if len(kept_low) > most:
        kept_low, kept_high = _widest(kept_low, kept_high, low, high, most)
    pick = _thin(new_low, new_high, sorted_low, sorted_high, most - len(kept_low))
    return _distinct(np.vstack([kept_low, new_low[pick]]), np.vstack([kept_high, new_high[pick]]))


def _joint_scan(low: Floats, high: Floats, eta: float, most: int) -> tuple[Floats, Floats]:
    """Boxes whose sides are extent / 2^j, one j a dimension, j's within SPREAD; nearly cubic ones first, at most about ``most``.

    For each shape the boxes that are at most half as large in every dimension are grouped by the scan of one dimension
    after the other; the members' low corners lie within (1 - eta) sides of the group's, so the box there contains them.
    """
    extent = high.max(0) - low.min(0)
    dims = low.shape[1]
    side = high - low
    wide = extent > 0
    shortest = np.where(wide, np.maximum(side.min(0), extent / 2.0**SCALES), 1.0)
    deepest = np.where(wide, np.floor(np.log2(np.where(wide, extent, 1.0) / shortest) + 1e-9), 0).astype(int)
    lows, highs, count = [low.min(0)[None]], [high.max(0)[None]], 1
    for spread in range(SPREAD + 1):
        for level in range(int(deepest.max()) + 1):
            for offset in itertools.product(range(spread + 1), repeat=dims):
                if min(offset) > 0 or max(offset) != spread:
                    continue
                if count >= most:
                    return np.vstack(lows), np.vstack(highs)
                j = np.minimum(level + np.array(offset), deepest)
                box = extent / 2.0**j
                short = np.flatnonzero((side <= box / 2).all(1))
                if len(short) == 0:
                    continue
                corner = _corners(low[short], (1.0 - eta) * box)
                lows.append(corner)
                highs.append(corner + box)
                count += len(corner)
    return np.vstack(lows), np.vstack(highs)


def _corners(low: Floats, reach: Floats) -> Floats:
    """The low corners of the groups: rows split by the scan of the first dimension, each group by that of the next, and so on."""
    groups = [np.arange(len(low))]
    corners = np.empty_like(low)
    for d in range(low.shape[1]):
        parts = []
        for group in groups:
            group = group[np.argsort(low[group, d], kind="stable")]
            at = 0
            while at < len(group):
                p = low[group[at], d]
                end = max(int(np.searchsorted(low[group, d], p + reach[d], side="right")), at + 1)
                corners[group[at:end], d] = p
                parts.append(group[at:end])
                at = end
        groups = parts
    return corners[[group[0] for group in groups]]


@compiled
def _shrink(rect_low, rect_high, low, high):  # type: ignore[no-untyped-def]
    """MEB of the boxes inside each rectangle, and how many they are; the boxes are sorted by their low end in dimension 0."""
    count, dims = rect_low.shape
    out_low = np.full((count, dims), np.inf)
    out_high = np.full((count, dims), -np.inf)
    held = np.zeros(count, dtype=np.int64)
    start = np.ascontiguousarray(low[:, 0])
    first = np.searchsorted(start, rect_low[:, 0])
    last = np.searchsorted(start, rect_high[:, 0], side="right")
    for r in range(count):
        for j in range(first[r], last[r]):
            inside = True
            for d in range(dims):
                if low[j, d] < rect_low[r, d] or high[j, d] > rect_high[r, d]:
                    inside = False
                    break
            if inside:
                held[r] += 1
                for d in range(dims):
                    out_low[r, d] = min(out_low[r, d], low[j, d])
                    out_high[r, d] = max(out_high[r, d], high[j, d])
    return out_low, out_high, held


def _distinct(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The distinct boxes, in lexicographic order."""
    both = np.unique(np.hstack([low, high]), axis=0)
    return np.ascontiguousarray(both[:, : low.shape[1]]), np.ascontiguousarray(both[:, low.shape[1] :])


def _thin(low: Floats, high: Floats, rows_low: Floats, rows_high: Floats, most: int) -> NDArray[np.int64]:
    """``most`` of the boxes: in turn from every binary order of the number of rows held, the least margin a row first."""
    _, _, held = _shrink(low, high, rows_low, rows_high)
    margin = ((high - low) / np.maximum(rows_high.max(0) - rows_low.min(0), 1e-300)).sum(1)
    band = np.floor(np.log2(np.maximum(held, 1))).astype(np.int64)
    rank = np.empty(len(low), dtype=np.int64)
    for b in np.unique(band):
        of = np.flatnonzero(band == b)
        rank[of[np.lexsort((of, margin[of] / np.maximum(held[of], 1)))]] = np.arange(len(of))
    return np.sort(np.lexsort((band, rank))[:most])


def _widest(low: Floats, high: Floats, rows_low: Floats, rows_high: Floats, most: int) -> tuple[Floats, Floats]:
    """``most`` boxes, among them the one around everything: the others by the rows they hold."""
    held = contains(low, high, rows_low, rows_high).sum(0)
    pick = np.argsort(-held, kind="stable")[:most]
    return low[pick], high[pick]


def contains(rect_low: Floats, rect_high: Floats, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """(rows, rectangles): whether the rectangle contains the row's box."""
    return _contains(rect_low, rect_high, low, high)


@compiled
def _contains(rect_low, rect_high, low, high):  # type: ignore[no-untyped-def]
    rows, dims = low.shape
    count = len(rect_low)
    out = np.empty((rows, count), dtype=np.bool_)
    for j in range(rows):
        for r in range(count):
            out[j, r] = True
        for d in range(dims):
            a, b = low[j, d], high[j, d]
            for r in range(count):
                out[j, r] &= (rect_low[r, d] <= a) & (b <= rect_high[r, d])
    return out
