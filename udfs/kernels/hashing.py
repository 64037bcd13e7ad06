"""Random numbers that depend on (seed, stream, row id) and on nothing else.

The same row gets the same number whatever the number of partitions, executors or retries. The mixing function is
the finaliser of SplitMix64; two independent streams of one row differ in their 64-bit starting point.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["hash_ids", "normals", "uniforms"]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def hash_ids(seed: int, stream: int, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """64 well-mixed bits an id."""
    start = np.array([seed & _MASK, stream & _MASK], dtype=np.uint64)
    key = _mix(_mix(start[:1] + np.uint64(_GOLDEN)) + start[1:] * np.uint64(0xD1B54A32D192ED03) + np.uint64(_GOLDEN))
    return _mix(_mix(ids.astype(np.uint64) * np.uint64(_GOLDEN) + key) ^ key)


def uniforms(seed: int, stream: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in (0, 1) an id; never 0 or 1, so logarithms are safe."""
    drawn = ((hash_ids(seed, stream, ids) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.minimum(drawn, 1.0 - 2.0**-53)  # the largest one would be rounded to 1


def normals(seed: int, stream: int, ids: NDArray[np.int64], columns: int) -> NDArray[np.float64]:
    """A (rows, columns) array of standard normals (Box-Muller); uses the streams from ``stream`` on, two a column."""
    out = np.empty((len(ids), columns))
    for column in range(columns):
        radius = np.sqrt(-2.0 * np.log(uniforms(seed, stream + 2 * column, ids)))
        out[:, column] = radius * np.cos(2.0 * np.pi * uniforms(seed, stream + 2 * column + 1, ids))
    return out
