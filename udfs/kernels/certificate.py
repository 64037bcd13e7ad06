"""The search for an epsilon-certificate in Algorithm 1 (FilterAssign of Yu, Agarwal, Yang, ICDE): stages, iterations, weights.

A weight is a power of two, so a group of subscribers is known by how many have each exponent: all sums are exact, and
the rows themselves stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.hashing import uniforms

__all__ = ["REPEATS", "Judgement", "Search", "attempts", "least_key", "pool_slice", "sample_size"]

FIRST_STAGE = 4
REPEATS = 6
"""Invalid iterations in a row after which a stage is given up. Lemma 3 makes each invalid with probability 1/2 at most when the
sample is large enough, so this many say that the stage's is not."""
COVERED, EXPANDED, LOST = 0, 1, 2
"""Verdicts on a subscriber: covered by Phi, only by (1 + epsilon) Phi, by neither."""


def sample_size(g: int) -> int:
    """|Q| = 10 g ln g, at least one."""
    return max(1, round(10 * g * math.log(g)))


def attempts(size: int) -> int:
    """How often FilterAssignHelper draws S_b: j from 0 to ln |S|."""
    return int(math.log(max(size, 1))) + 1


@dataclass(frozen=True)
class Judgement:
    """One iteration: what was found, and what becomes of the exponents that the pass has raised."""

    g: int
    iteration: int
    uncovered: int
    """Subscribers outside (1 + epsilon) Phi."""
    violating: float
    """Share of the weight outside Phi."""
    valid: bool
    then: Literal["keep", "undo", "reset", "end"]


@dataclass
class Search:
    """FilterAssign on one group of ``size`` subscribers, an iteration at a time; ends ``covered`` or ``exhausted``.

    A group of fewer than four, for which the printed loop does not start, begins at its size; a stage has at least one iteration.
    """

    size: int
    epsilon: float
    g: int = 0
    iteration: int = 1
    repeats: int = 0
    outcome: Literal["", "covered", "exhausted"] = ""
    exponents: dict[int, int] = field(default_factory=dict)
    """How many subscribers have which exponent."""

    def __post_init__(self) -> None:
        self.g = self.g or min(FIRST_STAGE, self.size)
        self.exponents = self.exponents or {0: self.size}

    @property
    def most_iterations(self) -> int:
        """Valid iterations of the stage: 4 g ln(|S| / g)."""
        return max(1, int(4 * self.g * math.log(self.size / self.g)))

    def judge(self, seen: Mapping[tuple[int, int], int]) -> Judgement:
        """``seen`` counts subscribers by (exponent the iteration was drawn with, verdict)."""
        if sum(seen.values()) != self.size:
            raise ValueError(f"{sum(seen.values())} subscribers were judged, the group has {self.size}")
        total = sum(count << exponent for (exponent, _), count in seen.items())
        violating = sum(count << exponent for (exponent, verdict), count in seen.items() if verdict != COVERED)
        uncovered = sum(count for (_, verdict), count in seen.items() if verdict == LOST)
        valid = violating <= self.epsilon * total
        g, iteration = self.g, self.iteration
        then: Literal["keep", "undo", "reset", "end"]
        if uncovered == 0:
            self.outcome, then = "covered", "end"
        elif valid:
            self.repeats, self.iteration = 0, self.iteration + 1
            self.exponents = {}
            for (exponent, verdict), count in seen.items():
                raised = exponent + (verdict != COVERED)
                self.exponents[raised] = self.exponents.get(raised, 0) + count
            then = "keep" if self.iteration <= self.most_iterations else self._next_stage()
        else:
            self.repeats += 1
            then = "undo" if self.repeats < REPEATS else self._next_stage()
        return Judgement(g, iteration, uncovered, violating / total, valid, then)

    def _next_stage(self) -> Literal["reset", "end"]:
        self.g, self.iteration, self.repeats, self.exponents = 2 * self.g, 1, 0, {0: self.size}
        if self.g > self.size:
            self.outcome = "exhausted"
            return "end"
        return "reset"


def least_key(exponents: Mapping[int, int], size: int) -> float:
    """A bound on the keys log(u) / w of a weighted draw of ``size``: rows above it are enough, and few more than that.

    Where w = 2^exponent, a row is above -t with probability 1 - exp(-w t); t makes them eight standard deviations
    more than ``size``. Minus infinity where nearly everyone would be.
    """
    wanted = size + 8 * math.sqrt(size) + 32
    if wanted >= 0.9 * sum(exponents.values()):
        return -math.inf
    weight = np.exp2(np.array(list(exponents), dtype=np.float64))
    count = np.array(list(exponents.values()), dtype=np.float64)
    low, high = math.log(1e-3 / (weight * count).sum()), math.log(1e3 / weight.min())
    for _ in range(60):
        middle = (low + high) / 2
        if (count * -np.expm1(-weight * math.exp(middle))).sum() < wanted:
            low = middle
        else:
            high = middle
    return -math.exp(high)


def pool_slice(ids: NDArray[np.int64], rank: NDArray[np.int64], size: int, attempt: int, seed: int) -> NDArray[np.bool_]:
    """The S_b of one attempt: the ``attempt``-th slice of a pool of rows ranked at random from 1 (0: not in the pool).

    A pool that is used up, because the whole group is in it, is shuffled again.
    """
    pool = rank > 0
    first = attempt * size
    if attempt == 0 or first + size <= int(pool.sum()):
        return (rank > first) & (rank <= first + size)
    members = np.flatnonzero(pool)
    order = np.lexsort((ids[members], uniforms(seed, attempt, ids[members])))
    chosen = np.zeros(len(ids), dtype=bool)
    chosen[members[order[:size]]] = True
    return chosen
