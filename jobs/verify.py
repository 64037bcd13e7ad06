"""``pubsub-graph verify``: check a plan against its input."""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession

from jobs.frame import open_tables, run_job
from pubsub_graph.progress import Progress
from pubsub_graph.tables import ASSIGNMENT, BROKERS, EVENTS, FILTERS, SUBSCRIBERS
from pubsub_graph.verify import verify_assignment

DESCRIPTION = "Check a plan against its input: every constraint with its worst slack, and what is violated."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The input and the plan."""
    parser.add_argument("--input", metavar="DIR", help="the input the plan was made for: brokers, subscribers, events")
    parser.add_argument("--plan", metavar="DIR", help="the plan: assignment, filters, metrics.json")


def run(args: argparse.Namespace, spark: SparkSession, progress: Progress) -> int:
    """Print the report; 0 when the plan holds, 3 when it does not."""
    given, plan = open_tables(args, spark, args.input), open_tables(args, spark, args.plan)
    metrics = plan.read_json()
    with progress.stage("verify"):
        report = verify_assignment(
            given.read("brokers", BROKERS),
            given.read("subscribers", SUBSCRIBERS),
            plan.read("assignment", ASSIGNMENT),
            plan.read("filters", FILTERS),
            metrics,
            events=given.read_if_there("events", EVENTS),
        )
    print(report.render())
    return 0 if report.holds else 3


def main(argv: list[str] | None = None) -> int:
    return run_job(sys.modules[__name__], argv)


if __name__ == "__main__":
    sys.exit(main())
