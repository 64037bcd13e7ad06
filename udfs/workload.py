"""Carrier of the workload kernels: ids in, subscribers out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import ArrayType, DoubleType, LongType, StructField, StructType

from udfs.arrow import ints, lists
from udfs.kernels.workload import Rows

__all__ = ["GENERATED", "Workload", "subscribers_of"]

GENERATED = StructType(
    [StructField("subscriber_id", LongType())]
    + [StructField(name, ArrayType(DoubleType())) for name in ("location", "low", "high")]
    + [StructField("max_latency", DoubleType())]
)


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
