"""Make a workload: brokers, subscribers, and events when asked for; or the interests of nodes in topics."""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession

from jobs.frame import open_tables, run_job
from pubsub_graph.progress import Progress
from pubsub_graph.tables import WORKLOAD_FILE
from pubsub_graph.workloads import TOPIC_WORKLOADS, WORKLOADS, TopicWorkloadParams, WorkloadParams, assignment_workload, topics_workload

DESCRIPTION = "Make a workload: brokers, subscribers, and events when asked for; or, by a name topics-..., the interests of nodes in topics."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workload", required=True, help=", ".join([*WORKLOADS, *TOPIC_WORKLOADS]))
    parser.add_argument("--out", help="folder to write to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subscribers", type=int, default=100_000)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--out-degree", type=int, default=0, help="most children of a broker; 0: all hang on the publisher")
    parser.add_argument("--broker-distribution", type=int, default=2, help="set 1: 1, 2 or 3, as in Fig. 19")
    parser.add_argument("--max-delay", type=float, default=0.3, help="the delay for which brokers are placed")
    parser.add_argument("--alpha", type=int, default=3, help="defeats-gr-star: the filter complexity it is built for")
    parser.add_argument("--events", type=int, default=0, help="size of an event sample to add")
    topics = parser.add_argument_group("workloads of topics")
    topics.add_argument("--nodes", type=int, default=1000, help="nodes; topics-lemma8 has twice its topics less one")
    topics.add_argument("--topics", type=int, default=200, help="topics; a power of two for topics-lemma8")
    topics.add_argument("--subscription-size", type=float, default=50.0, help="mean topics a node; not for topics-lemma8 and topics-sparse-bulk")
    topics.add_argument("--bulk-share", type=float, default=0.01, help="topics-sparse-bulk: share of nodes that are bulk subscribers")
    topics.add_argument("--bulk-size", type=int, default=500, help="topics-sparse-bulk: topics of a bulk subscriber")
    topics.add_argument("--light-size", type=float, default=5.0, help="topics-sparse-bulk: mean topics of the others")


def run(args: argparse.Namespace, spark: SparkSession, progress: Progress) -> int:
    return (_topics if args.workload.startswith("topics-") else _assignment)(args, spark, progress)


def _topics(args: argparse.Namespace, spark: SparkSession, progress: Progress) -> int:
    params = TopicWorkloadParams(
        args.workload, args.nodes, args.topics, args.subscription_size, args.bulk_share, args.bulk_size, args.light_size, args.seed
    )
    out = open_tables(args, spark, args.out)
    out.check_writable()
    workload = topics_workload(spark, params)
    with progress.stage("writing"):
        out.write({"interests": workload.interests}, workload.figures, WORKLOAD_FILE)
    progress.close()
    print(f"{params.name}: {workload.figures['nodes']:,} nodes, {workload.figures['topics']:,} topics in {out.place}")
    return 0


def _assignment(args: argparse.Namespace, spark: SparkSession, progress: Progress) -> int:
    params = WorkloadParams(
        args.workload, args.subscribers, args.brokers, args.out_degree, args.broker_distribution,
        args.alpha, args.max_delay, args.events, args.seed,
    )  # fmt: skip
    out = open_tables(args, spark, args.out)
    out.check_writable()
    with progress.stage("brokers"):
        workload = assignment_workload(spark, params)
    tables = {"brokers": workload.brokers, "subscribers": workload.subscribers}
    if workload.events is not None:
        tables["events"] = workload.events
    with progress.stage("writing"):
        out.write(tables, workload.figures, WORKLOAD_FILE)
    progress.close()
    figures = workload.figures
    print(f"{params.name}: {params.subscribers:,} subscribers, {figures['brokers']} brokers ({figures['leaf_brokers']} leaves) in {out.place}")
    return 0


def main(argv: list[str] | None = None) -> int:
    return run_job(sys.modules[__name__], argv)


if __name__ == "__main__":
    main()
