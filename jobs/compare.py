"""Print the measures of several plans side by side."""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession

from jobs.frame import open_tables, run_job
from pubsub_graph.progress import Progress

DESCRIPTION = "Print the measures of several plans side by side."
COLUMNS = ("algorithm", "feasible", "bandwidth", "gap", "rms_delay", "max_delay", "lbf", "load_stdev")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", action="append", required=True, help="folder of a plan; may be repeated")


def run(args: argparse.Namespace, spark: SparkSession, progress: Progress) -> int:
    rows = [list(COLUMNS) + ["seconds"]]
    for place in args.plan:
        metrics = open_tables(args, spark, place).read_json()
        cells = [metrics.get(name) for name in COLUMNS] + [metrics["seconds"]["total"]]
        rows.append([f"{cell:.4g}" if isinstance(cell, float) else "-" if cell is None else str(cell) for cell in cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def main(argv: list[str] | None = None) -> int:
    return run_job(sys.modules[__name__], argv)


if __name__ == "__main__":
    main()
