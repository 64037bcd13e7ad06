"""What every job shares: arguments, presets, the session, exit statuses, and errors as messages."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import ModuleType

from pyspark.sql import SparkSession

from pubsub_graph.errors import BadInput, PubsubGraphError
from pubsub_graph.lineage import Lineage
from pubsub_graph.progress import Progress
from pubsub_graph.session import make_session
from pubsub_graph.tables import Tables

__all__ = ["open_lineage", "open_plan", "open_tables", "preset", "run_job"]

PRESETS = (Path(__file__).parent / "presets", Path(__file__).parent.parent / "conf" / "presets")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):  # type: ignore[no-untyped-def]
        raise BadInput(f"{message}\n{self.format_usage().strip()}")


def run_job(module: ModuleType, argv: list[str] | None = None) -> int:
    """Run a job module: 0 done, 2 the input or an argument is wrong, 3 no feasible plan, 1 a fault of ours or of Spark's.

    Without ``argv`` (a script or a wheel task) a status other than 0 is raised, so that a scheduler sees it.
    """
    status = _run(module, sys.argv[1:] if argv is None else argv)
    if argv is None and status:
        raise SystemExit(status)
    return status


def _run(module: ModuleType, argv: list[str]) -> int:
    name = module.__name__.rsplit(".", 1)[-1] if module.__name__ != "__main__" else Path(module.__file__ or "job").stem
    parser = _Parser(prog=f"pubsub-graph {name}", description=module.DESCRIPTION)
    common = parser.add_argument_group("session and tables")
    common.add_argument("--master", help="Spark master (default: local Spark with every core, or what spark-submit chose)")
    common.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting; may be repeated")
    common.add_argument("--format", default="parquet", help="Spark source of tables in folders (default: parquet)")
    common.add_argument("--tables", metavar="CATALOG.SCHEMA", help="read and write catalog tables instead of folders")
    common.add_argument("--quiet", action="store_true", help="no progress")
    module.add_arguments(parser)
    progress = None
    try:
        if any(action.dest == "preset" for action in parser._actions):
            known, _ = parser.parse_known_args(argv)
            if known.preset:
                parser.set_defaults(**preset(known.preset))
        args = parser.parse_args(argv)
        settings = dict(_setting(text) for text in args.conf)
        progress = Progress(quiet=args.quiet)
        with progress.stage("session"):
            spark = make_session(f"pubsub-graph {name}", args.master, settings)
        return int(module.run(args, spark, progress))
    except PubsubGraphError as error:
        if progress:
            progress.close()
        print(f"pubsub-graph {name}: {error}", file=sys.stderr)
        return error.exit_status
    finally:
        if progress:
            progress.close()


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"--conf {text!r} is not KEY=VALUE")
    return key, value


def preset(name: str) -> dict[str, object]:
    """The settings of a preset by name, or of a JSON file by path."""
    places = [Path(name)] if name.endswith(".json") else [folder / f"{name}.json" for folder in PRESETS]
    for place in places:
        if place.is_file():
            try:
                return json.loads(place.read_text())
            except json.JSONDecodeError as error:
                raise BadInput(f"preset {place} is not JSON: {error}") from error
    known = sorted({path.stem for folder in PRESETS if folder.is_dir() for path in folder.glob("*.json")})
    raise BadInput(f"there is no preset {name!r}; there are {', '.join(known)}, or name a .json file")


def open_tables(args: argparse.Namespace, spark: SparkSession, place: str | None) -> Tables:
    """The tables at ``place``, or those of the catalog schema when ``--tables`` is given."""
    if args.tables:
        return Tables(spark, args.tables, args.format, catalog=True)
    if not place:
        raise BadInput("name a folder (--input, --out, --plan), or a catalog schema with --tables")
    return Tables(spark, place, args.format)


def open_lineage(spark: SparkSession) -> Lineage:
    """What rounds keep survives a lost executor where ``spark.checkpoint.dir`` names shared storage."""
    return Lineage("reliable" if spark.conf.get("spark.checkpoint.dir", None) else "local")


def open_plan(args: argparse.Namespace, spark: SparkSession, place: str) -> Tables:
    """An earlier plan: a folder, or a catalog schema when ``--tables`` is given."""
    return Tables(spark, place, args.format, catalog=bool(args.tables))
