"""``pubsub-graph verify``: check a plan against its input."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pyspark.sql import SparkSession

from jobs.frame import open_tables, run_job
from pubsub_graph.errors import BadInput
from pubsub_graph.progress import Progress
from pubsub_graph.tables import ASSIGNMENT, BROKERS, EDGES, EVENTS, FILTERS, INTERESTS, SUBSCRIBERS, Tables
from pubsub_graph.verify import VerificationReport, verify_assignment, verify_topics

DESCRIPTION = "Check a plan against its input: every constraint with its worst slack, and what is violated."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The input and the plan."""
    parser.add_argument("--input", metavar="DIR", help="the input the plan was made for: brokers, subscribers, events; or interests")
    parser.add_argument("--plan", metavar="DIR", help="the plan: assignment, filters; or edges; and metrics.json")


def run(args: argparse.Namespace, spark: SparkSession, progress: Progress) -> int:
    """Print the report; 0 when the plan holds, 3 when it does not."""
    given, plan = open_tables(args, spark, args.input), open_tables(args, spark, args.plan)
    metrics = plan.read_json()
    with progress.stage("verify"):
        report = _verify(given, plan, metrics)
    print(report.render())
    return 0 if report.holds else 3


def _verify(given: Tables, plan: Tables, metrics: dict[str, Any]) -> VerificationReport:
    """By what the plan holds; a catalog schema may hold plans of both decisions, and its metrics are those of the last."""
    edges, assignment = plan.read_if_there("edges", EDGES), plan.read_if_there("assignment", ASSIGNMENT)
    if edges is not None and (assignment is None or "topic_connected" in metrics):
        return verify_topics(given.read("interests", INTERESTS), edges, metrics)
    if assignment is not None:
        return verify_assignment(
            given.read("brokers", BROKERS),
            given.read("subscribers", SUBSCRIBERS),
            assignment,
            plan.read("filters", FILTERS),
            metrics,
            events=given.read_if_there("events", EVENTS),
        )
    raise BadInput(f"there is no table 'edges' and no table 'assignment' in {plan.place}; a plan holds the one or the other")


def main(argv: list[str] | None = None) -> int:
    return run_job(sys.modules[__name__], argv)


if __name__ == "__main__":
    sys.exit(main())
