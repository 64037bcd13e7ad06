"""Carriers of the SLP kernels: the covering test, subtrees in a grouped map, searches side by side, final rectangles."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import BinaryType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from udfs.arrow import ints, matrix, packed
from udfs.assignment import CANDIDATES, LEAF_BOXES, PLACED, ArrowFunction
from udfs.kernels.adjust import alpha_boxes
from udfs.kernels.boxes import event_share, union_volume
from udfs.kernels.cover import cover_sets, holding_box
from udfs.kernels.latency import unpack_sets
from udfs.kernels.measure import Measure
from udfs.kernels.nesting import nest
from udfs.kernels.search import Coreset, Found, improve
from udfs.kernels.siblings import Preliminary, Rows, child_capacities, child_sets, deal, level_bound, rounded_filters
from udfs.kernels.tree import BrokerTree

__all__ = [
    "BOUND", "COVER", "COVERED", "FOUND", "SEATED", "SPLIT", "Boxes",
    "bitmap", "best_boxes", "cover_counts", "covered_by", "level_bounds", "search_from", "seat", "split_subtrees", "unpack_found",
]  # fmt: skip


@dataclass(frozen=True)
class Boxes:
    """Rectangles of targets (leaves, or the children of a level): ``low[k], high[k]`` belongs to ``target[k]``."""

    target: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def expanded(self, epsilon: float) -> Boxes:
        """Each side longer by the factor 1 + epsilon, about its centre."""
        reach = (self.high - self.low) * (epsilon / 2)
        return Boxes(self.target, self.low - reach, self.high + reach)


COVERED = StructType([*CANDIDATES.fields, StructField("cover", BinaryType())])
# Of a partition: a row a cover set with its count (subscriber_id null), and every subscriber that nothing covers.
COVER = StructType([*COVERED.fields, StructField("rows", LongType())])
SPLIT = StructType(
    [
        StructField("subscriber_id", LongType()),
        StructField("node", IntegerType()),
        StructField("bound", DoubleType()),
        StructField("note", StringType()),
    ]
)
FOUND = StructType(
    [
        StructField("number", LongType()),
        StructField("cost", DoubleType()),
        StructField("overload", DoubleType()),
        StructField("moves", LongType()),
        StructField("slots", BinaryType()),
    ]
)
BOUND = StructType([StructField("level", LongType()), StructField("bound", DoubleType())])
SEATED = StructType([*PLACED.fields, StructField("slot", IntegerType())])


def bitmap(column: pa.Array | pa.ChunkedArray, rows: int) -> NDArray[np.uint8]:
    """A column of equally long byte strings as a (rows, bytes) array."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if rows == 0:
        return np.zeros((0, 0), dtype=np.uint8)
    begin, end = array.offset, array.offset + rows
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[begin : end + 1]
    return np.frombuffer(array.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(rows, -1)


# ---------------------------------------------------------------- the covering test


def covered_by(boxes: Boxes) -> ArrowFunction:
    """Adds to candidates the targets that are in time and hold a rectangle around the subscription, as a bitmap."""

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays([*(batch[name] for name in CANDIDATES.names), packed(_cover(batch, boxes))], names=COVERED.names)

    return batches


def cover_counts(boxes: Boxes) -> ArrowFunction:
    """Cover sets counted within the partition, and the uncovered subscribers themselves: rows of ``COVER``."""
    types = {
        "subscriber_id": pa.int64(), "candidates": pa.binary(), "location": pa.list_(pa.float64()), "low": pa.list_(pa.float64()),
        "high": pa.list_(pa.float64()), "max_latency": pa.float64(), "cover": pa.binary(), "rows": pa.int64(),
    }  # fmt: skip

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: dict[bytes, int] = {}
        for batch in stream:
            if not batch.num_rows:
                continue
            cover = _cover(batch, boxes)
            keys, sizes = np.unique(cover, axis=0, return_counts=True)
            for key, size in zip(keys, sizes, strict=True):
                counts[key.tobytes()] = counts.get(key.tobytes(), 0) + int(size)
            lost = pa.array(np.flatnonzero(~cover.any(1)))
            if len(lost):
                rows = batch.take(lost)
                columns = [rows[name].cast(types[name]) for name in CANDIDATES.names]
                columns += [pa.nulls(len(lost), pa.binary()), pa.nulls(len(lost), pa.int64())]
                yield pa.RecordBatch.from_arrays(columns, names=COVER.names)
        empty = [pa.nulls(len(counts), types[name]) for name in CANDIDATES.names]
        yield pa.RecordBatch.from_arrays([*empty, pa.array(list(counts), pa.binary()), pa.array(list(counts.values()), pa.int64())], names=COVER.names)

    return batches


def _cover(batch: pa.RecordBatch, boxes: Boxes) -> NDArray[np.uint8]:
    allowed = bitmap(batch["candidates"], batch.num_rows)
    return cover_sets(allowed, matrix(batch["low"]), matrix(batch["high"]), boxes.target, boxes.low, boxes.high)


# ---------------------------------------------------------------- subtrees of a level


def split_subtrees(
    tree: BrokerTree, *, alpha: int, lbfs: list[float], gamma: float, super_subscriptions: int, total: int, measure: Measure, seed: int
) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """For ``groupBy("node").applyInPandas``: SLP1 on the children of one broker; ``node`` becomes the child of each row.

    The linear program is solved at the first of the ascending ``lbfs`` that it has a solution for; rounding and the flow
    that deals out the rows keep the last of them.
    """

    def split(group: pd.DataFrame) -> pd.DataFrame:
        group = group.sort_values("subscriber_id", ignore_index=True)
        node, count = int(group["node"].iloc[0]), len(group)
        candidates = np.frombuffer(b"".join(group["candidates"]), dtype=np.uint8).reshape(count, -1)
        children, allowed = child_sets(tree, node, unpack_sets(candidates, len(tree.leaves)), gamma)
        low, high, location = (np.stack(group[name].to_list()) for name in ("low", "high", "location"))
        rows = Rows(location, low, high, allowed, np.ones(count))
        found: Preliminary | None = None
        capacity = np.zeros(len(children))
        for lbf in lbfs:
            tight, capacity = (child_capacities(tree, node, count, total, beta) for beta in (lbf, max(lbf, lbfs[-1])))
            k = super_subscriptions * len(children)
            found = rounded_filters(rows, tight, capacity, alpha, super_subscriptions=k, measure=measure, seed=seed * 1_000_003 + node)
            if found is not None:
                break
        cover = allowed if found is None else found.cover
        given = children[deal(cover, allowed, rows.weight, capacity)]
        note: dict[str, object] = {"node": node, "lbf": lbf, "rows": count, "children": len(children), "solved": found is not None}
        if found is not None:
            note |= {"rectangles": len(found.sibling), "exponent": round(found.exponent, 3) if np.isfinite(found.exponent) else None}
        bound = found.bound if found is not None else 0.0
        table = pd.DataFrame({"subscriber_id": group["subscriber_id"], "node": given.astype(np.int32), "bound": bound, "note": None})
        table.loc[0, "note"] = json.dumps(note)
        return table

    return split


# ---------------------------------------------------------------- searches side by side


def search_from(
    coreset: Coreset,
    tree: BrokerTree,
    capacity: NDArray[np.float64],
    alpha: int,
    starts: list[NDArray[np.int64]],
    measure: Measure,
    *,
    moves: int,
    heat: float,
    seed: int,
    deadline: float | None,
) -> ArrowFunction:
    """For a table of numbers: search number i starts from ``starts[i % len(starts)]``, with a seed of its own."""

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            for number in ints(batch["id"]):
                start = starts[number % len(starts)]
                found = improve(coreset, tree, capacity, alpha, start, measure, moves=moves, heat=heat, seed=seed + int(number), deadline=deadline)
                slots = pa.array([found.slot.astype(np.int32).tobytes()], pa.binary())
                columns = [pa.array([int(number)]), pa.array([found.cost]), pa.array([found.overload]), pa.array([found.moves]), slots]
                yield pa.RecordBatch.from_arrays(columns, names=FOUND.names)

    return batches


def unpack_found(row: dict) -> Found:
    """A row of ``FOUND`` as the kernel's result."""
    return Found(np.frombuffer(row["slots"], dtype=np.int32).astype(np.int64), row["cost"], row["overload"], row["moves"])


# ---------------------------------------------------------------- the bound


def level_bounds(
    tree: BrokerTree, rows: Rows, boxes: Boxes, *, alpha: int, lbf: float, super_subscriptions: int, measure: Measure, seed: int
) -> ArrowFunction:
    """For a table of numbers: the bound of level number i (0: the root's children) over its candidate rectangles and the plan's."""

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filters = nest(tree, boxes.target, boxes.low, boxes.high, alpha)
        for batch in stream:
            for level in ints(batch["id"]):
                found = level_bound(
                    tree, int(level), rows, filters, alpha=alpha, lbf=lbf, super_subscriptions=super_subscriptions, measure=measure, seed=seed
                )
                yield pa.RecordBatch.from_arrays([pa.array([int(level)]), pa.array([found])], names=BOUND.names)

    return batches


# ---------------------------------------------------------------- final rectangles


def seat(boxes: Boxes) -> ArrowFunction:
    """Adds to placed subscribers the number of the rectangle of their leaf that holds them (the smallest; -1: none does)."""

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            if batch.num_rows:
                slot = holding_box(ints(batch["leaf"]), matrix(batch["low"]), matrix(batch["high"]), boxes.target, boxes.low, boxes.high)
                columns = [*(batch[name] for name in PLACED.names), pa.array(slot.astype(np.int32))]
                yield pa.RecordBatch.from_arrays(columns, names=SEATED.names)

    return batches


def best_boxes(
    alpha: int, points: NDArray[np.float64] | None = None, weights: NDArray[np.float64] | None = None
) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """For ``groupBy("leaf").applyInPandas`` on boxes by (leaf, slot, cell): the planned rectangles shrunk to what they
    serve, or a new choice of alpha boxes (section IV-C), whichever lets less through."""

    def through(low: NDArray[np.float64], high: NDArray[np.float64]) -> float:
        return union_volume(low, high) if points is None or weights is None else event_share(low, high, points, weights)

    def choose(boxes: pd.DataFrame) -> pd.DataFrame:
        slot = boxes["slot"].to_numpy()
        low, high = np.stack(boxes["low"].to_list()), np.stack(boxes["high"].to_list())
        order = np.lexsort(np.hstack([low, high]).T[::-1])  # the same boxes whatever order the rows arrive in
        slot, low, high = slot[order], low[order], high[order]
        best_low, best_high = alpha_boxes(low, high, alpha)
        if (slot >= 0).all():
            used = np.unique(slot)
            kept_low = np.stack([low[slot == s].min(0) for s in used])
            kept_high = np.stack([high[slot == s].max(0) for s in used])
            if through(kept_low, kept_high) <= through(best_low, best_high):
                best_low, best_high = kept_low, kept_high
        return pd.DataFrame({"leaf": boxes["leaf"].iloc[0], "low": list(best_low), "high": list(best_high)}, columns=LEAF_BOXES.names)

    return choose
