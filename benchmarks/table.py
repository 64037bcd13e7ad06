"""A table that prints its rows as they come, so that a long run shows where it is."""

from __future__ import annotations

__all__ = ["Table"]


class Table:
    def __init__(self, *names: str) -> None:
        self.widths = [max(len(name), 9) for name in names]
        self.row(*names)

    def row(self, *cells: object) -> None:
        text = [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells]
        print("  ".join(cell.ljust(width) for cell, width in zip(text, self.widths, strict=True)).rstrip(), flush=True)
