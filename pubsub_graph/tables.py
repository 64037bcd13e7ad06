"""Column names and schemas of every table, reading, row checks, and writing that is complete or absent."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyarrow import fs as arrow_fs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StringType, StructField, StructType
from pyspark.sql.utils import AnalysisException

from pubsub_graph.errors import BadInput, examples

__all__ = [
    "ASSIGNMENT", "BROKERS", "EDGES", "EVENTS", "FILTERS", "INTERESTS", "SUBSCRIBERS",
    "Check", "Tables", "conform", "duplicated_ids", "failed_checks", "vector_problem",
]  # fmt: skip

VECTOR = ArrayType(DoubleType())


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


BROKERS = _schema(broker_id=LongType(), parent_id=LongType(), location=VECTOR, capacity=DoubleType())
SUBSCRIBERS = _schema(subscriber_id=LongType(), location=VECTOR, low=VECTOR, high=VECTOR, max_latency=DoubleType())
EVENTS = _schema(point=VECTOR, weight=DoubleType())
ASSIGNMENT = _schema(subscriber_id=LongType(), broker_id=LongType(), latency=DoubleType())
FILTERS = _schema(broker_id=LongType(), low=VECTOR, high=VECTOR)
INTERESTS = _schema(node_id=LongType(), topic_id=LongType())
EDGES = _schema(src=LongType(), dst=LongType())
METRICS = _schema(json=StringType())

METRICS_FILE = "metrics.json"
WORKLOAD_FILE = "workload.json"


# ---------------------------------------------------------------- row checks


@dataclass(frozen=True)
class Check:
    """A kind of bad row: where ``bad`` holds, the row is wrong, and ``remedy`` says what to do."""

    kind: str
    bad: Column
    remedy: str


def vector_problem(column: str) -> Column:
    """True where the vector is null, empty, or holds a null, a NaN or an infinity."""
    value = F.col(column)
    not_finite = F.exists(value, lambda x: x.isNull() | F.isnan(x) | (F.abs(x) == F.lit(float("inf"))))
    return value.isNull() | (F.size(value) < 1) | F.coalesce(not_finite, F.lit(False))


def failed_checks(table: DataFrame, name: str, id_column: str, checks: Sequence[Check]) -> list[str]:
    """One pass counts every kind of bad row; only the kinds that occur are looked up again for five examples."""
    bad = [F.coalesce(check.bad, F.lit(False)) for check in checks]
    totals = table.agg(*[F.count(F.when(condition, 1)).alias(f"c{i}") for i, condition in enumerate(bad)]).first()
    assert totals is not None
    findings = []
    for i, check in enumerate(checks):
        count = totals[f"c{i}"]
        if count:
            rows = table.where(bad[i]).select(id_column).orderBy(F.col(id_column).asc_nulls_first()).limit(5).collect()
            shown = examples((row[0] for row in rows), count)
            findings.append(f"{name}: {count:,} rows with {check.kind} ({id_column} {shown}); {check.remedy}")
    return findings


def duplicated_ids(table: DataFrame, name: str, id_column: str) -> list[str]:
    """The finding for ids that occur more than once, if any."""
    repeated = table.groupBy(id_column).count().where("count > 1")
    rows = repeated.orderBy(id_column).limit(6).collect()
    if not rows:
        return []
    count = len(rows) if len(rows) < 6 else repeated.count()
    return [f"{name}: {count:,} duplicate values of {id_column} ({examples((r[0] for r in rows[:5]), count)}); keep one row an id"]


def conform(table: DataFrame, schema: StructType, name: str) -> DataFrame:
    """``table`` with exactly the columns of ``schema``, cast; a missing or uncastable column is bad input."""
    missing = [field.name for field in schema if field.name not in table.columns]
    if missing:
        raise BadInput(f"table {name} has no column {examples(missing)}; found {examples(table.columns)}. It needs {schema.simpleString()}")
    found = table.schema
    for field in schema:
        is_array = isinstance(found[field.name].dataType, ArrayType)
        if is_array != isinstance(field.dataType, ArrayType):
            raise BadInput(
                f"table {name}: column {field.name} is {found[field.name].dataType.simpleString()}, "
                f"it must be {field.dataType.simpleString()}"
            )
    return table.select(*[F.col(field.name).cast(field.dataType).alias(field.name) for field in schema])


# ---------------------------------------------------------------- where tables live


class Tables:
    """The tables of one input or one plan: a folder of Parquet (or any Spark source), or a catalog schema.

    ``write`` is all or nothing: tables go to a temporary sibling that is moved into place when all of them are
    complete, and the metrics come last.
    """

    def __init__(self, spark: SparkSession, place: str, source: str = "parquet", catalog: bool = False) -> None:
        self.spark, self.place, self.source, self.catalog = spark, place.rstrip("/"), source, catalog

    def read(self, name: str, schema: StructType) -> DataFrame:
        """The table ``name``, with the columns of ``schema``."""
        table = self.read_if_there(name, schema)
        if table is None:
            raise BadInput(f"there is no table {name!r} in {self.place}; it needs {schema.simpleString()}")
        return table

    def read_if_there(self, name: str, schema: StructType) -> DataFrame | None:
        """Like ``read``, or None when there is no such table."""
        if self.catalog:
            if not self.spark.catalog.tableExists(f"{self.place}.{name}"):
                return None
            return conform(self.spark.table(f"{self.place}.{name}"), schema, name)
        files, path = _filesystem(f"{self.place}/{name}")
        if files.get_file_info(path).type == arrow_fs.FileType.NotFound:
            return None
        try:
            table = self.spark.read.format(self.source).load(f"{self.place}/{name}")
        except AnalysisException as error:
            reason = str(error).splitlines()[0]
            raise BadInput(f"{self.place}/{name} cannot be read as {self.source}: {reason}") from error
        return conform(table, schema, name)

    def read_json(self, name: str = METRICS_FILE) -> dict[str, Any]:
        """The figures that were written beside the tables."""
        if self.catalog:
            table = f"{self.place}.{name.removesuffix('.json')}"
            if not self.spark.catalog.tableExists(table):
                raise BadInput(f"there is no table {table}: it is not a complete plan")
            row = self.spark.table(table).first()
            assert row is not None
            return json.loads(row[0])
        files, path = _filesystem(f"{self.place}/{name}")
        if files.get_file_info(path).type != arrow_fs.FileType.File:
            raise BadInput(f"there is no {name} in {self.place}: it is not a complete plan")
        with files.open_input_stream(path) as stream:
            return json.loads(stream.read())

    def check_writable(self) -> None:
        """Raise before any work when the place holds something that this product did not write."""
        if self.catalog:
            return
        files, path = _filesystem(self.place)
        if files.get_file_info(path).type == arrow_fs.FileType.NotFound:
            return
        inside = files.get_file_info(arrow_fs.FileSelector(path))
        names = {info.base_name for info in inside}
        if names and not names & {METRICS_FILE, WORKLOAD_FILE}:
            raise BadInput(
                f"{self.place} exists and holds other things ({examples(sorted(names), len(names))}); "
                "name a new folder, or remove it first"
            )

    def write(self, tables: Mapping[str, DataFrame], figures: Mapping[str, Any], figures_name: str = METRICS_FILE) -> None:
        """Write every table, then ``figures`` as JSON; on any failure nothing of it stays."""
        text = json.dumps(figures, indent=2, sort_keys=False, default=_plain) + "\n"
        if self.catalog:
            self._write_catalog(tables, text, figures_name.removesuffix(".json"))
        else:
            self._write_folder(tables, text, figures_name)

    def _write_folder(self, tables: Mapping[str, DataFrame], text: str, figures_name: str) -> None:
        files, path = _filesystem(self.place)
        suffix = f".writing-{uuid.uuid4().hex[:8]}"
        try:
            for name, table in tables.items():
                table.write.format(self.source).save(f"{self.place}{suffix}/{name}")
            with files.open_output_stream(f"{path}{suffix}/{figures_name}") as stream:
                stream.write(text.encode())
            if files.get_file_info(path).type != arrow_fs.FileType.NotFound:
                files.delete_dir(path)
            files.move(path + suffix, path)
        except BaseException:
            if files.get_file_info(path + suffix).type != arrow_fs.FileType.NotFound:
                files.delete_dir(path + suffix)
            raise

    def _write_catalog(self, tables: Mapping[str, DataFrame], text: str, figures_name: str) -> None:
        everything = {**tables, figures_name: self.spark.createDataFrame([(text,)], METRICS)}
        written = []
        try:
            for name, table in everything.items():
                temporary = f"{self.place}.{name}__writing"
                self.spark.sql(f"DROP TABLE IF EXISTS {temporary}")
                written.append(temporary)
                table.write.format(self.source).saveAsTable(temporary)
        except BaseException:
            for temporary in written:
                self.spark.sql(f"DROP TABLE IF EXISTS {temporary}")
            raise
        for name in everything:
            self.spark.sql(f"DROP TABLE IF EXISTS {self.place}.{name}")
            self.spark.sql(f"ALTER TABLE {self.place}.{name}__writing RENAME TO {self.place}.{name}")


def _filesystem(place: str) -> tuple[arrow_fs.FileSystem, str]:
    """The file system of a path or URI, and the path on it."""
    if "://" in place or place.startswith("file:"):
        return arrow_fs.FileSystem.from_uri(place)
    return arrow_fs.LocalFileSystem(), place


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a figure")
