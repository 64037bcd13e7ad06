"""What a verification found: a ``CheckResult`` for every constraint, together a ``VerificationReport``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SHOWN", "CheckResult", "VerificationReport"]

SHOWN = 5
"""Most examples of a check."""


@dataclass(frozen=True)
class CheckResult:
    """One constraint: how many violations, the least slack seen (negative = violated by that much), a few examples."""

    name: str
    violations: int
    worst_slack: float | None
    examples: tuple
    hint: str


@dataclass(frozen=True)
class VerificationReport:
    """Every check, and the measures as recomputed from the tables."""

    checks: tuple[CheckResult, ...]
    recomputed: dict[str, float]

    @property
    def holds(self) -> bool:
        """True when no check found a violation."""
        return not any(check.violations for check in self.checks)

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks with violations."""
        return tuple(check.name for check in self.checks if check.violations)

    def render(self) -> str:
        """A table: constraint, worst slack, violations, up to five examples; then the measures and the verdict."""
        rows = [("constraint", "worst slack", "violations", "examples")]
        for check in self.checks:
            slack = "-" if check.worst_slack is None else f"{check.worst_slack:.6g}"
            rows.append((check.name, slack, f"{check.violations:,}", "; ".join(map(str, check.examples))))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [
            f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip() for row in rows
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        lines += ["", "recomputed: " + ", ".join(f"{name} {value:.6g}" for name, value in self.recomputed.items())]
        lines += [f"- {check.name}: {check.hint}" for check in self.checks if check.violations]
        lines.append("the plan holds" if self.holds else f"the plan does NOT hold: {', '.join(self.failed)}")
        return "\n".join(lines)
