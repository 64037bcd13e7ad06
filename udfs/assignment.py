"""Carriers of the assignment kernels: each factory binds what is small (the broker tree) and returns an Arrow function."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)  # fmt: skip

from udfs.arrow import floats, gather, ints, lists, matrix, packed
from udfs.kernels.boxes import merge_boxes
from udfs.kernels.greedy import Filters, GreedyResult, greedy
from udfs.kernels.latency import Reach, latency_to, nearest_open, pack_sets, reach
from udfs.kernels.tree import BrokerTree

__all__ = [
    "CANDIDATES", "CHOICE", "LEAF_BOXES", "OUTCOME", "PAIRS", "PLACED",
    "candidate_pairs", "candidate_sets", "greedy_shards", "leaf_boxes", "nearest_leaf", "place",
]  # fmt: skip

ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
_VECTOR = ArrayType(DoubleType())

CANDIDATES = StructType(
    [
        StructField("subscriber_id", LongType()),
        StructField("candidates", BinaryType()),
        StructField("location", _VECTOR),
        StructField("low", _VECTOR),
        StructField("high", _VECTOR),
        StructField("max_latency", DoubleType()),
    ]
)
PAIRS = StructType([StructField("subscriber_id", LongType()), StructField("broker_id", LongType()), StructField("latency", DoubleType())])
CHOICE = StructType([StructField("subscriber_id", LongType()), StructField("leaf", IntegerType())])
PLACED = StructType(
    [
        StructField("subscriber_id", LongType()),
        StructField("leaf", IntegerType()),
        StructField("latency", DoubleType()),
        StructField("shortest", DoubleType()),
        StructField("limit", DoubleType()),
        StructField("low", _VECTOR),
        StructField("high", _VECTOR),
    ]
)
# A greedy task returns the places of its subscribers, then (subscriber_id null) its rectangles, then one note.
OUTCOME = StructType([*PLACED.fields, StructField("node", IntegerType()), StructField("note", StringType())])
LEAF_BOXES = StructType([StructField("leaf", IntegerType()), StructField("low", _VECTOR), StructField("high", _VECTOR)])


def candidate_sets(tree: BrokerTree, max_delay: float, last_hop: bool) -> ArrowFunction:
    """Adds the candidate leaves of each subscriber as a bitmap."""

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            within = reach(matrix(batch["location"]), floats(batch["max_latency"]), tree, max_delay, last_hop)
            columns = [
                batch["subscriber_id"], packed(pack_sets(within.allowed)),
                batch["location"], batch["low"], batch["high"], batch["max_latency"],
            ]  # fmt: skip
            yield pa.RecordBatch.from_arrays(columns, names=CANDIDATES.names)

    return batches


def candidate_pairs(tree: BrokerTree, max_delay: float, last_hop: bool) -> ArrowFunction:
    """One row for each (subscriber, candidate leaf), with the latency."""

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            location = matrix(batch["location"])
            within = reach(location, floats(batch["max_latency"]), tree, max_delay, last_hop)
            row, leaf = np.nonzero(within.allowed)
            latency = _latency(location[row], leaf, tree, last_hop)
            columns = [pa.array(ints(batch["subscriber_id"])[row]), pa.array(tree.leaf_ids[leaf]), pa.array(latency)]
            yield pa.RecordBatch.from_arrays(columns, names=PAIRS.names)

    return batches


def nearest_leaf(tree: BrokerTree, last_admitted: NDArray[np.int64]) -> ArrowFunction:
    """The nearest leaf that still admits the subscriber's id."""
    leaf_location = np.ascontiguousarray(tree.location[tree.leaves])

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            leaf = nearest_open(matrix(batch["location"]), ints(batch["subscriber_id"]), leaf_location, last_admitted)
            yield pa.RecordBatch.from_arrays([batch["subscriber_id"], pa.array(leaf.astype(np.int32))], names=CHOICE.names)

    return batches


def place(
    tree: BrokerTree, max_delay: float, last_hop: bool, last_admitted: NDArray[np.int64] | None = None
) -> ArrowFunction:
    """Latency, shortest latency and limit of subscribers on their leaf.

    The leaf is the column ``leaf``, or the nearest one that admits the id when ``last_admitted`` is given.
    """
    leaf_location = np.ascontiguousarray(tree.location[tree.leaves])

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            location = matrix(batch["location"])
            within = reach(location, floats(batch["max_latency"]), tree, max_delay, last_hop)
            if last_admitted is None:
                leaf = ints(batch["leaf"])
            else:
                leaf = nearest_open(location, ints(batch["subscriber_id"]), leaf_location, last_admitted)
            leaf = np.where(leaf < 0, within.fastest, leaf)
            columns = _placed(batch, location, leaf, within, tree, last_hop)
            yield pa.RecordBatch.from_arrays(columns, names=PLACED.names)

    return batches


def greedy_shards(
    tree: BrokerTree,
    *,
    alpha: int,
    lbf: float,
    lbf_max: float,
    max_delay: float,
    last_hop: bool,
    reorder: bool,
    ignore_latency: bool,
    start: Filters | None,
) -> ArrowFunction:
    """Greedy over each shard of a partition (column ``shard``; all rows are one without it), in the order of ids, from
    the filters ``start``. Returns rows of ``OUTCOME``."""

    def solve(table: pa.Table) -> tuple[GreedyResult, list[pa.Array], float]:
        location, low, high = matrix(table["location"]), matrix(table["low"]), matrix(table["high"])
        within = reach(location, floats(table["max_latency"]), tree, max_delay, last_hop)
        allowed = pack_sets(np.ones_like(within.allowed) if ignore_latency else within.allowed)
        began = time.perf_counter()
        result = greedy(
            tree, low, high, allowed, within.fastest, alpha=alpha, lbf=lbf, lbf_max=lbf_max, reorder=reorder, start=start
        )
        seconds = time.perf_counter() - began
        return result, _placed(table, location, result.leaf, within, tree, last_hop), seconds

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        everything = gather(stream)
        if everything is None:
            return
        shard = ints(everything["shard"]) if "shard" in everything.column_names else np.zeros(everything.num_rows)
        for which in np.unique(shard):
            table = everything.take(pa.array(np.flatnonzero(shard == which))).sort_by("subscriber_id").combine_chunks()
            result, columns, seconds = solve(table)
            yield from _outcome(columns)
            node, rectangle = np.nonzero(np.arange(alpha)[None, :] < result.filters.count[:, None])
            yield _tail(
                len(node),
                node=pa.array(node.astype(np.int32)),
                low=lists(result.filters.low[node, rectangle]),
                high=lists(result.filters.high[node, rectangle]),
            )
            note = {"lbf": result.lbf, "complete": bool(result.complete), "kernel_seconds": seconds, "rows": table.num_rows}
            yield _tail(1, note=pa.array([json.dumps(note)]))

    return batches


def leaf_boxes(alpha: int) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """For ``applyInPandas``: the boxes of one leaf merged to ``alpha``."""

    def merge(boxes: pd.DataFrame) -> pd.DataFrame:
        low, high = np.stack(boxes["low"].to_list()), np.stack(boxes["high"].to_list())
        order = np.lexsort(np.hstack([low, high]).T[::-1])  # the same merges whatever order the rows arrive in
        low, high = merge_boxes(low[order], high[order], alpha)
        return pd.DataFrame({"leaf": boxes["leaf"].iloc[0], "low": list(low), "high": list(high)})

    return merge


def _latency(location: NDArray[np.float64], leaf: NDArray[np.int64], tree: BrokerTree, last_hop: bool) -> NDArray[np.float64]:
    leaves = tree.leaves
    base = np.zeros(len(leaves)) if last_hop else tree.path_latency[leaves]
    return latency_to(location, leaf, np.ascontiguousarray(tree.location[leaves]), base)


def _placed(
    rows: pa.Table | pa.RecordBatch,
    location: NDArray[np.float64],
    leaf: NDArray[np.int64],
    within: Reach,
    tree: BrokerTree,
    last_hop: bool,
) -> list[pa.Array]:
    through_tree = _latency(location, leaf, tree, last_hop)
    columns = [
        rows["subscriber_id"], pa.array(leaf.astype(np.int32)), pa.array(through_tree),
        pa.array(within.shortest), pa.array(within.limit), rows["low"], rows["high"],
    ]  # fmt: skip
    return [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]


_OUTCOME_TYPES = dict(
    zip(
        OUTCOME.names,
        [pa.int64(), pa.int32(), pa.float64(), pa.float64(), pa.float64(), pa.list_(pa.float64()), pa.list_(pa.float64()), pa.int32(), pa.string()],
        strict=True,
    )
)


def _tail(rows: int, **columns: pa.Array) -> pa.RecordBatch:
    arrays = [columns.get(name, pa.nulls(rows, kind)).cast(kind) for name, kind in _OUTCOME_TYPES.items()]
    return pa.RecordBatch.from_arrays(arrays, names=OUTCOME.names)


def _outcome(columns: list[pa.Array], rows_a_batch: int = 100_000) -> Iterator[pa.RecordBatch]:
    named = dict(zip(PLACED.names, columns, strict=True))
    total = len(columns[0])
    for begin in range(0, total, rows_a_batch):
        part = {name: column.slice(begin, rows_a_batch) for name, column in named.items()}
        yield _tail(len(part["leaf"]), **part)
