"""Balance: the assignment with the best possible load balance factor ("Other Algorithms Tested" of Yu, Agarwal, Yang, ICDE).

Subscribers with the same candidate set are interchangeable, so the flow runs on (set, leaf) with the sizes of the
sets: exact, and small. A running number within each set hands the flow back to the subscribers in a join.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from pubsub_graph.assignment.candidates import CandidateSets, candidate_table, distinct_sets, hand_back
from pubsub_graph.assignment.plan import AssignmentPlan, finish, leaf_filters
from pubsub_graph.assignment.problem import AssignmentProblem
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from udfs.assignment import PLACED, place
from udfs.kernels.flow import Balance, best_balance

__all__ = ["BalanceParams", "Prospect", "balance", "balanced_plan", "check_feasibility"]


@dataclass(frozen=True)
class BalanceParams:
    seed: int = 0
    """Recorded with the plan; the algorithm draws nothing."""


def balance(problem: AssignmentProblem, params: BalanceParams, lineage: Lineage, progress: Progress) -> AssignmentPlan:
    """The least load balance factor that the latency limits allow, proved by the flow that fails one step below it."""
    tree = problem.tree
    with progress.stage("candidate sets"):
        candidates = candidate_table(problem)
        sets = distinct_sets(candidates, len(tree.leaves))
    progress.tell("candidate sets", sets=len(sets.keys))
    with progress.stage("flow"):
        best = best_balance(sets.allowed, sets.counts, tree.share)
    progress.tell("flow", best_lbf=best.lbf, unreachable=best.unmet)
    return balanced_plan(problem, "balance", candidates, sets, best, seed=params.seed, lineage=lineage, progress=progress)


def balanced_plan(
    problem: AssignmentProblem,
    algorithm: str,
    candidates: DataFrame,
    sets: CandidateSets,
    best: Balance,
    *,
    seed: int,
    lineage: Lineage,
    progress: Progress,
) -> AssignmentPlan:
    """The plan of a balanced flow; also what another planner writes as best effort when no plan can keep the limits."""
    limits, tree = problem.limits, problem.tree
    with progress.stage("filters"):
        given = hand_back(candidates, "candidates", sets, best.flow)
        placed = lineage.persist(given.mapInArrow(place(tree, limits.max_delay, limits.last_hop), PLACED))
        filters = leaf_filters(problem, placed)
    extra = {
        "candidate_sets": len(sets.keys),
        "best_lbf": best.lbf,
        "unreachable_subscribers": best.unmet,
        "bottleneck_brokers": tree.leaf_ids[best.tight_leaves].tolist(),
    }
    return finish(problem, algorithm, placed, filters, seed=seed, lineage=lineage, progress=progress, extra=extra)


@dataclass(frozen=True)
class Prospect:
    """What a flow tells before a planner starts. ``plan`` is the best effort, where no plan can keep the limits."""

    candidates: DataFrame
    best: Balance
    plan: AssignmentPlan | None


def check_feasibility(problem: AssignmentProblem, algorithm: str, *, seed: int, lineage: Lineage, progress: Progress) -> Prospect:
    """The candidates, kept for the planner's rounds, and whether any assignment keeps latency and the largest load factor."""
    with progress.stage("candidate sets"):
        candidates = lineage.persist(candidate_table(problem))
        sets = distinct_sets(candidates, len(problem.tree.leaves))
    with progress.stage("feasibility"):
        best = best_balance(sets.allowed, sets.counts, problem.tree.share)
    progress.tell("feasibility", candidate_sets=len(sets.keys), best_lbf=best.lbf, unreachable=best.unmet)
    plan = None
    if best.unmet or best.lbf > problem.limits.lbf_max * (1 + 1e-12):
        plan = balanced_plan(problem, algorithm, candidates, sets, best, seed=seed, lineage=lineage, progress=progress)
    return Prospect(candidates, best, plan)
