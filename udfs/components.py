"""Carriers of the union-find kernels: each works on all rows of its partition, and emits in small batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import DataType, LongType, StructField, StructType

from udfs.arrow import gather, ints
from udfs.kernels.unionfind import components, induced_components, keyed_components

__all__ = ["STARS", "component_schema", "label_induced", "label_keyed", "stars"]

ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]

STARS = StructType([StructField("component", LongType()), StructField("id", LongType())])
BATCH = 250_000  # rows emitted at once


def component_schema(node: str, key: str, key_type: DataType) -> StructType:
    """What ``label_induced`` and ``label_keyed`` return."""
    return StructType([StructField(node, LongType()), StructField(key, key_type), StructField("component", LongType())])


def stars(keep_roots: bool) -> ArrowFunction:
    """Edges (two id columns) to ``STARS``: every id of the partition with the smallest id of its component there.

    The rows are a spanning forest of the partition's edges; the rows of the smallest ids themselves say nothing an
    edge would say, and come only with ``keep_roots``.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = gather(batches)
        if table is None:
            return
        src, dst = ints(table.column(0)), ints(table.column(1))
        ids = np.unique(np.concatenate([src, dst]))
        labels = components(len(ids), np.searchsorted(ids, src), np.searchsorted(ids, dst))
        rows = np.arange(len(ids)) if keep_roots else np.flatnonzero(labels != np.arange(len(ids)))
        yield from _batches([pa.array(ids[labels[rows]]), pa.array(ids[rows])], STARS.names)

    return run


def label_induced(schema: StructType) -> ArrowFunction:
    """Rows (key, a, b) to ``component_schema``: pairs have key and node ``a``; edges a - b have no key, and count for all keys."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = gather(batches)
        if table is None:
            return
        names, code, a, b, is_pair = _columns(table)
        ids, node = np.unique(a[is_pair], return_inverse=True)
        src, dst = _places(ids, a[~is_pair]), _places(ids, b[~is_pair])
        inside = (src >= 0) & (dst >= 0)
        found = induced_components(node, code[is_pair], len(ids), len(names), src[inside], dst[inside])
        yield from _labelled(found, ids, names, schema)

    return run


def label_keyed(schema: StructType) -> ArrowFunction:
    """Rows (key, a, b) to ``component_schema``: pairs have key and node ``a``; edges a - b have the key they count for."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = gather(batches)
        if table is None:
            return
        names, code, a, b, is_pair = _columns(table)
        ids, node = np.unique(a[is_pair], return_inverse=True)
        src, dst = np.searchsorted(ids, a[~is_pair]), np.searchsorted(ids, b[~is_pair])
        yield from _labelled(keyed_components(node, code[is_pair], len(ids), code[~is_pair], src, dst), ids, names, schema)

    return run


def _columns(table: pa.Table) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The distinct keys; then of every row the number of its key (-1 without), ``a``, ``b`` and whether it is a pair."""
    key = table.column(0).combine_chunks()
    encoded = (key.chunk(0) if isinstance(key, pa.ChunkedArray) else key).dictionary_encode()
    b = table.column(2).combine_chunks()
    is_pair = b.is_null().to_numpy(zero_copy_only=False)
    return encoded.dictionary, ints(encoded.indices.fill_null(-1)), ints(table.column(1)), ints(b.fill_null(0)), is_pair


def _places(ids: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index of each value in the sorted ``ids``; -1 where it is not there."""
    if not len(ids):
        return np.full(len(values), -1)
    at = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    return np.where(ids[at] == values, at, -1)


def _labelled(
    found: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], ids: NDArray[np.int64], names: pa.Array, schema: StructType
) -> Iterator[pa.RecordBatch]:
    node, key, label = found
    yield from _batches([pa.array(ids[node]), names.take(pa.array(key)), pa.array(ids[label])], schema.names)


def _batches(columns: list[pa.Array], names: list[str]) -> Iterator[pa.RecordBatch]:
    yield from pa.Table.from_arrays(columns, names).to_batches(max_chunksize=BATCH)
