"""Plan which nodes link up so that every topic is connected at a low degree."""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession

from jobs.frame import open_lineage, open_plan, open_tables, run_job
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.tables import EDGES, INTERESTS
from pubsub_graph.topics import (
    DivideParams,
    RepairParams,
    RingParams,
    ShardedParams,
    TopicsPlan,
    TopicsProblem,
    dcb_m,
    dcbr_m,
    gm_m,
    make_topics_problem,
    naive,
    repair,
    ring,
    sharded,
)  # fmt: skip

DESCRIPTION = "Plan which nodes link up so that every topic is connected at a low degree."
WHOLE = {"gm-m": gm_m, "dcb-m": dcb_m, "dcbr-m": dcbr_m, "naive": naive}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", help="folder with interests")
    parser.add_argument("--out", help="folder for edges and metrics.json")
    parser.add_argument("--algorithm", choices=[*WHOLE, "ring", "sharded"], default="sharded")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bulk-share", type=float, default=0.2, help="most nodes that count as bulk subscribers")
    parser.add_argument("--coverage", type=int, help="representatives of a topic in a partition (dcbr-m: 3, sharded: 6)")
    parser.add_argument("--partitions", type=int, help="of the nodes (default: chosen by --least; sharded: 2,000 nodes each)")
    parser.add_argument("--least", choices=["time", "pn-ratio"], default="time", help="what the number of partitions is chosen for")
    parser.add_argument("--improve", type=float, default=0.0, metavar="SECONDS", help="then ruin and recreate for so long; never worse")
    parser.add_argument("--previous", metavar="PLAN", help="a plan to repair (with --tables: its schema): few links change; no --algorithm then")


def run(args: argparse.Namespace, spark: SparkSession, progress: Progress) -> int:
    params = _params(args)
    source, out = open_tables(args, spark, args.input), open_tables(args, spark, args.out)
    out.check_writable()
    with progress.stage("checking the input"):
        problem = make_topics_problem(source.read("interests", INTERESTS))
    progress.tell("planning", interests=problem.rows, nodes=f"about {problem.nodes:,}", topics=f"about {problem.topics:,}")
    with open_lineage(spark) as lineage:
        plan = _plan(args, spark, problem, params, lineage, progress)
        with progress.stage("writing"):
            out.write({"edges": plan.edges}, plan.metrics)
    progress.close()
    _tell(plan, out.place)
    return 0 if plan.feasible else 3


def _params(args: argparse.Namespace) -> DivideParams | RepairParams | RingParams | ShardedParams:
    if args.previous:
        return RepairParams(args.seed, improve=args.improve)
    if args.algorithm == "ring":
        return RingParams(args.seed, args.improve)
    if args.algorithm == "sharded":
        return ShardedParams(args.seed, args.partitions, args.coverage or ShardedParams().coverage, args.bulk_share, args.improve)
    return DivideParams(args.seed, args.bulk_share, args.coverage or DivideParams().coverage, args.partitions, args.least, args.improve)


def _plan(
    args: argparse.Namespace,
    spark: SparkSession,
    problem: TopicsProblem,
    params: DivideParams | RepairParams | RingParams | ShardedParams,
    lineage: Lineage,
    progress: Progress,
) -> TopicsPlan:
    if isinstance(params, RepairParams):
        given = open_plan(args, spark, args.previous)
        edges, metrics = given.read("edges", EDGES), given.read_json()
        scratch = metrics.get("scratch_max_degree") or metrics.get("max_degree")
        return repair(problem, params, lineage, progress, edges, scratch)
    if isinstance(params, RingParams):
        return ring(problem, params, lineage, progress)
    if isinstance(params, ShardedParams):
        return sharded(problem, params, lineage, progress)
    return WHOLE[args.algorithm](problem, params, lineage, progress)


def _tell(plan: TopicsPlan, place: str) -> None:
    m = plan.metrics
    connected = "every topic connected" if plan.feasible else f"{m['violations']['topics not connected']:,} topics NOT connected"
    print(
        f"{m['algorithm']}: {m['nodes']:,} nodes, {m['edges']:,} links, max degree {m['max_degree']} (no overlay below "
        f"{m['lower_bound_max_degree']}), average {m['avg_degree']:.3f}, {connected}; written to {place}"
    )
    if m["algorithm"] == "repair":
        print(
            f"links kept {m['links_kept']:,}, removed {m['links_removed']:,}, added {m['links_added']:,}; "
            f"max degree of the last plan from scratch: {m['scratch_max_degree']}"
        )


def main(argv: list[str] | None = None) -> int:
    return run_job(sys.modules[__name__], argv)


if __name__ == "__main__":
    main()
