"""Balance: the assignment with the best possible load balance factor ("Other Algorithms Tested" of Yu, Agarwal, Yang, ICDE).

Subscribers with the same candidate set are interchangeable, so the flow runs on (set, leaf) with the sizes of the
sets: exact, and small. A running number within each set hands the flow back to the subscribers in a join.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from pubsub_graph.assignment.candidates import CandidateSets, candidate_table, distinct_sets, hand_back
from pubsub_graph.assignment.plan import AssignmentPlan, finish, leaf_filters
from pubsub_graph.assignment.problem import AssignmentProblem, Limits
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from udfs.assignment import PLACED, place
from udfs.kernels.flow import Balance, best_balance

__all__ = ["BalanceParams", "Prospect", "balance", "balanced_plan", "look_ahead"]


@dataclass(frozen=True)
class BalanceParams:
    seed: int = 0
    """Recorded with the plan; the algorithm draws nothing."""


def balance(problem: AssignmentProblem, params: BalanceParams, lineage: Lineage, progress: Progress) -> AssignmentPlan:
    """The least load balance factor that the latency limits allow, proved by the flow that fails one step below it."""
    prospect = look_ahead(problem, lineage, progress)
    return balanced_plan(problem, "balance", prospect, seed=params.seed, lineage=lineage, progress=progress)


@dataclass(frozen=True)
class Prospect:
    """What a flow on candidate sets tells before a planner starts."""

    candidates: DataFrame
    """Kept for the planner's rounds."""
    sets: CandidateSets
    best: Balance

    def within(self, limits: Limits) -> bool:
        """Whether some assignment keeps latency and the largest load factor."""
        return self.best.unmet == 0 and self.best.lbf <= limits.lbf_max * (1 + 1e-12)


def look_ahead(problem: AssignmentProblem, lineage: Lineage, progress: Progress) -> Prospect:
    with progress.stage("candidate sets"):
        candidates = lineage.persist(candidate_table(problem))
        sets = distinct_sets(candidates, len(problem.tree.leaves))
    with progress.stage("feasibility"):
        best = best_balance(sets.allowed, sets.counts, problem.tree.share)
    progress.tell("feasibility", candidate_sets=len(sets.keys), best_lbf=best.lbf, unreachable=best.unmet)
    return Prospect(candidates, sets, best)


def balanced_plan(
    problem: AssignmentProblem, algorithm: str, prospect: Prospect, *, seed: int, lineage: Lineage, progress: Progress
) -> AssignmentPlan:
    """The plan of a balanced flow; also what another planner writes as best effort when no plan can keep the limits."""
    limits, tree, sets, best = problem.limits, problem.tree, prospect.sets, prospect.best
    with progress.stage("filters"):
        given = hand_back(prospect.candidates, "candidates", sets, best.flow)
        placed = lineage.persist(given.mapInArrow(place(tree, limits.max_delay, limits.last_hop), PLACED))
        filters = leaf_filters(problem, placed)
    extra = {
        "candidate_sets": len(sets.keys),
        "best_lbf": best.lbf,
        "unreachable_subscribers": best.unmet,
        "bottleneck_brokers": tree.leaf_ids[best.tight_leaves].tolist(),
    }
    return finish(problem, algorithm, placed, filters, seed=seed, lineage=lineage, progress=progress, extra=extra, best=best)
