"""SLP, the product: the three steps of the paper's SLP1 and SLP on a coreset, then a local search (docs/slp.md).

The paper (Yu, Agarwal, Yang, ICDE, sections IV and V): a linear program on a coreset gives preliminary filters, a flow
assigns subscribers to brokers that cover them, filters are adjusted. What differs here:

- The coreset carries the whole plan. Its rows are distributed down the tree by linear programs (all subtrees of a level in
  one grouped map), and a local search lowers the cost of that plan; Gr* on the coreset is a second start, for few
  brokers the program at the tightest load factor another, and the best one goes on.
- A round is one pass over the subscribers with the filters broadcast: uncovered subscribers join the coreset, and leaves
  that a flow on the cover sets finds too small get less of the coreset's load. Rounds end when a plan covers everyone
  and its flow places everyone: latency and load hold exactly, for all subscribers, not for a sample.
- ``fractional_bound`` is the dual bound of the linear program at the plan's own load factor, on the coreset, over the candidate
  rectangles and those of the plan; on a tree, the sum over its levels (each level's brokers must cover everyone too).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pubsub_graph.assignment.balance import balanced_plan, look_ahead
from pubsub_graph.assignment.plan import AssignmentPlan, event_measure
from pubsub_graph.assignment.problem import AssignmentProblem
from pubsub_graph.assignment.settle import Survey, settle, survey
from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.sampling import reservoir
from udfs.kernels.flow import assign_sets
from udfs.kernels.greedy import greedy, lbf_steps
from udfs.kernels.latency import pack_sets, unpack_sets
from udfs.kernels.lprelax import SMALL
from udfs.kernels.measure import Measure
from udfs.kernels.search import Coreset, Found, slot_boxes
from udfs.kernels.siblings import Rows, start_slots
from udfs.kernels.tree import BrokerTree
from udfs.slp import BOUND, FOUND, SPLIT, Boxes, level_bounds, search_from, split_subtrees, unpack_found

__all__ = ["SlpParams", "slp"]

Ints = NDArray[np.int64]

LEAST_ROWS, MOST_ROWS = 4_000, 24_000
"""Size of the coreset's uniform sample (but at least 40 rows a leaf); up to MOST_ROWS subscribers are taken whole."""
ROUNDS = ((0.03, 0.03), (0.04, 0.03), (0.08, 0.03), (0.15, 0.03), (0.25, 0.03), (0.25, 0.02), (0.20, 0.005))
"""Each round's share of the moves, and its first temperature."""
CLOSING = (0.04, 0.005)
CLOSING_ROUNDS = 12
RAISE_AFTER = 4
"""Closing rounds for load alone that keep the desired load factor; each one after them takes a step towards the largest."""
ENLARGE = 0.2
"""Most uncovered subscribers that join the coreset in a round, as a share of it."""
SLACK = 0.95
"""Share of the leaves' capacity that the plan of a sample may use; the sample's loads are not exactly everyone's."""
MOVES_A_ROW = 3_000
EFFORT = {False: 30.0, True: 10.0}
"""Millions of moves unless told otherwise: on one level, and on a deeper tree, whose bound is weak anyway."""
NEAR = 1.0005
"""A plan this close to its bound is not searched further."""


@dataclass(frozen=True)
class SlpParams:
    """``effort`` is the length of the local search, in millions of moves (None: 30 on one level, 10 on a deeper tree);
    ``tries`` searches run side by side (in the first round at least one from every start), the best
    is kept in every round. ``sample`` is the coreset's size in rows a leaf, ``super_subscriptions`` the paper's k and
    ``gamma`` its threshold for subtrees. ``time_limit`` (seconds) ends the search early with the best plan so far."""

    seed: int = 0
    effort: float | None = None
    tries: int = 2
    sample: int = 160
    super_subscriptions: int = 5
    gamma: float = 0.5
    time_limit: float | None = None

    def __post_init__(self) -> None:
        findings = []
        if self.effort is not None and not self.effort >= 0:
            findings.append(f"effort is {self.effort}; it must be 0 or more (millions of moves)")
        for name in ("tries", "sample", "super_subscriptions"):
            if getattr(self, name) < 1:
                findings.append(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 < self.gamma <= 1:
            findings.append(f"gamma is {self.gamma}; it is a share of a subtree's leaves, above 0 and at most 1")
        if self.time_limit is not None and not self.time_limit > 0:
            findings.append(f"time_limit is {self.time_limit}; it must be more than 0 seconds")
        if findings:
            raise BadInput.of(findings)


def slp(
    problem: AssignmentProblem,
    params: SlpParams,
    lineage: Lineage,
    progress: Progress,
    previous: DataFrame | None = None,
) -> AssignmentPlan:
    """Plan by linear programs and local search. ``previous`` (subscriber_id, broker_id) is a plan to start from."""
    limits = problem.limits
    deadline = time.time() + params.time_limit - progress.elapsed() if params.time_limit else None
    prospect = look_ahead(problem, lineage, progress)
    if not prospect.within(limits):
        return balanced_plan(problem, "slp", prospect, seed=params.seed, lineage=lineage, progress=progress)

    candidates, measure = prospect.candidates, event_measure(problem)
    aims = [aim for aim in lbf_steps(limits.lbf, limits.lbf_max) if aim >= prospect.best.lbf * (1 - 1e-12)]
    with progress.stage("coreset"):
        core = _draw(problem, candidates, params)
    with progress.stage("linear programs"):
        # with half of the load factor's excess, if it can be, so that the flow after the program has room
        leaf, bound, notes = _descend(problem, candidates, core, params, [(1 + aims[0]) / 2, aims[0]], measure, progress)
        core.slot = start_slots(leaf, core.low, core.high, limits.alpha)
        starts = [core.slot, _greedy_start(problem, core, aims[0])]
        if problem.tree.height[0] == 1 and len(problem.tree.leaves) <= SMALL and prospect.best.lbf < aims[0]:
            # a small program is solved at the tightest factor too: where load decides, it leaves fewer ways to round
            tight, _, more = _descend(problem, candidates, core, params, [prospect.best.lbf], measure, progress)
            starts.append(start_slots(tight, core.low, core.high, limits.alpha))
            notes += more
        if previous is not None:
            starts.append(_previous_start(problem, core, previous))
    rounds = _Rounds(problem, params, candidates, core, measure, aims, deadline, progress)
    with progress.stage("rounds"):
        settled = rounds.run(starts, bound)
    with progress.stage("bound"):
        found = _bound(problem, core, settled.boxes, settled.lbf, params, measure)
    extra: dict[str, Any] = {
        "fractional_bound": found,
        "coreset_rows": len(core.weight),
        "linear_programs": notes,
        "rounds": rounds.log,
        "uncovered": settled.survey.uncovered,
        "time_limit_reached": deadline is not None and time.time() >= deadline,
    }
    plan = settle(problem, "slp", candidates, settled.boxes, settled.survey, settled.lbf,
                  seed=params.seed, lineage=lineage, progress=progress, extra=extra, best=prospect.best)  # fmt: skip
    if found > 0:
        plan.metrics["gap"] = plan.metrics["bandwidth"] / found - 1
    return plan


# ---------------------------------------------------------------- the coreset


@dataclass
class _Core:
    """The coreset and its plan. ``weight`` 1: drawn uniformly, so it stands for load; 0: it joined uncovered."""

    ids: Ints
    location: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    allowed: NDArray[np.bool_]
    weight: NDArray[np.float64]
    slot: Ints
    whole: bool
    """Whether it holds every subscriber, so that its loads are exact."""

    def rows(self) -> Coreset:
        return Coreset.of(self.low, self.high, self.weight, self.allowed)

    def boxes(self, slot: Ints, alpha: int, leaves: int) -> Boxes:
        low, high, used = slot_boxes(self.low, self.high, slot, leaves * alpha)
        return Boxes(np.flatnonzero(used) // alpha, low[used], high[used])

    def join(self, rows: list[Row], leaves: int) -> None:
        """Uncovered subscribers become rows without load and without a place."""
        new = _core(rows, leaves)
        for name in ("ids", "location", "low", "high", "allowed", "weight", "slot"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(new, name)]))


def _core(rows: list[Row], leaves: int, weight: float = 0.0, whole: bool = False) -> _Core:
    rows = sorted(rows, key=lambda row: row["subscriber_id"])
    packed = np.frombuffer(b"".join(bytes(row["candidates"]) for row in rows), dtype=np.uint8).reshape(len(rows), -1)
    location, low, high = (np.array([row[name] for row in rows], dtype=np.float64) for name in ("location", "low", "high"))
    ids = np.array([row["subscriber_id"] for row in rows], dtype=np.int64)
    return _Core(ids, location, low, high, unpack_sets(packed, leaves), np.full(len(rows), weight), np.full(len(rows), -1), whole)


def _draw(problem: AssignmentProblem, candidates: DataFrame, params: SlpParams) -> _Core:
    """A uniform sample by hash, or everyone when they are few."""
    leaves = len(problem.tree.leaves)
    size = max(min(max(LEAST_ROWS, params.sample * leaves), MOST_ROWS), 40 * leaves)
    whole = problem.count <= max(size, MOST_ROWS)
    drawn = candidates if whole else reservoir(candidates, size, "subscriber_id", params.seed)
    return _core(drawn.collect(), leaves, weight=1.0, whole=whole)


# ---------------------------------------------------------------- where the search starts


def _descend(
    problem: AssignmentProblem,
    candidates: DataFrame,
    core: _Core,
    params: SlpParams,
    lbfs: list[float],
    measure: Measure,
    progress: Progress,
) -> tuple[Ints, float, list[dict[str, Any]]]:
    """The coreset's rows from the root down to leaves, a level at a time: (leaf of each row, bound of the first level, notes).

    A group is a broker with the rows that reached it; rows that have reached a leaf drop out. A linear program is solved
    at the first of ``lbfs`` that it has a solution for, and rounded for the last.
    """
    tree, spark = problem.tree, candidates.sparkSession
    leaf_number = np.full(len(tree.parent), -1)
    leaf_number[tree.leaves] = np.arange(len(tree.leaves))
    split = split_subtrees(
        tree, alpha=problem.limits.alpha, lbfs=lbfs, gamma=params.gamma, super_subscriptions=params.super_subscriptions,
        total=len(core.ids), measure=measure, seed=params.seed,
    )  # fmt: skip
    node, bound, notes, level = np.zeros(len(core.ids), dtype=np.int64), 0.0, list[dict[str, Any]](), 0
    packed = pack_sets(core.allowed)
    schema = "subscriber_id bigint, node int, candidates binary, location array<double>, low array<double>, high array<double>"
    while (leaf_number[node] < 0).any():
        level += 1
        rows = [
            (int(core.ids[j]), int(node[j]), packed[j].tobytes(), core.location[j].tolist(), core.low[j].tolist(), core.high[j].tolist())
            for j in np.flatnonzero(leaf_number[node] < 0)
        ]
        table = spark.createDataFrame(rows, schema)
        done = table.groupBy("node").applyInPandas(split, SPLIT).collect()
        place = np.searchsorted(core.ids, [row["subscriber_id"] for row in done])
        node[place] = [row["node"] for row in done]
        told = [json.loads(row["note"]) for row in done if row["note"] is not None]
        notes += sorted(told, key=lambda note: note["node"])
        bound = bound or max(row["bound"] for row in done)
        progress.tell(f"level {level}", subtrees=len(told), bound=bound)
    return leaf_number[node], bound, notes


def _greedy_start(problem: AssignmentProblem, core: _Core, lbf: float) -> Ints:
    """The slots of Gr* on the coreset."""
    limits = problem.limits
    found = greedy(
        problem.tree, core.low, core.high, pack_sets(core.allowed), core.allowed.argmax(1),
        alpha=limits.alpha, lbf=lbf, lbf_max=max(lbf, limits.lbf_max), reorder=True,
    )  # fmt: skip
    return start_slots(found.leaf, core.low, core.high, limits.alpha)


def _previous_start(problem: AssignmentProblem, core: _Core, previous: DataFrame) -> Ints:
    """The slots of an existing plan; rows it does not know, or serves where they may not be any more, have none yet."""
    tree = problem.tree
    wanted = previous.sparkSession.createDataFrame([(int(i),) for i in core.ids], "subscriber_id bigint")
    known = previous.select("subscriber_id", "broker_id").join(F.broadcast(wanted), "subscriber_id").collect()
    number = {int(broker): i for i, broker in enumerate(tree.leaf_ids)}
    leaf = np.full(len(core.ids), -1)
    for row in known:
        leaf[np.searchsorted(core.ids, row["subscriber_id"])] = number.get(row["broker_id"], -1)
    leaf[(leaf >= 0) & ~core.allowed[np.arange(len(leaf)), leaf]] = -1
    slot, placed = np.full(len(leaf), -1), np.flatnonzero(leaf >= 0)
    slot[placed] = start_slots(leaf[placed], core.low[placed], core.high[placed], problem.limits.alpha)
    return slot


# ---------------------------------------------------------------- rounds


@dataclass(frozen=True)
class _Settled:
    """A plan of rectangles, what a pass over all subscribers found, and the load factor its flow keeps."""

    boxes: Boxes
    survey: Survey
    cost: float
    unmet: int
    lbf: float


class _Rounds:
    """Search on the coreset, survey all subscribers, mend the coreset; until a plan serves everyone."""

    def __init__(
        self, problem: AssignmentProblem, params: SlpParams, candidates: DataFrame, core: _Core,
        measure: Measure, aims: list[float], deadline: float | None, progress: Progress,
    ) -> None:  # fmt: skip
        self.problem, self.params, self.candidates, self.core = problem, params, candidates, core
        self.measure, self.aims, self.deadline, self.progress = measure, aims, deadline, progress
        self.room = np.full(len(problem.tree.leaves), 1.0 if core.whole else SLACK)
        effort = params.effort if params.effort is not None else EFFORT[problem.tree.height[0] > 1]
        self.moves = int(min(effort * 1e6, MOVES_A_ROW * len(core.ids)))
        self.log: list[dict[str, Any]] = []
        self.best: _Settled | None = None

    def run(self, starts: list[Ints], bound: float) -> _Settled:
        """The rounds, then closing rounds as long as a plan that is better than the best complete one misses someone."""
        last, raised = None, 0
        for number, (share, heat) in enumerate([*ROUNDS, *[CLOSING] * CLOSING_ROUNDS]):
            closing, late = number >= len(ROUNDS), self._late()
            if self.best is not None and (late or self.best.cost <= NEAR * bound):
                break
            if closing and last is not None:
                if self.best is not None and self.best.cost <= last.cost:
                    break
                if last.survey.uncovered:  # who was uncovered is only put in: rectangles grow, and nobody else is lost
                    share = 0.0
                else:
                    raised += 1
            aim = self.aims[min(max(0, raised - RAISE_AFTER), len(self.aims) - 1)]
            found = self._search(starts if number == 0 else [self.core.slot], number, 0 if late else int(share * self.moves), heat)
            self.core.slot = found.slot
            last = self._survey(found, number, bound, aim)
            if last.unmet == 0 and (self.best is None or last.cost < self.best.cost):
                self.best = last
            self._mend(last, number, everything=number + 1 >= len(ROUNDS) or late)
        if self.best is not None:
            return self.best
        assert last is not None
        return replace(last, lbf=self.problem.limits.lbf_max)

    def _late(self) -> bool:
        return self.deadline is not None and time.time() >= self.deadline

    def _search(self, starts: list[Ints], number: int, moves: int, heat: float) -> Found:
        tries = max(self.params.tries, len(starts))
        capacity = self._capacity(self.aims[0])
        task = search_from(
            self.core.rows(), self.problem.tree, capacity, self.problem.limits.alpha, starts, self.measure,
            moves=moves, heat=heat, seed=(self.params.seed * 1009 + number) * 1009, deadline=self.deadline,
        )  # fmt: skip
        rows = self.candidates.sparkSession.range(0, tries, 1, tries).mapInArrow(task, FOUND).collect()
        best = min(rows, key=lambda row: (max(row["overload"], 0.0), row["cost"], row["number"]))
        return unpack_found(best.asDict())

    def _capacity(self, lbf: float) -> NDArray[np.float64]:
        rows = float(self.core.weight.sum())
        if self.core.whole:
            return BrokerTree.capacities(self.problem.tree.share, self.problem.count, lbf) * self.room
        return lbf * self.problem.tree.share * rows * self.room

    def _survey(self, found: Found, number: int, bound: float, lbf: float) -> _Settled:
        leaves = len(self.problem.tree.leaves)
        boxes = self.core.boxes(found.slot, self.problem.limits.alpha, leaves)
        seen = survey(self.candidates, boxes, leaves)
        capacity = BrokerTree.capacities(self.problem.tree.share, self.problem.count, lbf)
        _, placed, blocking = assign_sets(seen.sets.allowed, seen.sets.counts, capacity)
        unplaced = int(seen.sets.counts.sum()) - placed
        if unplaced:
            needed = float(capacity[blocking].sum())
            self.room[blocking] *= 0.99 * max(0.8, (needed / (needed + unplaced)) ** 2)
        said = {
            "coreset": len(self.core.ids), "uncovered": seen.uncovered, "unplaced": unplaced, "plan": found.cost,
            "bound": bound, "lbf": lbf, "seconds": round(self.progress.elapsed(), 1),
        }  # fmt: skip
        self.log.append(said)
        self.progress.tell(f"round {number + 1}", **{key: value for key, value in said.items() if key != "seconds"})
        return _Settled(boxes, seen, found.cost, unplaced + seen.uncovered, lbf)

    def _mend(self, last: _Settled, number: int, everything: bool) -> None:
        if last.survey.uncovered:
            most = MOST_ROWS if everything else max(500, int(ENLARGE * len(self.core.ids)))
            new = reservoir(last.survey.lost, most, "subscriber_id", self.params.seed, round_number=number + 1).collect()
            self.core.join(new, len(self.problem.tree.leaves))
        last.survey.release()


# ---------------------------------------------------------------- the bound


def _bound(problem: AssignmentProblem, core: _Core, boxes: Boxes, lbf: float, params: SlpParams, measure: Measure) -> float:
    """Sum over the tree's levels of the dual bound of the linear program for that level's brokers; a task a level."""
    rows = Rows(core.location, core.low, core.high, core.allowed, core.weight)
    task = level_bounds(
        problem.tree, rows, boxes, alpha=problem.limits.alpha, lbf=lbf, super_subscriptions=params.super_subscriptions,
        measure=measure, seed=params.seed,
    )  # fmt: skip
    levels = problem.tree.paths.shape[1]
    spark = problem.subscribers.sparkSession
    return float(sum(row["bound"] for row in spark.range(0, levels, 1, levels).mapInArrow(task, BOUND).collect()))
