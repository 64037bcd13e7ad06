"""Sampling by a hash of (seed, round, row id): the same rows for any number of partitions and on any retry."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["reservoir", "reservoir_per_group", "uniform", "uniform_sample"]

_SCALE = 2.0**-53


def uniform(seed: int, round_number: int, *key: str) -> Column:
    """A number in (0, 1) from the key columns."""
    bits = F.shiftrightunsigned(F.xxhash64(F.lit(seed), F.lit(round_number), *[F.col(name) for name in key]), 11)
    return (bits.cast("double") + F.lit(0.5)) * F.lit(_SCALE)


def uniform_sample(table: DataFrame, share: float, key: str, seed: int, round_number: int = 0) -> DataFrame:
    """Each row with probability ``share``, independently."""
    return table.where(uniform(seed, round_number, key) < share)


def _reservoir_key(weight: str | None, key: str, seed: int, round_number: int) -> Column:
    """log(u) / w, which orders rows as u^(1/w) does (Efraimidis and Spirakis); null for a weight of zero or less."""
    drawn = F.log(uniform(seed, round_number, key))
    return drawn if weight is None else F.when(F.col(weight) > 0, drawn / F.col(weight))


def reservoir(
    table: DataFrame, size: int, key: str, seed: int, *, weight: str | None = None, round_number: int = 0
) -> DataFrame:
    """``size`` rows without replacement, with probability in proportion to ``weight``: a distributed top-k."""
    ordered = table.withColumn("_key", _reservoir_key(weight, key, seed, round_number)).where("_key is not null")
    return ordered.orderBy(F.col("_key").desc(), F.col(key)).limit(size).drop("_key")


def reservoir_per_group(
    table: DataFrame, size: int, group: str, key: str, seed: int, *, weight: str | None = None, round_number: int = 0
) -> DataFrame:
    """``reservoir`` within every value of ``group`` at once."""
    window = Window.partitionBy(group).orderBy(F.col("_key").desc(), F.col(key))
    ordered = table.withColumn("_key", _reservoir_key(weight, key, seed, round_number)).where("_key is not null")
    return ordered.withColumn("_rank", F.row_number().over(window)).where(F.col("_rank") <= size).drop("_key", "_rank")
