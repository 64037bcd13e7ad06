"""What a box costs: its volume, or the share of an event sample inside it.

With events, coordinates are mapped to positions on a grid of the events' quantiles (a monotone map, so boxes contain each
other after it as before it), and a box is measured by the corners of a summed-area table, interpolated between grid
lines: a few look-ups instead of a scan of the events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled

__all__ = ["Measure", "box_measure"]

Floats = NDArray[np.float64]
CELLS = 1 << 16
"""About how many cells the grid has in all: 256 x 256 in two dimensions, 40 a side in three."""


@dataclass(frozen=True)
class Measure:
    """``table`` is the cumulated event share at the grid's corners, flat; empty for volumes. ``lines`` are the grid lines."""

    table: Floats
    sides: NDArray[np.int64]
    lines: tuple[Floats, ...] = ()

    @classmethod
    def volume(cls) -> Measure:
        return cls(np.empty(0), np.empty(0, dtype=np.int64))

    @classmethod
    def events(cls, points: Floats, weights: Floats, low: Floats, high: Floats) -> Measure:
        """Shares of the weighted ``points``; ``low`` and ``high`` are the corners of the box around all subscriptions."""
        dims = points.shape[1]
        a_side = max(2, round(CELLS ** (1 / dims)))
        lines = []
        for k in range(dims):
            inner = np.quantile(points[:, k], np.linspace(0, 1, a_side + 1))
            reach = max(high[k] - low[k], 1e-300)
            ends = [min(low[k], inner[0]) - 1e-6 * reach, max(high[k], inner[-1]) + 1e-6 * reach]
            lines.append(np.unique(np.concatenate([inner, ends])))
        counts, _ = np.histogramdd(points, bins=lines, weights=weights)
        table = np.zeros([len(line) for line in lines])
        table[tuple(slice(1, None) for _ in lines)] = counts / weights.sum()
        for axis in range(dims):
            np.cumsum(table, axis=axis, out=table)
        return cls(np.ascontiguousarray(table).ravel(), np.array(table.shape, dtype=np.int64), tuple(lines))

    def map(self, corners: Floats) -> Floats:
        """Coordinates in which ``box_measure`` measures; the same ones for volumes."""
        if not self.lines:
            return np.ascontiguousarray(corners)
        return np.stack([np.interp(corners[:, k], line, np.arange(len(line))) for k, line in enumerate(self.lines)], axis=1)

    def of(self, low: Floats, high: Floats) -> Floats:
        """The measure of each box, in the coordinates of the subscriptions."""
        return _measures(self.map(low), self.map(high), self.table, self.sides)


@compiled
def box_measure(low, high, table, sides):  # type: ignore[no-untyped-def]
    """The measure of one box in mapped coordinates."""
    dims = low.shape[0]
    if sides.shape[0] == 0:
        volume = 1.0
        for k in range(dims):
            volume *= high[k] - low[k]
        return volume
    total = 0.0
    for corner in range(1 << dims):
        sign = 1.0
        for k in range(dims):
            if not (corner >> k) & 1:
                sign = -sign
        value = 0.0
        for neighbour in range(1 << dims):
            share, index = 1.0, 0
            for k in range(dims):
                at = high[k] if (corner >> k) & 1 else low[k]
                cell = min(int(at), sides[k] - 2)
                part = at - cell
                share *= part if (neighbour >> k) & 1 else 1.0 - part
                index = index * sides[k] + cell + ((neighbour >> k) & 1)
            if share > 0.0:
                value += share * table[index]
        total += sign * value
    return max(total, 0.0)


@compiled
def _measures(low, high, table, sides):  # type: ignore[no-untyped-def]
    out = np.empty(low.shape[0])
    for r in range(low.shape[0]):
        out[r] = box_measure(low[r], high[r], table, sides)
    return out
