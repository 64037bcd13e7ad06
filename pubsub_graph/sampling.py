"""Sampling by a hash of (seed, round, row id): the same rows for any number of partitions and on any retry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["Draw", "draws_per_group", "reservoir", "reservoir_per_group", "uniform", "uniform_sample"]

_SCALE = 2.0**-53


def uniform(seed: int, round_number: int | Column, *key: str) -> Column:
    """A number in (0, 1) from the key columns."""
    bits = F.shiftrightunsigned(F.xxhash64(F.lit(seed), F.lit(round_number), *[F.col(name) for name in key]), 11)
    return (bits.cast("double") + F.lit(0.5)) * F.lit(_SCALE)


def uniform_sample(table: DataFrame, share: float, key: str, seed: int, round_number: int = 0) -> DataFrame:
    """Each row with probability ``share``, independently."""
    return table.where(uniform(seed, round_number, key) < share)


def _reservoir_key(weight: str | None, key: str, seed: int, round_number: int | Column) -> Column:
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


@dataclass(frozen=True)
class Draw:
    """A reservoir in every group: its size by group, and a key (log u / w) by group that all its rows are known to exceed."""

    sizes: Mapping[int, int]
    least_keys: Mapping[int, float]
    round_number: int
    weight: str | None = None


def draws_per_group(table: DataFrame, group: str, key: str, seed: int, draws: Mapping[str, Draw], partitions: int) -> DataFrame:
    """The rows of several reservoirs in one pass, with a column a draw: the row's rank in it, from 1, or null.

    Only rows above a least key are shuffled (to ``partitions``, by group) and ranked; groups without a size are left out.
    Sizes, keys and rounds come from a broadcast table: as literals they would make Spark compile the pass anew in every round.
    """
    groups = sorted(set.intersection(*(set(draw.sizes) for draw in draws.values())))
    told = pd.DataFrame({group: np.array(groups, dtype=np.int32)})
    for name, draw in draws.items():
        told[f"_{name}_size"] = [draw.sizes[g] for g in groups]
        told[f"_{name}_least"] = [float(draw.least_keys[g]) for g in groups]
        told[f"_{name}_round"] = np.full(len(groups), draw.round_number, dtype=np.int32)
    table, above = table.join(F.broadcast(table.sparkSession.createDataFrame(told)), group), F.lit(False)
    for name, draw in draws.items():
        table = table.withColumn(f"_{name}", _reservoir_key(draw.weight, key, seed, F.col(f"_{name}_round")))
        above = above | (F.col(f"_{name}") > F.col(f"_{name}_least"))
    kept = table.where(above).repartition(partitions, group)
    for name in draws:
        number = F.row_number().over(Window.partitionBy(group).orderBy(F.col(f"_{name}").desc(), F.col(key)))
        drawn = (F.col(f"_{name}") > F.col(f"_{name}_least")) & (number <= F.col(f"_{name}_size"))
        kept = kept.withColumn(name, F.when(drawn, number))
    extra = [f"_{name}{end}" for name in draws for end in ("", "_size", "_least", "_round")]
    return kept.where(F.coalesce(*draws).isNotNull()).drop(*extra)
