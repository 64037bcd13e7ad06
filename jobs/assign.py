"""Plan which broker serves each subscriber, with which filters."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from pyspark.sql import SparkSession

from jobs.frame import open_lineage, open_plan, open_tables, run_job
from pubsub_graph.assignment import (
    AssignmentPlan,
    AssignmentProblem,
    BalanceParams,
    ClosestParams,
    GreedyParams,
    Limits,
    SlpPaperParams,
    SlpParams,
    balance,
    closest,
    closest_no_balance,
    gr,
    gr_no_latency,
    gr_star,
    make_problem,
    slp,
    slp_paper,
)  # fmt: skip
from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.tables import ASSIGNMENT, BROKERS, EVENTS, SUBSCRIBERS

DESCRIPTION = "Plan which broker serves each subscriber, with which filters."
GREEDY = {"gr": gr, "gr-star": gr_star, "gr-no-latency": gr_no_latency}
CLOSEST = {"closest": closest, "closest-no-balance": closest_no_balance}
ALGORITHMS = [*GREEDY, *CLOSEST, "balance", "slp", "slp-paper"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    default = Limits()
    parser.add_argument("--input", help="folder with brokers, subscribers and, if you have them, events")
    parser.add_argument("--out", help="folder for assignment, filters and metrics.json")
    parser.add_argument("--algorithm", required=True, choices=ALGORITHMS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preset", help="settings by name (set1, multilevel-tight, ...) or a .json file; arguments win over it")
    parser.add_argument("--alpha", type=int, default=default.alpha, help="most rectangles of a filter")
    parser.add_argument("--max-delay", type=float, default=default.max_delay, help="limit where max_latency is null")
    parser.add_argument("--lbf", type=float, default=default.lbf, help="desired load balance factor")
    parser.add_argument("--lbf-max", type=float, default=default.lbf_max, help="largest load balance factor")
    parser.add_argument("--latency", choices=["path", "last-hop"], default=default.latency, help="what the limit bounds")
    search = SlpParams()
    parser.add_argument("--effort", type=float, help="slp: length of the local search, in millions of moves (30 on one level, 10 on a tree)")
    parser.add_argument("--tries", type=int, default=search.tries, help="slp: searches side by side, the best is kept")
    parser.add_argument("--time-limit", type=float, help="slp: seconds after which the best plan so far is taken")
    parser.add_argument("--start", help="slp: a plan to start from (with --tables: its schema)")
    parser.add_argument("--sample", type=int, default=search.sample, help="slp: size of the coreset's sample, in rows a leaf")
    parser.add_argument("--super-subscriptions", type=int, default=search.super_subscriptions, help="slp, slp-paper: the paper's k, a broker")
    parser.add_argument("--gamma", type=float, default=search.gamma, help="slp, slp-paper: share of a subtree's leaves that must be in time")
    parser.add_argument("--epsilon", type=float, default=SlpPaperParams().epsilon, help="slp-paper: expansion that makes filters of a sample cover all")
    parser.add_argument("--sharded", action="store_true", help="greedy in shards, for what one task cannot hold")
    parser.add_argument("--shard-rows", type=int, default=GreedyParams().shard_rows)


def run(args: argparse.Namespace, spark: SparkSession, progress: Progress) -> int:
    limits = Limits(args.alpha, args.max_delay, args.lbf, args.lbf_max, args.latency)
    planner = _planner(args, spark)
    source, out = open_tables(args, spark, args.input), open_tables(args, spark, args.out)
    out.check_writable()
    with progress.stage("checking the input"):
        problem = make_problem(
            source.read("brokers", BROKERS), source.read("subscribers", SUBSCRIBERS), limits, source.read_if_there("events", EVENTS)
        )
    progress.tell("planning", subscribers=problem.count, leaves=len(problem.tree.leaves), algorithm=args.algorithm)
    with open_lineage(spark) as lineage:
        plan = planner(problem, lineage, progress)
        with progress.stage("writing"):
            out.write({"assignment": plan.assignment, "filters": plan.filters}, plan.metrics)
    progress.close()
    _tell(plan, out.place)
    return 0 if plan.feasible else 3


def _planner(args: argparse.Namespace, spark: SparkSession) -> Callable[[AssignmentProblem, Lineage, Progress], AssignmentPlan]:
    if args.algorithm in GREEDY:
        greedy = GreedyParams(args.seed, args.sharded, args.shard_rows)
        return lambda problem, lineage, progress: GREEDY[args.algorithm](problem, greedy, lineage, progress)
    if args.sharded:
        raise BadInput(f"--sharded is for {', '.join(GREEDY)}; {args.algorithm} is sharded as it is")
    if args.algorithm in CLOSEST:
        return lambda problem, lineage, progress: CLOSEST[args.algorithm](problem, ClosestParams(args.seed), lineage, progress)
    if args.algorithm == "slp":
        search = SlpParams(
            args.seed, args.effort, args.tries, args.sample, args.super_subscriptions, args.gamma, args.time_limit
        )
        previous = open_plan(args, spark, args.start).read("assignment", ASSIGNMENT) if args.start else None
        return lambda problem, lineage, progress: slp(problem, search, lineage, progress, previous)
    if args.algorithm == "slp-paper":
        printed = SlpPaperParams(args.seed, args.epsilon, args.gamma, super_subscriptions=args.super_subscriptions)
        return lambda problem, lineage, progress: slp_paper(problem, printed, lineage, progress)
    return lambda problem, lineage, progress: balance(problem, BalanceParams(args.seed), lineage, progress)


def _tell(plan: AssignmentPlan, place: str) -> None:
    m = plan.metrics
    print(
        f"{m['algorithm']}: bandwidth {m['bandwidth']:.4g}, rms delay {m['rms_delay']:.4f}, lbf {m['lbf']:.4f}, "
        f"load stdev {m['load_stdev']:.1f}, {'feasible' if plan.feasible else 'NOT feasible'}; written to {place}"
    )
    if plan.advice:
        print(plan.advice, file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    return run_job(sys.modules[__name__], argv)


if __name__ == "__main__":
    main()
