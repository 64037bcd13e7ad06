"""Cutting the lineage of a DataFrame that feeds the next round, and releasing what was kept for it."""

from __future__ import annotations

from types import TracebackType
from typing import Literal

from pyspark import StorageLevel
from pyspark.sql import DataFrame

__all__ = ["Lineage"]

Mode = Literal["local", "reliable"]


class Lineage:
    """Keeps intermediate tables for the rounds of one algorithm and releases them at its end, also after a failure.

    ``local`` keeps blocks on the executors (fast; a lost executor fails the job), ``reliable`` writes them to the
    checkpoint directory, which the session must have (a lost executor costs a re-read). ``persist`` keeps the lineage, so a
    lost block is computed anew: the choice for a table that is used a few times and does not feed itself. Its plan
    describes all it came from, every time it is used: where tables are built from tables that are used several times, the
    small ones are cut, or planning takes longer than running.

        with Lineage() as lineage:
            state = lineage.cut(step(state))
    """

    def __init__(self, mode: Mode = "local") -> None:
        self.mode = mode
        self._kept: list[DataFrame] = []

    def cut(self, table: DataFrame) -> DataFrame:
        """``table`` computed once, with a plan that only reads the result."""
        done = table.checkpoint() if self.mode == "reliable" else table.localCheckpoint()
        self._kept.append(done)
        return done

    def persist(self, table: DataFrame) -> DataFrame:
        """``table`` kept where it was computed; a lost part is computed anew."""
        kept = table.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(kept)
        return kept

    def drop(self, table: DataFrame) -> None:
        """Release one table that ``cut`` or ``persist`` returned, before the end; others are left alone.

        A local checkpoint's blocks are freed by Spark's cleaner once nothing refers to the table.
        """
        if any(kept is table for kept in self._kept):
            table.unpersist()
            self._kept = [kept for kept in self._kept if kept is not table]

    def release(self) -> None:
        for table in self._kept:
            table.unpersist()
        self._kept.clear()

    def __enter__(self) -> Lineage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
