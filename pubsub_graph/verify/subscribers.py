"""One pass over the subscribers with their assignment: an Arrow function checks rows and keeps totals, a small aggregation adds them up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsub_graph.errors import BadInput, examples
from pubsub_graph.verify.boxes import covered
from pubsub_graph.verify.report import SHOWN
from pubsub_graph.verify.tree import Tree

__all__ = ["ROW_CHECKS", "TOLERANCE", "Scan", "scan_subscribers", "vectors"]

TOLERANCE = 1e-9  # relative and absolute, for latencies; relative, for loads
MATRIX_CELLS = 2_000_000  # subscribers x leaves held at once
SCAN_SCHEMA = "name string, broker bigint, number bigint, worst double, total double, shown array<bigint>"
ROW_CHECKS = (
    "missing subscribers", "duplicated subscribers", "unknown subscribers", "leaf brokers", "latency written", "latency", "coverage",
)  # fmt: skip


@dataclass(frozen=True)
class Scan:
    """What the pass over the subscribers found: per check, and per leaf."""

    found: dict[str, tuple[int, float, list[int]]]
    loads: dict[int, int]
    subscribers: int
    assigned: int
    squared_delay: float
    greatest_delay: float

    def delays(self) -> dict[str, float]:
        mean = self.squared_delay / self.assigned if self.assigned else 0.0
        return {"rms_delay": math.sqrt(mean), "max_delay": self.greatest_delay}


def scan_subscribers(
    subscribers: DataFrame,
    assignment: DataFrame,
    tree: Tree,
    distances: Mapping[int, float],
    rectangles: Mapping[int, np.ndarray],
    dimension: int,
    max_delay: float | None,
) -> Scan:
    # Copies of one subscriber are folded before the join; least and greatest tell whether they agree.
    planned = assignment.groupBy("subscriber_id").agg(
        F.count(F.lit(1)).alias("copies"),
        F.min("broker_id").alias("broker"), F.max("broker_id").alias("other_broker"),
        F.min("latency").alias("written"), F.max("latency").alias("other_written"),
    )  # fmt: skip
    joined = subscribers.withColumn("known", F.lit(True)).join(planned, "subscriber_id", "full_outer")
    columns = (
        "subscriber_id", "known", "location", "low", "high", "max_latency",
        "copies", "broker", "other_broker", "written", "other_written",
    )  # fmt: skip
    kernel = _row_checks(
        np.array(tree.leaves, dtype=np.int64),
        np.array([tree.locations[leaf] for leaf in tree.leaves], dtype=float),
        np.array([distances[leaf] for leaf in tree.leaves], dtype=float),
        [rectangles.get(leaf, np.zeros((0, 2, dimension))) for leaf in tree.leaves],
        dimension,
        max_delay,
    )
    rows = (
        joined.select(*columns)
        .mapInArrow(kernel, SCAN_SCHEMA)
        .groupBy("name", "broker")
        .agg(
            F.sum("number").alias("number"), F.min("worst").alias("worst"), F.sum("total").alias("total"),
            F.slice(F.array_sort(F.flatten(F.collect_list("shown"))), 1, SHOWN).alias("shown"),
        )
        .collect()
    )  # fmt: skip
    by_name = {row["name"]: row for row in rows if row["broker"] is None}
    if "malformed" in by_name:
        row = by_name["malformed"]
        raise BadInput(
            f"subscribers: {row['number']:,} rows whose location, low, high or max_latency is null, not finite, of the wrong "
            f"dimension, or low > high (subscriber_id {examples(row['shown'], row['number'])})"
        )
    delay, everyone = by_name.get("delay"), by_name.get("subscribers")
    return Scan(
        {name: (by_name[name]["number"], by_name[name]["worst"], by_name[name]["shown"]) for name in ROW_CHECKS if name in by_name},
        {row["broker"]: row["number"] for row in rows if row["broker"] is not None},
        everyone["number"] if everyone else 0,
        delay["number"] if delay else 0,
        delay["total"] if delay else 0.0,
        -delay["worst"] if delay else 0.0,
    )


class _Totals:
    """Running totals of one partition; one row a name in the end."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int | None], list[Any]] = {}

    def add(self, name: str, number: int, worst: float = math.inf, total: float = 0.0, ids: Iterable[int] = (), broker: int | None = None) -> None:
        row = self.rows.setdefault((name, broker), [0, math.inf, 0.0, []])
        row[0] += int(number)
        row[1] = min(row[1], float(worst))
        row[2] += float(total)
        row[3] = sorted([*row[3], *(int(i) for i in ids)])[:SHOWN]

    def check(self, name: str, ids: np.ndarray, bad: np.ndarray, slack: np.ndarray | None = None) -> None:
        worst = math.inf if slack is None or not len(slack) else slack.min()
        self.add(name, bad.sum(), worst, ids=np.sort(ids[bad])[:SHOWN])

    def batch(self) -> pa.RecordBatch:
        keys, rows = list(self.rows), list(self.rows.values())
        return pa.record_batch(
            [
                pa.array([key[0] for key in keys], pa.string()),
                pa.array([key[1] for key in keys], pa.int64()),
                pa.array([row[0] for row in rows], pa.int64()),
                pa.array([row[1] for row in rows], pa.float64()),
                pa.array([row[2] for row in rows], pa.float64()),
                pa.array([row[3] for row in rows], pa.list_(pa.int64())),
            ],
            ["name", "broker", "number", "worst", "total", "shown"],
        )


def vectors(column: pa.Array, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A list column as (rows, width), and which rows are whole; the others are NaN."""
    whole = pc.fill_null(pc.equal(pc.list_value_length(column), width), False).to_numpy(zero_copy_only=False)
    kept = column.filter(pa.array(whole))
    values = np.full((len(column), width), np.nan)
    values[whole] = kept.flatten().to_numpy(zero_copy_only=False).astype(float).reshape(-1, width)
    return values, whole & np.isfinite(values).all(axis=1)


def _row_checks(
    leaves: np.ndarray,
    locations: np.ndarray,
    distances: np.ndarray,
    filters: list[np.ndarray],
    dimension: int,
    max_delay: float | None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The Arrow function of the pass; ``leaves`` are sorted, the rest is in their order."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        totals = _Totals()
        for batch in batches:
            one_batch(batch, totals)
        if totals.rows:
            yield totals.batch()

    def one_batch(batch: pa.RecordBatch, totals: _Totals) -> None:
        def plain(name: str, missing: Any) -> np.ndarray:
            return pc.fill_null(batch.column(batch.schema.get_field_index(name)), missing).to_numpy(zero_copy_only=False)

        ids, known, copies = plain("subscriber_id", -1), plain("known", False).astype(bool), plain("copies", 0)
        totals.check("unknown subscribers", ids, ~known)
        totals.check("missing subscribers", ids, known & (copies == 0))
        totals.check("duplicated subscribers", ids, known & (copies > 1))
        totals.add("subscribers", known.sum())

        at, at_whole = vectors(batch.column(2), locations.shape[1])
        low, low_whole = vectors(batch.column(3), dimension)
        high, high_whole = vectors(batch.column(4), dimension)
        given = batch.column(5)
        bound = given.to_numpy(zero_copy_only=False).astype(float)
        unbounded = given.is_null().to_numpy(zero_copy_only=False)
        malformed = known & ~(at_whole & low_whole & high_whole & (low <= high).all(axis=1) & (unbounded | ~np.isnan(bound)))
        if malformed.any():
            totals.check("malformed", ids, malformed)

        broker, other = plain("broker", np.iinfo(np.int64).min), plain("other_broker", np.iinfo(np.int64).min)
        leaf = np.minimum(np.searchsorted(leaves, broker), len(leaves) - 1)
        planned = known & (copies > 0) & ~malformed
        last = np.minimum(np.searchsorted(leaves, other), len(leaves) - 1)
        on_leaf = planned & (leaves[leaf] == broker) & (leaves[last] == other)
        # Contradicting copies are duplicates and no more: which copy to measure is anybody's guess.
        totals.check("leaf brokers", ids, planned & ~on_leaf)
        rows = np.flatnonzero(on_leaf & (broker == other))
        if not len(rows):
            return
        chosen = leaf[rows]
        for index, number in enumerate(np.bincount(chosen, minlength=len(leaves))):
            if number:
                totals.add("load", number, broker=int(leaves[index]))

        true, shortest = latencies(at[rows], chosen)
        allowed = np.where(unbounded[rows], (1 + max_delay) * shortest if max_delay is not None else np.inf, bound[rows])
        totals.check("latency", ids[rows], true > allowed * (1 + TOLERANCE) + TOLERANCE, allowed - true)
        error = np.zeros(len(rows))
        for name in ("written", "other_written"):
            error = np.maximum(error, np.nan_to_num(np.abs(plain(name, np.nan)[rows] - true), nan=np.inf))
        totals.check("latency written", ids[rows], error > true * TOLERANCE + TOLERANCE, -error)
        with np.errstate(divide="ignore", invalid="ignore"):
            delay = np.where(shortest > 0, true / shortest - 1, np.where(true > 0, np.inf, 0.0))
        totals.add("delay", len(rows), -delay.max(), (delay * delay).sum())

        slack = coverage(low[rows], high[rows], chosen)
        totals.check("coverage", ids[rows], slack < 0, slack)

    def latencies(at: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        true, shortest = np.empty(len(at)), np.empty(len(at))
        step = max(1, MATRIX_CELLS // len(leaves))
        for start in range(0, len(at), step):
            part = at[start : start + step]
            squares = np.zeros((len(part), len(leaves)))
            for axis in range(part.shape[1]):
                gap = part[:, axis, None] - locations[None, :, axis]
                gap *= gap
                squares += gap
            np.sqrt(squares, out=squares)
            squares += distances
            shortest[start : start + step] = squares.min(axis=1)
            true[start : start + step] = squares[np.arange(len(part)), chosen[start : start + step]]
        return true, shortest

    def coverage(low: np.ndarray, high: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        slack = np.full(len(low), -np.inf)
        order = np.argsort(chosen, kind="stable")
        starts = np.searchsorted(chosen[order], np.arange(len(filters) + 1))
        for index, boxes in enumerate(filters):
            rows = order[starts[index] : starts[index + 1]]
            if not len(rows):
                continue
            a, b = low[rows], high[rows]
            best = np.full(len(rows), -np.inf)
            corner_low, corner_high = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
            for left, right in boxes:
                best = np.maximum(best, np.minimum(a - left, right - b).min(axis=1))
                corner_low |= ((a >= left) & (a <= right)).all(axis=1)
                corner_high |= ((b >= left) & (b <= right)).all(axis=1)
            pairs = [(box[0], box[1]) for box in boxes]
            # Only where no single rectangle contains the subscription, and both its corners are covered.
            for row in np.flatnonzero((best < 0) & corner_low & corner_high):
                if covered(a[row], b[row], pairs):
                    best[row] = 0.0
            slack[rows] = best
        return slack

    return run
