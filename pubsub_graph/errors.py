"""What can go wrong, by meaning. Every error carries the exit status of the command that meets it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["BadInput", "Infeasible", "MissingGraphFrames", "NotConverged", "PubsubGraphError", "examples"]


class PubsubGraphError(Exception):
    """Base of every error the library raises on purpose."""

    exit_status = 1


class BadInput(PubsubGraphError):
    """A table or an argument is wrong; nothing was written."""

    exit_status = 2

    @classmethod
    def of(cls, findings: Sequence[str], remedy: str = "") -> BadInput:
        """One error that lists every finding, so that a user mends all of them in one go."""
        lines = [f"- {finding}" for finding in findings]
        return cls("\n".join(["the input is not usable:", *lines, *([remedy] if remedy else [])]))


class Infeasible(PubsubGraphError):
    """No plan can meet the constraints, and no best effort makes sense either."""

    exit_status = 3


class NotConverged(PubsubGraphError):
    """An iterative algorithm used up its rounds."""

    exit_status = 3


class MissingGraphFrames(PubsubGraphError):
    """The JVM classes of GraphFrames are not on the session's class path."""

    exit_status = 2


def examples(values: Iterable[object], count: int | None = None) -> str:
    """Up to five values for a message: ``3, 7, 9`` or ``3, 7, 9, 12, 15, ... (240 in all)``."""
    shown = [str(value) for _, value in zip(range(5), values, strict=False)]
    more = f", ... ({count:,} in all)" if count is not None and count > len(shown) else ""
    return ", ".join(shown) + more
