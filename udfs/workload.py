"""Carriers of the workload kernels: ids in, subscribers or interests out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import ArrayType, DoubleType, LongType, StructField, StructType

from udfs.arrow import ints, lists
from udfs.kernels.topic_workload import TopicModel
from udfs.kernels.workload import Rows

__all__ = ["GENERATED", "INTERESTS_GENERATED", "Workload", "interests_of_nodes", "subscribers_of"]

GENERATED = StructType(
    [StructField("subscriber_id", LongType())]
    + [StructField(name, ArrayType(DoubleType())) for name in ("location", "low", "high")]
    + [StructField("max_latency", DoubleType())]
)
INTERESTS_GENERATED = StructType([StructField("node_id", LongType()), StructField("topic_id", LongType())])


class Workload(Protocol):
    """Makes the rows of any ids, each a function of its id alone."""

    def rows(self, ids: NDArray[np.int64]) -> Rows: ...


def subscribers_of(workload: Workload) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """For ``mapInArrow`` over a column ``id``."""

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            ids = ints(batch["id"])
            rows = workload.rows(ids)
            columns = [
                pa.array(ids), lists(rows.location), lists(rows.low), lists(rows.high),
                pa.array(rows.max_latency, from_pandas=True),
            ]  # fmt: skip
            yield pa.RecordBatch.from_arrays(columns, names=GENERATED.names)

    return batches


def interests_of_nodes(model: TopicModel) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """For ``mapInArrow`` over a column ``id``: a row for each topic a node wants."""

    def batches(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            node, topic = model.rows(ints(batch["id"]))
            yield pa.RecordBatch.from_arrays([pa.array(node), pa.array(topic)], names=INTERESTS_GENERATED.names)

    return batches
