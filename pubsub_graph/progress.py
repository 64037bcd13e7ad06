"""Where a long job stands: one line that renews itself on a terminal, one log line a step elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

__all__ = ["Progress"]


class Progress:
    """Tells steps on ``stream`` (standard error unless told otherwise) and remembers how long each stage took."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._start = time.perf_counter()
        self._live = self._stream.isatty()
        self.seconds: dict[str, float] = {}

    def tell(self, what: str, **figures: object) -> None:
        """One step: ``round 3: uncovered 512, bound 3.1e9 (12.4 s)``."""
        if self._quiet:
            return
        said = ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in figures.items())
        line = f"[{self.elapsed():7.1f} s] {what}{': ' + said if said else ''}"
        self._stream.write(f"\r\033[K{line}" if self._live else line + "\n")
        self._stream.flush()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage; the sum of all uses of a name stands in ``seconds``."""
        self.tell(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def elapsed(self) -> float:
        return time.perf_counter() - self._start

    def close(self) -> None:
        if self._live and not self._quiet:
            self._stream.write("\n")


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
