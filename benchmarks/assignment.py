"""Assignment planners side by side, and against what people would use instead. Prints tables; ratios count, not seconds.

    .venv/bin/python benchmarks/assignment.py quality    # set 1, 100,000 x 100, the six planners on four workloads
    .venv/bin/python benchmarks/assignment.py peers      # closest against cKDTree, balance against the uncompressed flow
    .venv/bin/python benchmarks/assignment.py sharded    # what sharding costs in bandwidth
    .venv/bin/python benchmarks/assignment.py scale      # 1,000,000 subscribers: seconds by stage (--rows for more)
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from scipy.spatial import cKDTree

from pubsub_graph.assignment import (
    AssignmentProblem,
    BalanceParams,
    ClosestParams,
    GreedyParams,
    Limits,
    balance,
    closest,
    closest_no_balance,
    gr,
    gr_no_latency,
    gr_star,
    make_problem,
)  # fmt: skip
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.session import make_session
from pubsub_graph.tables import BROKERS, SUBSCRIBERS, Tables
from pubsub_graph.workloads import WorkloadParams, assignment_workload

PLANNERS: dict[str, Any] = {
    "gr": (gr, GreedyParams()),
    "gr-star": (gr_star, GreedyParams()),
    "gr-no-latency": (gr_no_latency, GreedyParams()),
    "closest": (closest, ClosestParams()),
    "closest-no-balance": (closest_no_balance, ClosestParams()),
    "balance": (balance, BalanceParams()),
}


def stored(spark: SparkSession, params: WorkloadParams, folder: str) -> Tables:
    made = assignment_workload(spark, params)
    tables = Tables(spark, f"{folder}/{params.name}-{params.subscribers}-{params.seed}")
    tables.write({"brokers": made.brokers, "subscribers": made.subscribers}, made.figures, "workload.json")
    return tables


def problem_of(tables: Tables, limits: Limits) -> AssignmentProblem:
    return make_problem(tables.read("brokers", BROKERS), tables.read("subscribers", SUBSCRIBERS), limits)


def metrics_of(problem: AssignmentProblem, planner: Any, params: Any, out: str | None = None) -> dict[str, Any]:
    with Lineage() as lineage:
        start = time.perf_counter()
        plan = planner(problem, params, lineage, Progress(quiet=True))
        if out:
            Tables(problem.subscribers.sparkSession, out).write({"assignment": plan.assignment, "filters": plan.filters}, plan.metrics)
        return {**plan.metrics, "wall": time.perf_counter() - start}


def show(header: list[str], rows: list[list[object]]) -> None:
    cells = [header] + [[f"{x:.4g}" if isinstance(x, float) else str(x) for x in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), flush=True)


def quality(spark: SparkSession, folder: str, rows: int, seed: int) -> None:
    table: list[list[object]] = []
    for name in ("set1-ll", "set1-hl", "set1-lh", "set1-hh"):
        problem = problem_of(stored(spark, WorkloadParams(name, rows, 100, seed=seed), folder), Limits())
        for algorithm, (planner, params) in PLANNERS.items():
            m = metrics_of(problem, planner, params)
            table.append([name, algorithm, m["bandwidth"], m["rms_delay"], m["load_stdev"], m["lbf"], m["feasible"]])
    show(["workload", "algorithm", "bandwidth", "rms delay", "load stdev", "lbf", "feasible"], table)


def peers(spark: SparkSession, folder: str, rows: int, seed: int) -> None:
    problem = problem_of(stored(spark, WorkloadParams("set1-hl", rows, 100, seed=seed), folder), Limits())
    for _ in range(2):  # the first run warms Spark's workers and numba's cache
        ours = metrics_of(problem, closest_no_balance, ClosestParams(), f"{folder}/out-closest")
    start = time.perf_counter()
    local = problem.subscribers.toPandas()
    loaded = time.perf_counter() - start
    start = time.perf_counter()
    cKDTree(problem.tree.location[problem.tree.leaves]).query(np.stack(local["location"].to_list()))
    alone = time.perf_counter() - start
    table: list[list[object]] = [["closest-no-balance", rows, ours["wall"], "plan, filters, measures, written"]]
    table.append(["cKDTree, one process", rows, alone, "nearest broker only, rows in memory"])
    table.append(["cKDTree with reading the rows", rows, alone + loaded, "nearest broker only"])
    small = problem_of(stored(spark, WorkloadParams("set1-hl", 10_000, 20, seed=seed), folder), Limits())
    for _ in range(2):
        mine = metrics_of(small, balance, BalanceParams())
    start = time.perf_counter()
    lbf = uncompressed_balance(small)
    theirs = time.perf_counter() - start
    flow = mine["seconds"]["flow"]
    table.append(["balance, the flow alone", 10_000, flow, f"lbf {mine['lbf']:.4f}"])
    table.append(["balance, the whole plan", 10_000, mine["wall"], f"lbf {mine['lbf']:.4f}"])
    table.append(["max-flow, a node a subscriber", 10_000, theirs, f"lbf {lbf:.4f}, {theirs / max(flow, 1e-3):.0f} x our flow"])
    show(["what", "subscribers", "seconds", "note"], table)


def uncompressed_balance(problem: AssignmentProblem) -> float:
    """The usual way: binary search on the load with a flow on subscribers x brokers."""
    from udfs.kernels.latency import reach

    local = problem.subscribers.toPandas()
    within = reach(np.stack(local["location"].to_list()), np.full(len(local), np.nan), problem.tree, problem.limits.max_delay, False)
    rows, leaves = within.allowed.shape
    row, column = np.nonzero(within.allowed)
    tail = np.concatenate([np.full(rows, rows + leaves), row, np.arange(rows, rows + leaves)])
    head = np.concatenate([np.arange(rows), column + rows, np.full(leaves, rows + leaves + 1)])
    low, high = 0, rows
    while high - low > 1:
        middle = (low + high) // 2
        limit = np.concatenate([np.ones(rows + len(row)), np.full(leaves, middle)]).astype(np.int32)
        graph = csr_array((limit, (tail, head)), shape=(rows + leaves + 2,) * 2)
        low, high = (low, middle) if maximum_flow(graph, rows + leaves, rows + leaves + 1).flow_value == rows else (middle, high)
    return high * leaves / rows


def sharded(spark: SparkSession, folder: str, rows: int, seed: int) -> None:
    table: list[list[object]] = []
    for name in ("set1-ll", "set1-hl", "set1-lh", "set1-hh"):
        problem = problem_of(stored(spark, WorkloadParams(name, rows, 100, seed=seed), folder), Limits())
        exact = metrics_of(problem, gr_star, GreedyParams())
        for part in (4, 16):
            m = metrics_of(problem, gr_star, GreedyParams(sharded=True, shard_rows=rows // part))
            table.append([name, part, exact["bandwidth"], m["bandwidth"], m["bandwidth"] / exact["bandwidth"], m["lbf"], m["feasible"]])
    show(["workload", "shards", "exact", "sharded", "ratio", "lbf", "feasible"], table)


def scale(spark: SparkSession, folder: str, rows: int, seed: int) -> None:
    tables = stored(spark, WorkloadParams("set1-hl", rows, 100, seed=seed), folder)
    table: list[list[object]] = []
    for algorithm in ("gr-star", "balance", "closest"):
        start = time.perf_counter()
        problem = problem_of(tables, Limits())
        checked = time.perf_counter() - start
        m = metrics_of(problem, *PLANNERS[algorithm], f"{folder}/out-{algorithm}")
        table.append([algorithm, rows, checked, m.get("kernel_seconds", "-"), m["wall"], checked + m["wall"]])
    show(["algorithm", "subscribers", "input check", "kernel", "plan and write", "total"], table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quality", "peers", "sharded", "scale"])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    usual = {"quality": 100_000, "peers": 1_000_000, "sharded": 400_000, "scale": 1_000_000}
    settings = {"spark.driver.maxResultSize": "0"} if given.what == "peers" else {}
    with tempfile.TemporaryDirectory() as place:
        globals()[given.what](make_session("benchmark", "local[2]", settings), place, given.rows or usual[given.what], given.seed)
