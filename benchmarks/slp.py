"""SLP against Gr* and the printed SLP, its bound, its sensitivity, and how its time grows. Prints tables; ratios count.

    .venv/bin/python benchmarks/slp.py quality            # sets 1 to 3, 100,000 x 100, three seeds; --paper adds slp-paper
    .venv/bin/python benchmarks/slp.py levels             # 200 brokers, out-degree 15, tight and loose
    .venv/bin/python benchmarks/slp.py defeats            # the workload that defeats Gr*
    .venv/bin/python benchmarks/slp.py alpha              # filter complexity 1 to 6, as Fig. 10
    .venv/bin/python benchmarks/slp.py sensitivity        # |S_b|, k, gamma, effort
    .venv/bin/python benchmarks/slp.py scale              # whole commands, 100,000 and 1,000,000, seconds by stage

Every plan is checked by the verifier; a row that does not hold says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from table import Table

from pubsub_graph.assignment import (
    AssignmentProblem,
    GreedyParams,
    Limits,
    SlpPaperParams,
    SlpParams,
    gr,
    gr_star,
    make_problem,
    slp,
    slp_paper,
)  # fmt: skip
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.session import make_session
from pubsub_graph.tables import BROKERS, SUBSCRIBERS, Tables
from pubsub_graph.verify import verify_assignment
from pubsub_graph.workloads import WorkloadParams, assignment_workload

COMMAND = Path(sys.executable).parent / "pubsub-graph"
SET_1 = ("set1-ll", "set1-hl", "set1-lh", "set1-hh")
LIMITS = {"set1": Limits(), "set2": Limits(lbf=2.3, lbf_max=2.5), "set3": Limits(lbf=1.3, lbf_max=1.5)}
TIGHT, LOOSE = Limits(max_delay=0.2, lbf=7, lbf_max=8), Limits(max_delay=1.0, lbf=1.3, lbf_max=1.5)
# Tables I and II of the paper: SLP1 and Gr* over the fractional solution
PRINTED = {
    "set1-ll": (7.12 / 3.09, 6.53 / 3.09), "set1-hl": (1.86 / 1.2, 1.53 / 1.2), "set1-lh": (8.48 / 3.81, 7.79 / 3.81),
    "set1-hh": (2.13 / 1.29, 2.39 / 1.29), "set2": (13.7 / 10.1, 8.5 / 10.1), "set3": (5.4 / 2.48, 5.3 / 2.48),
}  # fmt: skip


def problem_of(spark: SparkSession, folder: str, params: WorkloadParams, limits: Limits) -> AssignmentProblem:
    place = f"{folder}/{params.name}-{params.subscribers}-{params.brokers}-{params.out_degree}-{params.max_delay}-{params.seed}"
    tables = Tables(spark, place)
    if not Path(place).is_dir():
        made = assignment_workload(spark, params)
        tables.write({"brokers": made.brokers, "subscribers": made.subscribers}, made.figures, "workload.json")
    problem = make_problem(tables.read("brokers", BROKERS), tables.read("subscribers", SUBSCRIBERS), limits)
    return problem


def planned(problem: AssignmentProblem, brokers_from: str, planner: Any, params: Any) -> dict[str, Any]:
    """Metrics of a plan, with its wall time and whether the verifier agrees."""
    spark = problem.subscribers.sparkSession
    with Lineage() as lineage:
        start = time.perf_counter()
        plan = planner(problem, params, lineage, Progress(quiet=True))
        plan.assignment.write.mode("overwrite").parquet(f"{brokers_from}/plan/assignment")
        plan.filters.write.mode("overwrite").parquet(f"{brokers_from}/plan/filters")
        wall = time.perf_counter() - start
    brokers = spark.createDataFrame(
        [
            (int(problem.tree.broker_id[i]), int(problem.tree.broker_id[p]) if p >= 0 else None, problem.tree.location[i].tolist(), None)
            for i, p in enumerate(problem.tree.parent)
        ],
        BROKERS,
    )
    written = {name: spark.read.parquet(f"{brokers_from}/plan/{name}") for name in ("assignment", "filters")}
    report = verify_assignment(brokers, problem.subscribers, written["assignment"], written["filters"], plan.metrics)
    return {**plan.metrics, "wall": wall, "holds": report.holds}


def state(m: dict[str, Any]) -> str:
    return ("feasible" if m["feasible"] else "NOT feasible") + ("" if m["holds"] == m["feasible"] else ", VERIFIER DISAGREES")


def quality(spark: SparkSession, folder: str, given: argparse.Namespace) -> None:
    names = given.workloads or [*SET_1, "set2", "set3"]
    table = Table("workload", "seed", "algorithm", "bandwidth", "to gr-star", "to bound", "printed", "lbf", "seconds", "state")
    ratios: dict[str, list[float]] = {}
    for name in names:
        for seed in given.seeds:
            problem = problem_of(spark, folder, WorkloadParams(name, given.rows, 100, seed=seed), LIMITS[name.split("-")[0]])
            greedy = planned(problem, folder, gr_star, GreedyParams())
            ours = planned(problem, folder, slp, SlpParams(seed=seed, effort=given.effort))
            runs = [("gr-star", greedy, PRINTED[name][1]), ("slp", ours, PRINTED[name][0])]
            if given.paper:
                runs.append(("slp-paper", planned(problem, folder, slp_paper, SlpPaperParams(seed=seed)), PRINTED[name][0]))
            for algorithm, m, printed in runs:
                to_greedy = m["bandwidth"] / greedy["bandwidth"]
                table.row(name, seed, algorithm, m["bandwidth"], to_greedy, m["bandwidth"] / ours["fractional_bound"], printed, m["lbf"], m["wall"], state(m))
            ratios.setdefault(name.split("-")[0], []).append(ours["bandwidth"] / greedy["bandwidth"])
    for name, values in ratios.items():
        print(f"{name}: slp / gr-star mean {np.mean(values):.3f}, largest {max(values):.3f} of {len(values)}", flush=True)


def levels(spark: SparkSession, folder: str, given: argparse.Namespace) -> None:
    table = Table("setting", "workload", "algorithm", "bandwidth", "to gr-star", "to bound", "lbf", "seconds", "state")
    for setting, limits in (("tight", TIGHT), ("loose", LOOSE)):
        for name in given.workloads or SET_1:
            for seed in given.seeds[:1]:
                made = WorkloadParams(name, given.rows, 200, out_degree=15, max_delay=limits.max_delay, seed=seed)
                problem = problem_of(spark, folder, made, limits)
                greedy = planned(problem, folder, gr_star, GreedyParams())
                ours = planned(problem, folder, slp, SlpParams(seed=seed))
                runs = [("gr-star", greedy), ("slp", ours)]
                if given.paper:
                    runs.append(("slp-paper", planned(problem, folder, slp_paper, SlpPaperParams(seed=seed))))
                for algorithm, m in runs:
                    to_greedy, to_bound = m["bandwidth"] / greedy["bandwidth"], m["bandwidth"] / ours["fractional_bound"]
                    table.row(setting, name, algorithm, m["bandwidth"], to_greedy, to_bound, m["lbf"], m["wall"], state(m))


def defeats(spark: SparkSession, folder: str, given: argparse.Namespace) -> None:
    table = Table("brokers", "lbf", "gr-star", "slp", "bound", "gr-star/slp", "state")
    for brokers in (3, 10, 15):
        for lbf in (1.0, 1.2):
            problem = problem_of(spark, folder, WorkloadParams("defeats-gr-star", 12_000, brokers), Limits(lbf=lbf, lbf_max=lbf))
            greedy = planned(problem, folder, gr_star, GreedyParams())
            ours = planned(problem, folder, slp, SlpParams())
            table.row(brokers, lbf, greedy["bandwidth"], ours["bandwidth"], ours["fractional_bound"], greedy["bandwidth"] / ours["bandwidth"], state(ours))


def alpha(spark: SparkSession, folder: str, given: argparse.Namespace) -> None:
    table = Table("alpha", "gr", "gr-star", "slp", "slp/gr-star", "to bound", "seconds", "state")
    for most in range(1, 7):
        problem = problem_of(spark, folder, WorkloadParams("set1-hh", given.rows, 100, seed=given.seeds[0]), Limits(alpha=most))
        online, greedy = (planned(problem, folder, planner, GreedyParams()) for planner in (gr, gr_star))
        ours = planned(problem, folder, slp, SlpParams(seed=given.seeds[0]))
        ratio, to_bound = ours["bandwidth"] / greedy["bandwidth"], ours["bandwidth"] / ours["fractional_bound"]
        table.row(most, online["bandwidth"], greedy["bandwidth"], ours["bandwidth"], ratio, to_bound, ours["wall"], state(ours))


def sensitivity(spark: SparkSession, folder: str, given: argparse.Namespace) -> None:
    seed = given.seeds[0]
    flat = problem_of(spark, folder, WorkloadParams("set1-hh", given.rows, 100, seed=seed), Limits())
    deep = problem_of(spark, folder, WorkloadParams("set1-hh", given.rows, 200, out_degree=15, max_delay=1.0, seed=seed), LOOSE)
    cases: list[tuple[str, object, AssignmentProblem, SlpParams]] = []
    for rows in (10, 40, 160, 240):
        cases.append(("sample rows a leaf", rows, flat, SlpParams(seed=seed, sample=rows, effort=3)))
    for k in (1, 2, 5, 10):
        cases.append(("k a broker", k, flat, SlpParams(seed=seed, super_subscriptions=k, effort=3)))
    for gamma in (0.1, 0.5, 1.0):
        cases.append(("gamma", gamma, deep, SlpParams(seed=seed, gamma=gamma, effort=3)))
    for effort in (0.0, 1.0, 3.0, 10.0, 30.0):
        cases.append(("effort", effort, flat, SlpParams(seed=seed, effort=effort)))
    table = Table("what             ", "value", "bandwidth", "bound", "lbf", "seconds", "state")
    for what, value, problem, params in cases:
        m = planned(problem, folder, slp, params)
        table.row(what, value, m["bandwidth"], m["fractional_bound"], m["lbf"], m["wall"], state(m))


def scale(spark: SparkSession, folder: str, given: argparse.Namespace) -> None:
    spark.stop()  # the commands start Spark themselves
    table = Table("tree", "subscribers", "algorithm", "command s", "bandwidth", "verified", "stages")
    for tree, options, limits in (
        ("one-level", ["--brokers", "100"], []),
        ("multi-level", ["--brokers", "200", "--out-degree", "15", "--max-delay", "1.0"], ["--preset", "multilevel-loose"]),
    ):
        for rows in (100_000, 1_000_000):
            place = f"{folder}/{tree}-{rows}"
            run([COMMAND, "generate", "--workload", "set1-hl", "--subscribers", str(rows), "--out", place, "--seed", "1", *options, "--quiet"])
            for algorithm in ("gr-star", "slp"):
                start = time.perf_counter()
                run([COMMAND, "assign", "--input", place, "--out", f"{place}-{algorithm}", "--algorithm", algorithm, "--seed", "1", *limits,
                     "--master", "local[2]", "--conf", "spark.driver.maxResultSize=64m", "--quiet"])  # fmt: skip
                wall = time.perf_counter() - start
                holds = run([COMMAND, "verify", "--input", place, "--plan", f"{place}-{algorithm}", "--master", "local[2]", "--quiet"]) == 0
                metrics = json.loads(Path(f"{place}-{algorithm}/metrics.json").read_text())
                stages = ", ".join(f"{name} {seconds:.0f}" for name, seconds in metrics["seconds"].items() if seconds >= 0.5 and name != "total")
                table.row(tree, rows, algorithm, wall, metrics["bandwidth"], holds, stages)


def run(command: Iterable[object]) -> int:
    """The exit status: 0, or 3 where a plan is not feasible."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr[-2000:])
    return done.returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quality", "levels", "defeats", "alpha", "sensitivity", "scale"])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--workloads", nargs="+", help="only these")
    parser.add_argument("--effort", type=float, default=SlpParams().effort, help="quality: millions of moves")
    parser.add_argument("--paper", action="store_true", help="slp-paper too (minutes a plan)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        session = make_session("benchmark", "local[2]", {"spark.driver.maxResultSize": "64m"})
        globals()[arguments.what](session, temporary, arguments)
