"""SLP as printed: Algorithm 1, a flow on cover sets and filter adjustment, recursively down the tree (docs/slp.md).

The yardstick beside ``slp``: what the paper's own choices give, on the same kernels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pubsub_graph.assignment.balance import balanced_plan, look_ahead
from pubsub_graph.assignment.candidates import CandidateSets, hand_back, sets_of
from pubsub_graph.assignment.plan import AssignmentPlan, event_measure, finish
from pubsub_graph.assignment.problem import AssignmentProblem
from pubsub_graph.assignment.settle import shrunk_filters
from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.sampling import Draw, draws_per_group
from udfs.assignment import CANDIDATES, PLACED, place
from udfs.kernels.certificate import Judgement, Search, attempts, least_key, sample_size
from udfs.kernels.rising import rising_flow, spill
from udfs.slp import Boxes
from udfs.slp_paper import CHOSEN, LEVEL, LEVEL_COVER, STATE, Sample, filter_assign, judge, level_cover, level_sets

__all__ = ["SlpPaperParams", "slp_paper"]

Ints = NDArray[np.int64]
RISE = 1.02
"""The small factor by which the flow's load factor rises from the desired to the largest."""


@dataclass(frozen=True)
class SlpPaperParams:
    """``epsilon`` is the expansion that turns filters of a sample into filters of everyone, ``sample`` the size of S_b a sibling,
    ``super_subscriptions`` the paper's k a sibling and ``gamma`` its threshold for subtrees."""

    seed: int = 0
    epsilon: float = 0.1
    gamma: float = 0.5
    sample: int = 10
    super_subscriptions: int = 5

    def __post_init__(self) -> None:
        findings = []
        if not 0 < self.epsilon < 1:
            findings.append(f"epsilon is {self.epsilon}; it must be between 0 and 1")
        if not 0 < self.gamma <= 1:
            findings.append(f"gamma is {self.gamma}; it is a share of a subtree's leaves, above 0 and at most 1")
        for name in ("sample", "super_subscriptions"):
            if getattr(self, name) < 1:
                findings.append(f"{name} is {getattr(self, name)}; it must be at least 1")
        if findings:
            raise BadInput.of(findings)


def slp_paper(problem: AssignmentProblem, params: SlpPaperParams, lineage: Lineage, progress: Progress) -> AssignmentPlan:
    """SLP1 and SLP of Yu, Agarwal, Yang (ICDE), sections IV and V, with Algorithm 1 to the letter.

    FilterAssign looks for an epsilon-certificate: stages g = 4, 8, ...; in a stage up to 4 g ln(|S| / g) valid iterations, each
    a weighted sample Q of 10 g ln g, a uniform S_b of 10 a sibling, LPRelax on both, and weights doubled where its filters do not cover;
    until the filters expanded by epsilon cover everyone. A flow on the cover sets then assigns subscribers, and filters
    are adjusted to what they serve. On a tree this is done for the children of every broker, all of a level together,
    with the limits of the supplement.

    Theorem 1: on a one-level tree, with probability at least 1/2 and without merging into super-subscriptions (so with
    ``super_subscriptions`` so large that every sampled subscription is one), the expected bandwidth is at most 2 ln |S_a| times
    the optimum, latency and nesting hold strictly, and the expected filter complexity exceeds alpha by a factor of at
    most 2 ln |S_a| before adjustment, which restores it. Nothing bounds the loss from merging, from adjustment, or on deeper trees.
    Beyond 20 siblings (or where the program is large) LPRelax is solved by ascent of its dual, whose average stands for the
    optimal y: the guarantee then holds up to the gap between bound and average (``lp_gap`` of each iteration in the metrics'
    ``log``), 3% where the ascent ended by itself; the average meets the constraints only in the limit.

    What the paper leaves open. An iteration is repeated at most 6 times while invalid, then the stage is given up. The
    desired load factor is raised to the first step that any assignment can keep, which a flow tells beforehand; where
    none can keep the largest, Balance's plan is returned and no program is solved. Where FilterAssign returns bottom the
    flow runs on the children in time instead. Subscribers that the flow leaves out at the largest factor may go to any
    child in time; others make room for them as far as they can, and the least full child takes the rest. So the plan is
    complete, ``bottom`` in its metrics says where and why, and ``feasible`` is what its constraints say.
    """
    limits, tree = problem.limits, problem.tree
    prospect = look_ahead(problem, lineage, progress)
    if not prospect.within(limits):
        reason = f"no assignment in time keeps lbf_max {limits.lbf_max:g}: best {prospect.best.lbf:.6g}, {prospect.best.unmet} unreachable"
        effort = balanced_plan(problem, "slp-paper", prospect, seed=params.seed, lineage=lineage, progress=progress)
        effort.metrics.update(iterations=0, bottom=[{"node": int(tree.broker_id[0]), "reason": reason}])
        return effort
    betas = [beta for beta in _rising(limits.lbf, limits.lbf_max) if beta >= prospect.best.lbf * (1 - 1e-12)]
    descent = _Descent(problem, params, betas, lineage, progress)
    done = descent.run(prospect.candidates)
    with progress.stage("filters"):
        placed = lineage.persist(done.mapInArrow(place(tree, limits.max_delay, limits.last_hop), PLACED))
        filters = shrunk_filters(problem, placed.withColumn("slot", F.lit(-1)))
    extra: dict[str, Any] = {
        "iterations": len(descent.log),
        "lbf_aim": betas[0],
        "stages": descent.stages,
        "unplaced": descent.unplaced,
        "bottom": descent.bottom,
        "log": descent.log,
    }
    if descent.root_bound is not None:
        extra["fractional_bound" if tree.height[0] == 1 else "root_bound"] = descent.root_bound
    plan = finish(problem, "slp-paper", placed, filters, seed=params.seed, lineage=lineage, progress=progress, extra=extra, best=prospect.best)
    if extra.get("fractional_bound", 0) > 0:
        plan.metrics["gap"] = plan.metrics["bandwidth"] / extra["fractional_bound"] - 1
    return plan


def _rising(lbf: float, lbf_max: float) -> list[float]:
    """The desired load factor, then small steps up to the largest."""
    steps = [lbf]
    while steps[-1] * RISE < lbf_max:
        steps.append(steps[-1] * RISE)
    return steps if steps[-1] == lbf_max else [*steps, lbf_max]


@dataclass(frozen=True)
class _Level:
    """The brokers of a level that have subscribers, how many, and the numbering of their children (tree nodes ``targets``)."""

    number: int
    members: dict[int, int]
    targets: Ints
    rows: DataFrame
    """Subscribers with the children in time: rows of ``LEVEL``."""


class _Descent:
    """From the root down to leaves, a level at a time; remembers what the metrics tell."""

    def __init__(self, problem: AssignmentProblem, params: SlpPaperParams, betas: list[float], lineage: Lineage, progress: Progress) -> None:
        self.problem, self.params, self.betas = problem, params, betas
        self.lineage, self.progress = lineage, progress
        self.tree, self.measure = problem.tree, event_measure(problem)
        self.rounds, self.unplaced = 0, 0
        self.root_bound: float | None = None
        self.log: list[dict[str, Any]] = []
        self.stages: list[dict[str, Any]] = []
        self.bottom: list[dict[str, Any]] = []

    def run(self, candidates: DataFrame) -> DataFrame:
        """The candidates with the column ``leaf``: an index into the tree's leaves."""
        tree, done = self.tree, list[DataFrame]()
        table, members, number = candidates.withColumn("node", F.lit(0)), {0: self.problem.count}, 0
        while members:
            number += 1
            targets = np.flatnonzero(np.isin(tree.parent, list(members)))
            rows = table.mapInArrow(level_sets(tree, targets, self.params.gamma), LEVEL)
            level = _Level(number, members, targets, self.lineage.persist(rows))
            boxes = self._filters(level)
            with self.progress.stage("subscription assignment"):
                moved, load = self._assign(level, boxes)
            leaf = np.searchsorted(tree.leaves, targets)
            is_leaf = np.isin(targets, tree.leaves)
            if is_leaf.any():
                at = F.element_at(_array(np.where(is_leaf, leaf, -1)), F.col("target") + 1)
                done.append(moved.withColumn("leaf", at).where("leaf >= 0").select(*CANDIDATES.names, "leaf"))
            members = {int(targets[c]): int(load[c]) for c in np.flatnonzero(~is_leaf & (load > 0))}
            at = F.element_at(_array(targets), F.col("target") + 1)
            table = moved.withColumn("node", at).where(F.col("node").isin(list(members))).select(*CANDIDATES.names, "node")
        together = done[0]
        for part in done[1:]:
            together = together.unionByName(part)
        return together

    # ------------------------------------------------------------ FilterAssign

    def _filters(self, level: _Level) -> Boxes:
        """Rectangles of the level's children that cover everyone; those of a broker without a solution hold everything."""
        searches = {node: Search(size, self.params.epsilon) for node, size in level.members.items()}
        state = level.rows.select(*STATE.names[:-2], F.lit(0).alias("exponent"), F.lit(0).alias("verdict"))
        kept: DataFrame | None = None
        settled: list[Boxes] = []
        with self.progress.stage("filter assignment"):
            while active := sorted(node for node, search in searches.items() if not search.outcome):
                here = F.col("node").isin(active)
                boxes, notes = self._helper(level, searches, state.where(here))
                for node in [node for node in active if notes[node]["bound"] is None]:
                    searches[node].outcome = "exhausted"
                    tries = attempts(level.members[node])
                    self._fail(node, f"no filters for any of {tries} samples S_b at load factor {self.betas[0]:.4g}")
                active = [node for node in active if notes[node]["bound"] is not None]
                if not active:
                    break
                here = F.col("node").isin(active)
                judged = self.lineage.cut(state.where(here).mapInArrow(judge(boxes, self.params.epsilon), STATE))
                if kept is not None:
                    self.lineage.drop(kept)
                kept = judged
                then = self._judge(level, searches, judged, notes)
                owner = self.tree.parent[level.targets[boxes.target]]
                ended = np.isin(owner, [node for node in active if searches[node].outcome == "covered"])
                settled.append(Boxes(boxes.target[ended], boxes.low[ended], boxes.high[ended]).expanded(self.params.epsilon))
                state = _corrected(judged, then)
        if kept is not None:
            self.lineage.drop(kept)
        return self._together(level, searches, settled)

    def _helper(self, level: _Level, searches: dict[int, Search], state: DataFrame) -> tuple[Boxes, dict[int, Any]]:
        """FilterAssignHelper for every group that is still searching: rectangles, and a note by node (its bound is None: bottom)."""
        self.rounds += 1
        params, tree, limits = self.params, self.tree, self.problem.limits
        q, pool, samples = dict[int, int](), dict[int, int](), dict[int, Sample]()
        for node, search in searches.items():
            if not search.outcome:
                children = int((tree.parent == node).sum())
                seed = ((params.seed * 1_000_003 + node) * 1_000_003 + self.rounds) * 64  # below it, a number for each attempt
                samples[node] = Sample(search.size, params.sample * children, attempts(search.size), seed)
                q[node], pool[node] = sample_size(search.g), samples[node].slice * samples[node].attempts
        draws = {
            "q": Draw(q, {node: least_key(searches[node].exponents, q[node]) for node in q}, 2 * self.rounds, "weight"),
            "pool": Draw(pool, {node: least_key({0: searches[node].size}, pool[node]) for node in q}, 2 * self.rounds + 1),
        }
        weighted = state.drop("verdict").withColumn("weight", F.pow(F.lit(2.0), "exponent"))
        partitions = 1 if len(q) == 1 else min(4 * len(q), 200)  # groups are few and long: spread them in spite of colliding hashes
        drawn = draws_per_group(weighted, "node", "subscriber_id", params.seed, draws, partitions).drop("weight", "exponent")
        task = filter_assign(
            tree, level.targets, samples, alpha=limits.alpha, lbf=self.betas[0], super_subscriptions=params.super_subscriptions,
            total=self.problem.count, measure=self.measure,
        )  # fmt: skip
        rows = sorted(drawn.groupBy("node").applyInPandas(task, CHOSEN).collect(), key=lambda row: row["node"])
        notes = {row["node"]: json.loads(row["note"]) for row in rows if row["note"] is not None}
        if level.number == 1:
            self.root_bound = notes[0]["bound"]
        found = [row for row in rows if row["target"] is not None]
        return _boxes(found, len(self.problem.event_low)), notes

    def _judge(self, level: _Level, searches: dict[int, Search], judged: DataFrame, notes: dict[int, Any]) -> dict[int, str]:
        """Validity, weights and stages of every group, from one small aggregation; what is to become of the raised exponents."""
        seen: dict[int, dict[tuple[int, int], int]] = {}
        for row in judged.groupBy("node", "exponent", "verdict").count().collect():
            before = row["exponent"] - (1 if row["verdict"] else 0)
            seen.setdefault(row["node"], {})[before, row["verdict"]] = row["count"]
        found: dict[int, Judgement] = {node: searches[node].judge(seen[node]) for node in sorted(seen)}
        for node, judgement in found.items():
            bound, value = notes[node]["bound"], notes[node]["value"]
            self.log.append(
                {
                    "node": int(self.tree.broker_id[node]), "g": judgement.g, "iteration": judgement.iteration,
                    "uncovered": judgement.uncovered, "violating": judgement.violating, "valid": judgement.valid,
                    "bound": bound, "lp_gap": value / bound - 1 if bound > 0 else 0.0,
                }
            )  # fmt: skip
            if searches[node].outcome == "exhausted":
                self._fail(node, f"no certificate of up to {level.members[node]} subscribers was found")
        figures: dict[str, object] = {
            "g": max(judgement.g for judgement in found.values()),
            "uncovered": sum(judgement.uncovered for judgement in found.values()),
            "violating": max(judgement.violating for judgement in found.values()),
            "valid": sum(judgement.valid for judgement in found.values()),
        }
        if len(found) > 1:
            figures |= {"subtrees": len(found), "ended": sum(bool(searches[node].outcome) for node in found)}
        else:
            figures["bound"] = self.log[-1]["bound"]
        self.progress.tell(f"level {level.number}, iteration {max(j.iteration for j in found.values())}", **figures)
        return {node: judgement.then for node, judgement in found.items()}

    def _together(self, level: _Level, searches: dict[int, Search], settled: list[Boxes]) -> Boxes:
        dims = len(self.problem.event_low)
        failed = [node for node, search in searches.items() if search.outcome != "covered"]
        open_targets = np.flatnonzero(np.isin(self.tree.parent[level.targets], failed))
        everything = np.full((len(open_targets), dims), np.inf)
        parts = [*settled, Boxes(open_targets, -everything, everything)]
        for node, search in searches.items():
            counted = sum(entry["node"] == int(self.tree.broker_id[node]) for entry in self.log)
            self.stages.append(
                {"node": int(self.tree.broker_id[node]), "subscribers": search.size, "g": search.g, "iterations": counted}
            )  # fmt: skip
        return Boxes(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("target", "low", "high")))

    def _fail(self, node: int, reason: str) -> None:
        self.bottom.append({"node": int(self.tree.broker_id[node]), "reason": reason})

    # ------------------------------------------------------------ subscription assignment

    def _assign(self, level: _Level, boxes: Boxes) -> tuple[DataFrame, Ints]:
        """(the level's rows with ``target``, a child's number; how many each child got), by a flow on cover sets for every broker."""
        covered = level.rows.mapInArrow(level_cover(boxes), LEVEL_COVER)
        sets = sets_of(covered.groupBy("cover").count(), "cover", len(level.targets))
        flow, left = np.zeros(sets.allowed.shape, dtype=np.int64), 0
        for node, columns, own in self._blocks(level, sets):
            block, beta, unplaced = rising_flow(
                self.tree, node, level.members[node], self.problem.count, sets.allowed[np.ix_(own, columns)], sets.counts[own], self.betas
            )
            flow[np.ix_(own, columns)] = block
            stage = next(stage for stage in self.stages if stage["node"] == int(self.tree.broker_id[node]))
            stage |= {"lbf": beta, "cover_sets": len(own), "unplaced": unplaced}
            if unplaced:
                left += unplaced
                self._fail(node, f"the flow leaves {unplaced} of {level.members[node]} subscribers without a child that covers them at lbf_max {beta:.4g}")
        self.progress.tell(f"level {level.number} assigned", cover_sets=len(sets.keys), unplaced=left)
        self.unplaced += left
        return self._spill(level, covered, sets, flow) if left else (_hand_on(covered, "cover", sets, flow), flow.sum(0))

    def _spill(self, level: _Level, covered: DataFrame, sets: CandidateSets, flow: Ints) -> tuple[DataFrame, Ints]:
        """The best effort for those without a place: a flow that lets them go to any child in time, and others make room.

        As many of a set have a place as before, so they are the same subscribers, and the others the same others.
        """
        out = _hand_on(covered, "cover", sets, flow).where("target < 0")
        others = sets_of(out.groupBy("near").count(), "near", len(level.targets))
        placed, moved, second = flow.sum(1), np.zeros_like(flow), np.zeros(others.allowed.shape, dtype=np.int64)
        for (node, columns, own), (_, _, rest) in zip(self._blocks(level, sets), self._blocks(level, others), strict=True):
            allowed = np.concatenate([sets.allowed[np.ix_(own, columns)], others.allowed[np.ix_(rest, columns)]])
            counts = np.concatenate([placed[own], others.counts[rest]])
            dealt = spill(self.tree, node, level.members[node], self.problem.count, allowed, counts, self.betas[-1])
            moved[np.ix_(own, columns)], second[np.ix_(rest, columns)] = dealt[: len(own)], dealt[len(own) :]
        given = self.lineage.persist(_hand_on(covered, "cover", sets, moved))
        again = _hand_on(given.where("target < 0").drop("target"), "near", others, second)
        return given.where("target >= 0").drop("near").unionByName(again), moved.sum(0) + second.sum(0)

    def _blocks(self, level: _Level, sets: CandidateSets) -> list[tuple[int, Ints, Ints]]:
        """(node, its children's numbers, its sets): a set belongs to the broker whose children it names."""
        blocks = []
        for node in level.members:
            columns = np.flatnonzero(self.tree.parent[level.targets] == node)
            blocks.append((node, columns, np.flatnonzero(sets.allowed[:, columns].any(1))))
        return blocks


def _hand_on(table: DataFrame, key: str, sets: CandidateSets, flow: Ints) -> DataFrame:
    return hand_back(table, key, sets, flow).withColumnRenamed("leaf", "target")


def _array(values: Ints) -> Column:
    return F.array(*[F.lit(int(value)) for value in values])


def _corrected(judged: DataFrame, then: dict[int, str]) -> DataFrame:
    """The state of the next iteration: an invalid one leaves the exponents as they were, a new stage sets them to 0."""
    undo, reset = ([node for node, action in then.items() if action == which] for which in ("undo", "reset"))
    before = F.col("exponent") - F.when(F.col("verdict") > 0, 1).otherwise(0)
    node = F.col("node")
    return judged.withColumn("exponent", F.when(node.isin(undo), before).when(node.isin(reset), 0).otherwise(F.col("exponent")))


def _boxes(rows: list[Row], dims: int) -> Boxes:
    low, high = (np.array([row[name] for row in rows], dtype=np.float64).reshape(len(rows), dims) for name in ("low", "high"))
    return Boxes(np.array([row["target"] for row in rows], dtype=np.int64), low, high)
