"""Gr, Gr* and Gr without latency (section III and "Other Algorithms Tested" of Yu, Agarwal, Yang, ICDE).

The exact algorithms are sequential: one executor task runs the kernel over all subscribers, in the order of their
ids. ``sharded`` is for what one task cannot hold: a sample is planned exactly first, then shards (by a hash of the
id) continue from its filters side by side, each within its share of the capacity, and their filters are merged. Loads
and latencies are kept exactly; what it loses is bandwidth (docs/assignment.md has the measured loss).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pubsub_graph.assignment.plan import AssignmentPlan, finish, nested_filters
from pubsub_graph.assignment.problem import AssignmentProblem
from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.sampling import uniform
from udfs.assignment import OUTCOME, greedy_shards
from udfs.kernels.greedy import Filters

__all__ = ["GreedyParams", "gr", "gr_no_latency", "gr_star"]


@dataclass(frozen=True)
class GreedyParams:
    """``sharded`` splits the work; a shard has about ``shard_rows`` subscribers, and so has the sample planned first."""

    seed: int = 0
    sharded: bool = False
    shard_rows: int = 250_000

    def __post_init__(self) -> None:
        if self.shard_rows < 1:
            raise BadInput(f"shard_rows is {self.shard_rows}; a shard needs at least one subscriber")


def gr(problem: AssignmentProblem, params: GreedyParams, lineage: Lineage, progress: Progress) -> AssignmentPlan:
    """Online greedy: subscribers in the order of their ids."""
    return _plan(problem, "gr", params, lineage, progress, reorder=False, ignore_latency=False)


def gr_star(problem: AssignmentProblem, params: GreedyParams, lineage: Lineage, progress: Progress) -> AssignmentPlan:
    """Offline greedy: fewest open candidates first, ordered anew whenever a broker fills up."""
    return _plan(problem, "gr-star", params, lineage, progress, reorder=True, ignore_latency=False)


def gr_no_latency(problem: AssignmentProblem, params: GreedyParams, lineage: Lineage, progress: Progress) -> AssignmentPlan:
    """Gr with every leaf a candidate; its delays show what ignoring the network costs."""
    return _plan(problem, "gr-no-latency", params, lineage, progress, reorder=False, ignore_latency=True)


def _plan(
    problem: AssignmentProblem,
    algorithm: str,
    params: GreedyParams,
    lineage: Lineage,
    progress: Progress,
    *,
    reorder: bool,
    ignore_latency: bool,
) -> AssignmentPlan:
    def run(rows: DataFrame, start: Filters | None) -> DataFrame:
        limits = problem.limits
        task = greedy_shards(
            problem.tree, alpha=limits.alpha, lbf=limits.lbf, lbf_max=limits.lbf_max, max_delay=limits.max_delay,
            last_hop=limits.last_hop, reorder=reorder, ignore_latency=ignore_latency, start=start,
        )  # fmt: skip
        return lineage.persist(rows.mapInArrow(task, OUTCOME))

    shards = math.ceil(problem.count / params.shard_rows) - 1 if params.sharded else 0
    if shards < 1:
        with progress.stage("greedy"):
            outcome = run(problem.subscribers.coalesce(1), None)
            notes, filters = _notes(outcome), _filters(problem, outcome)
    else:
        drawn = uniform(params.seed, 0, "subscriber_id") < params.shard_rows / problem.count
        with progress.stage("sample"):
            first = run(problem.subscribers.where(drawn).coalesce(1), None)
            notes, start = _notes(first), _filters(problem, first)
        progress.tell("sample planned", rows=sum(note["rows"] for note in notes), shards_left=shards)
        with progress.stage("shards"):
            shard = F.pmod(F.xxhash64(F.lit(params.seed), F.lit(1), "subscriber_id"), F.lit(shards))
            rest = problem.subscribers.where(~drawn).withColumn("shard", shard).repartition(shards, "shard")
            second = run(rest, start)
            outcome = first.unionByName(second)
            notes += _notes(second)
            filters = _filters(problem, outcome)
    placed = outcome.where("subscriber_id is not null")
    extra: dict[str, Any] = {
        "allowed_lbf": max(note["lbf"] for note in notes),
        "shards": len(notes),
        "kernel_seconds": round(sum(note["kernel_seconds"] for note in notes), 3),
    }
    return finish(problem, algorithm, placed, filters, seed=params.seed, lineage=lineage, progress=progress, extra=extra)


def _notes(outcome: DataFrame) -> list[dict[str, Any]]:
    return [json.loads(row["note"]) for row in outcome.where("note is not null").select("note").collect()]


def _filters(problem: AssignmentProblem, outcome: DataFrame) -> Filters:
    """The rectangles of the tasks; with several tasks, merged to alpha a broker and nested anew."""
    rows = outcome.where("node is not null").select("node", "low", "high").collect()
    node = np.array([row["node"] for row in rows], dtype=np.int64)
    low, high = np.array([row["low"] for row in rows]), np.array([row["high"] for row in rows])
    filters = Filters.empty(len(problem.tree.parent), problem.limits.alpha, len(problem.event_low))
    if np.bincount(node).max() > problem.limits.alpha:
        number = np.searchsorted(problem.tree.leaves, node)
        leaf = np.isin(node, problem.tree.leaves)
        return nested_filters(problem, number[leaf], low[leaf], high[leaf])
    for i, box_low, box_high in zip(node, low, high, strict=True):
        filters.low[i, filters.count[i]], filters.high[i, filters.count[i]] = box_low, box_high
        filters.count[i] += 1
    return filters
