"""Carriers of slp-paper: children in time, FilterAssignHelper in a grouped map, the covering tests of a level.

The children of all the brokers of a level have one numbering, so that one bitmap column and one set of rectangles
serve all subtrees at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import ArrayType, BinaryType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from udfs.arrow import ints, matrix, packed
from udfs.assignment import CANDIDATES, ArrowFunction
from udfs.kernels.boxes import drop_contained
from udfs.kernels.certificate import COVERED, EXPANDED, LOST, pool_slice
from udfs.kernels.cover import any_cover, cover_sets
from udfs.kernels.latency import pack_sets, unpack_sets
from udfs.kernels.measure import Measure
from udfs.kernels.siblings import Preliminary, Rows, child_capacities, child_sets, printed_filters
from udfs.kernels.tree import BrokerTree
from udfs.slp import Boxes, bitmap

__all__ = ["CHOSEN", "LEVEL", "LEVEL_COVER", "STATE", "Sample", "filter_assign", "judge", "level_cover", "level_sets"]

_VECTOR = ArrayType(DoubleType())
LEVEL = StructType([*CANDIDATES.fields, StructField("node", IntegerType()), StructField("near", BinaryType())])
"""``node`` has the subscriber in its subtree; ``near`` are those of its children that are in time, by their numbers."""
LEVEL_COVER = StructType([*LEVEL.fields, StructField("cover", BinaryType())])
STATE = StructType(
    [
        StructField("subscriber_id", LongType()),
        StructField("node", IntegerType()),
        StructField("near", BinaryType()),
        StructField("location", _VECTOR),
        StructField("low", _VECTOR),
        StructField("high", _VECTOR),
        StructField("exponent", IntegerType()),
        StructField("verdict", IntegerType()),
    ]
)
# A row a rectangle; a group without any has one row with a null target. The first row of a group has the note.
CHOSEN = StructType(
    [
        StructField("node", IntegerType()),
        StructField("target", IntegerType()),
        StructField("low", _VECTOR),
        StructField("high", _VECTOR),
        StructField("note", StringType()),
    ]
)


def level_sets(tree: BrokerTree, targets: NDArray[np.int64], gamma: float) -> ArrowFunction:
    """Adds to (candidates, ``node``) the children in time; child number c is the tree's node ``targets[c]``."""
    number = np.full(len(tree.parent), -1)
    number[targets] = np.arange(len(targets))

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            if not batch.num_rows:
                continue
            node, allowed = ints(batch["node"]), unpack_sets(bitmap(batch["candidates"], batch.num_rows), len(tree.leaves))
            near = np.zeros((batch.num_rows, len(targets)), dtype=bool)
            for which in np.unique(node):
                rows = np.flatnonzero(node == which)
                children, in_time = child_sets(tree, int(which), allowed[rows], gamma)
                near[np.ix_(rows, number[children])] = in_time
            columns = [*(batch[name] for name in LEVEL.names[:-1]), packed(pack_sets(near))]
            yield pa.RecordBatch.from_arrays(columns, names=LEVEL.names)

    return batches


@dataclass(frozen=True)
class Sample:
    """What a group's call of FilterAssignHelper is told: |S|, the size of one S_b, how many may be tried, a seed."""

    size: int
    slice: int
    attempts: int
    seed: int


def filter_assign(
    tree: BrokerTree,
    targets: NDArray[np.int64],
    samples: Mapping[int, Sample],
    *,
    alpha: int,
    lbf: float,
    super_subscriptions: int,
    total: int,
    measure: Measure,
) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """For ``groupBy("node").applyInPandas``: FilterAssignHelper on a broker's children; rows of ``CHOSEN``.

    ``q`` and ``pool`` are the row's ranks in the draw of Q and in the pool that S_b is sliced from, null where it is
    not in it. Rectangles inside another one of the same child are left out: they cover nothing more, expanded or not.
    """

    def helper(group: pd.DataFrame) -> pd.DataFrame:
        group = group.sort_values("subscriber_id", ignore_index=True)
        node = int(group["node"].iloc[0])
        sample, columns = samples[node], np.flatnonzero(tree.parent[targets] == node)
        ids, in_q = group["subscriber_id"].to_numpy(), group["q"].notna().to_numpy()
        pool = group["pool"].fillna(0).to_numpy(dtype=np.int64)
        near = unpack_sets(np.frombuffer(b"".join(group["near"]), dtype=np.uint8).reshape(len(group), -1), len(targets))[:, columns]
        location, low, high = (np.stack(group[name].to_list()) for name in ("location", "low", "high"))
        share = child_capacities(tree, node, sample.size, total, lbf) / sample.size
        found: Preliminary | None = None
        note: dict[str, object] = {"bound": None, "value": None}
        for attempt in range(sample.attempts):
            loaded = pool_slice(ids, pool, sample.slice, attempt, sample.seed)
            at = np.flatnonzero(in_q | loaded)
            rows = Rows(location[at], low[at], high[at], near[at], loaded[at].astype(np.float64))
            found = printed_filters(
                rows, share * loaded.sum(), alpha, super_subscriptions=super_subscriptions * len(columns), measure=measure,
                seed=sample.seed + attempt,
            )  # fmt: skip
            note |= {"attempt": attempt + 1, "rows": len(at)}
            if found is not None:
                note |= {"bound": found.bound, "value": found.value}
                break
        return _chosen(node, columns, found, note)

    return helper


def _chosen(node: int, columns: NDArray[np.int64], found: Preliminary | None, note: dict[str, object]) -> pd.DataFrame:
    rows: list[tuple[int | None, NDArray[np.float64] | None, NDArray[np.float64] | None]] = []
    if found is not None:
        for sibling, target in enumerate(columns):
            own = np.flatnonzero(found.sibling == sibling)
            rows += [(int(target), found.low[k], found.high[k]) for k in own[drop_contained(found.low[own], found.high[own])]]
    rows = rows or [(None, None, None)]
    table = pd.DataFrame({"node": node, "target": pd.array([row[0] for row in rows], dtype="Int32")})
    table["low"], table["high"] = [row[1] for row in rows], [row[2] for row in rows]
    table["note"] = [json.dumps(note), *[None] * (len(rows) - 1)]
    return table


def judge(boxes: Boxes, epsilon: float) -> ArrowFunction:
    """Violate, for all groups at once: rows of ``STATE`` with the verdict, and the exponent raised where Phi does not cover."""
    expanded = boxes.expanded(epsilon)

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            if not batch.num_rows:
                continue
            near, low, high = bitmap(batch["near"], batch.num_rows), matrix(batch["low"]), matrix(batch["high"])
            verdict = np.full(batch.num_rows, COVERED)
            out = np.flatnonzero(~any_cover(near, low, high, boxes.target, boxes.low, boxes.high))
            inside = any_cover(near[out], low[out], high[out], expanded.target, expanded.low, expanded.high)
            verdict[out] = np.where(inside, EXPANDED, LOST)
            exponent = ints(batch["exponent"]) + (verdict != COVERED)
            columns = [*(batch[name] for name in STATE.names[:-2]), pa.array(exponent.astype(np.int32)), pa.array(verdict.astype(np.int32))]
            yield pa.RecordBatch.from_arrays(columns, names=STATE.names)

    return batches


def level_cover(boxes: Boxes) -> ArrowFunction:
    """Adds to rows of ``LEVEL`` the children that are in time and hold a rectangle around the subscription."""

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            if batch.num_rows:
                near = bitmap(batch["near"], batch.num_rows)
                cover = cover_sets(near, matrix(batch["low"]), matrix(batch["high"]), boxes.target, boxes.low, boxes.high)
                yield pa.RecordBatch.from_arrays([*(batch[name] for name in LEVEL.names), packed(cover)], names=LEVEL_COVER.names)

    return batches
