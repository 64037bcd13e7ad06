"""``pubsub-graph JOB ...``"""

from __future__ import annotations

import importlib
import sys

from pubsub_graph import __version__

__all__ = ["main"]

JOBS = {
    "generate": "make a workload of the papers, or a real one",
    "assign": "plan which broker serves each subscriber, with which filters",
    "topics": "plan which nodes link up so that every topic is connected at a low degree",
    "verify": "check a plan against the definitions",
    "compare": "print the measures of several plans side by side",
}


def main() -> int:
    argv = sys.argv[1:]
    if argv[:1] in (["--version"], ["-V"]):
        print(f"pubsub-graph {__version__}")
        return 0
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: pubsub-graph JOB [arguments]; pubsub-graph JOB --help tells more\n")
        print("\n".join(f"  {name:10} {what}" for name, what in JOBS.items()))
        return 0 if argv else 2
    if argv[0] not in JOBS:
        print(f"pubsub-graph: there is no job {argv[0]!r}; there are {', '.join(JOBS)}", file=sys.stderr)
        return 2
    return importlib.import_module(f"jobs.{argv[0]}").main(argv[1:])


if __name__ == "__main__":
    sys.exit(main())
