"""What a box costs: its volume, or the share of an event sample inside it.

With events, coordinates are mapped to positions on a grid of the events' quantiles (a monotone map, so boxes contain each
other after it as before it), and a box is measured by the corners of a summed-area table, interpolated between grid
lines: a few look-ups instead of a scan of the events. Boxes are closed: a coordinate that events share has a second line
just above it, and faces are moved outwards by a little more than that, so that events on a face count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.compiled import compiled

__all__ = ["Measure", "box_measure"]

Floats = NDArray[np.float64]
CELLS = 1 << 16
"""About how many cells the grid has in all: 256 x 256 in two dimensions, 40 a side in three; more where events share coordinates."""
HAIR = 1e-7
"""How far faces are moved outwards, as a share of the extent."""


@dataclass(frozen=True)
class Measure:
    """``table`` is the cumulated event share at the grid's corners, flat; empty for volumes. ``lines`` are the grid lines."""

    table: Floats
    sides: NDArray[np.int64]
    lines: tuple[Floats, ...] = ()
    hair: tuple[float, ...] = ()

    @classmethod
    def volume(cls) -> Measure:
        return cls(np.empty(0), np.empty(0, dtype=np.int64))

    @classmethod
    def events(cls, points: Floats, weights: Floats, low: Floats, high: Floats) -> Measure:
        """Shares of the weighted ``points``; ``low`` and ``high`` are the corners of the box around all subscriptions."""
        dims = points.shape[1]
        quantiles = np.linspace(0, 1, max(2, round(CELLS ** (1 / dims)) + 1))
        lines, hairs = [], []
        for k in range(dims):
            begin, end = min(low[k], points[:, k].min()), max(high[k], points[:, k].max())
            hair = HAIR * (end - begin) or HAIR * max(abs(begin), 1.0)
            values, count = np.unique(points[:, k], return_counts=True)
            shared = np.intersect1d(np.quantile(points[:, k], quantiles, method="nearest"), values[count > 1])
            ends = [begin - 2 * hair, end + 2 * hair]
            lines.append(np.unique(np.concatenate([np.quantile(points[:, k], quantiles), shared, shared + hair / 2, ends])))
            hairs.append(hair)
        counts, _ = np.histogramdd(points, bins=lines, weights=weights)
        table = np.zeros([len(line) for line in lines])
        table[tuple(slice(1, None) for _ in lines)] = counts / weights.sum()
        for axis in range(dims):
            np.cumsum(table, axis=axis, out=table)
        return cls(np.ascontiguousarray(table).ravel(), np.array(table.shape, dtype=np.int64), tuple(lines), tuple(hairs))

    def map(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Boxes in the coordinates in which ``box_measure`` measures; the same ones for volumes."""
        if not self.lines:
            return np.ascontiguousarray(low), np.ascontiguousarray(high)
        faces = []
        for corners, outwards in ((low, -1.0), (high, 1.0)):
            moved = [np.interp(corners[:, k] + outwards * self.hair[k], line, np.arange(len(line))) for k, line in enumerate(self.lines)]
            faces.append(np.stack(moved, axis=1))
        return faces[0], faces[1]

    def of(self, low: Floats, high: Floats) -> Floats:
        """The measure of each box, in the coordinates of the subscriptions."""
        return _measures(*self.map(low, high), self.table, self.sides)


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
