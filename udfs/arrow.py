"""Between Arrow batches and numpy arrays, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["floats", "gather", "ints", "lists", "matrix", "packed"]


def gather(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    """All batches of a partition as one table; None when there are none."""
    kept = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(kept).combine_chunks() if kept else None


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def matrix(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """A column of equally long lists as a (rows, length) array."""
    array = _array(column)
    flat = array.flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat.reshape(len(array), -1))


def floats(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """A column of doubles; null becomes NaN."""
    return _array(column).to_numpy(zero_copy_only=False).astype(np.float64)


def ints(column: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    return _array(column).to_numpy(zero_copy_only=False).astype(np.int64)


def lists(values: NDArray[np.float64]) -> pa.ListArray:
    """The inverse of ``matrix``."""
    rows, length = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * length, pa.int32()), pa.array(values.ravel()))


def packed(values: NDArray[np.uint8]) -> pa.Array:
    """Rows of bytes as a binary column."""
    rows, length = values.shape
    offsets = pa.py_buffer((np.arange(rows + 1) * length).astype(np.int32).tobytes())
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(np.ascontiguousarray(values).tobytes())])
