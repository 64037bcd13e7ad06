"""Topic-connected overlays beside the printed figures, at the paper's sizes and beyond. Prints tables; ratios count.

    .venv/bin/python benchmarks/topics.py tables            # Tables II to IV: 1,000 nodes, 200 topics, 20 seeds
    .venv/bin/python benchmarks/topics.py figures           # Figs. 4 to 10 as series
    .venv/bin/python benchmarks/topics.py large             # 8,000 nodes x 200 topics: seconds and memory
    .venv/bin/python benchmarks/topics.py sharded           # 100,000 nodes and 100,000 x 10,000 topics; --million for 1,000,000
    .venv/bin/python benchmarks/topics.py bulk              # sparse workloads with bulk nodes
    .venv/bin/python benchmarks/topics.py repair            # 1% of the interests changed at 100,000 nodes
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import functions as F
from table import Table

from pubsub_graph.session import make_session
from udfs.kernels.degree_bound import degree_bound
from udfs.kernels.divide import choose_parts, dcb_m, dcbr_m, naive, ring
from udfs.kernels.merge import Interests, interests_of, merge_greedily
from udfs.kernels.topic_workload import Popular, SparseBulk

COMMAND = Path(sys.executable).parent / "pubsub-graph"
KINDS = ("uniform", "zipf", "exponential")
# Tables II, III, IV: means over 400 runs
PRINTED = {
    "uniform": {"D gm-m": 8.013, "D dcb-m": 10.29, "D dcbr-m": 10.883, "d gm-m": 8.013, "d dcb-m": 8.170, "d dcbr-m": 8.188,
                "T dcb-m": 0.655, "T dcbr-m": 0.112, "|R|/|L|": 0.142},
    "zipf": {"D gm-m": 11.14, "D dcb-m": 16.378, "D dcbr-m": 16.3925, "d gm-m": 6.487, "d dcb-m": 8.064, "d dcbr-m": 8.065,
             "T dcb-m": 0.601, "T dcbr-m": 0.248, "|R|/|L|": 0.0742},
    "exponential": {"D gm-m": 8.4425, "D dcb-m": 10.793, "D dcbr-m": 10.798, "d gm-m": 3.93, "d dcb-m": 4.499, "d dcbr-m": 4.499,
                    "T dcb-m": 0.833, "T dcbr-m": 0.130, "|R|/|L|": 0.0748},
}  # fmt: skip


def made(model: Any, nodes: int) -> tuple[np.ndarray, Interests]:
    ids, _, interests = interests_of(*model.rows(np.arange(nodes)))
    return ids, interests


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def degree(links: np.ndarray, nodes: int) -> tuple[int, float]:
    counted = np.bincount(np.asarray(links).ravel(), minlength=nodes)
    return int(counted.max()), float(counted.mean())


def measured(ids: np.ndarray, interests: Interests, seed: int, *, coverage: int = 3, parts: int | None = None, with_dcb: bool = True) -> dict[str, float]:
    """GM-M, DCB-M and DCBR-M on one instance; the time of DCBR-M includes the choice of p."""
    n, out = interests.nodes, dict[str, float]()
    links, base = timed(lambda: merge_greedily(interests))
    out["D gm-m"], out["d gm-m"], out["T"] = *degree(links, n), base
    p, choosing = timed(lambda: parts or choose_parts(interests, ids, bulk_share=0.2, coverage=coverage, seed=seed, least="time"))
    found, seconds = timed(lambda: dcbr_m(interests, ids, bulk_share=0.2, coverage=coverage, parts=p, seed=seed))
    out["D dcbr-m"], out["d dcbr-m"] = degree(found.links, n)
    out |= {"T dcbr-m": (seconds + choosing) / base, "|R|/|L|": found.representatives / max(1, n - found.bulk), "p": p, "pn": found.pn_ratio}
    if with_dcb:
        found, seconds = timed(lambda: dcb_m(interests, ids, bulk_share=0.2, parts=p, seed=seed))
        out["D dcb-m"], out["d dcb-m"] = degree(found.links, n)
        out["T dcb-m"] = seconds / base
    return out


def tables(given: argparse.Namespace) -> None:
    measured(*made(Popular(0, 200, 50, "zipf"), 200), 0)  # compiles
    table = Table("distribution", "measure  ", "printed", "mean", "min", "max", "variance")
    for kind in KINDS:
        runs = [measured(*made(Popular(seed, 1000, 200, kind), 1000), seed) for seed in range(given.seeds)]
        for name, printed in PRINTED[kind].items():
            values = np.array([run[name] for run in runs])
            table.row(kind, name, printed, float(values.mean()), float(values.min()), float(values.max()), float(values.var()))


def figures(given: argparse.Namespace) -> None:
    seeds = range(given.seeds if given.seeds < 20 else 3)
    names = ("D gm-m", "D dcb-m", "D dcbr-m", "d gm-m", "d dcb-m", "d dcbr-m", "T dcb-m", "T dcbr-m", "|R|/|L|", "p", "pn")
    table = Table("figure", "series      ", "x", *names)

    def series(figure: str, kind: str, x: object, nodes: int, topics: int, size: float = 50.0, **options: Any) -> None:
        runs = [measured(*made(Popular(seed, nodes, topics, kind, size), nodes), seed, **options) for seed in seeds]
        table.row(figure, f"{kind} {topics}", x, *[float(np.mean([run[name] for run in runs])) if name in runs[0] else "-" for name in names])

    for parts in (1, 2, 3, 5, 8, 12, 20, 40, 80, 160, 400, 800):
        series("Fig. 4 p", "uniform", parts, 1000, 200, parts=parts)
    for topics in (500, 1000):
        for coverage in (1, 2, 3, 4):
            series("Fig. 5 λ", "uniform", coverage, 2000, topics, coverage=coverage, with_dcb=False)
    for kind in KINDS:
        for nodes in (1000, 2000, 4000):
            series("Fig. 6 |V|", kind, nodes, nodes, 200)
    for nodes in (1000, 2000, 4000, 8000):
        series("Fig. 7 |V|", "uniform", nodes, nodes, 100, with_dcb=nodes <= 4000)
    for kind in KINDS:
        for topics in (100, 200, 400, 700, 1000):
            series("Fig. 8 |T|", kind, topics, 1000, topics)
    for size in (50, 75, 100, 125, 150):
        series("Fig. 9 |T_v|", "uniform", size, 1000, 400, float(size))
    print("Fig. 10: maximum degree, 100 topics")
    table = Table("distribution", "|V|", "gm-m", "dcbr-m", "ring", "ring/dcbr-m", "d ring")
    for kind in KINDS:
        for nodes in (1000, 2000):
            ids, interests = made(Popular(1, nodes, 100, kind), nodes)
            ours = measured(ids, interests, 1, with_dcb=False)
            most, mean = degree(ring(interests, ids, 1), nodes)
            table.row(kind, nodes, ours["D gm-m"], ours["D dcbr-m"], most, most / ours["D dcbr-m"], mean)
    print("Fig. 2: largest degree of the conquer phase alone, random partitions of all nodes (Algorithm 7), against GM-M's complete overlay")
    table = Table("distribution", "partitions", "naive conquer", "naive all", "gm-m")
    for kind in KINDS:
        ids, interests = made(Popular(1, 1000, 200, kind), 1000)
        best = degree(merge_greedily(interests), 1000)[0]
        for parts in (2, 5, 10, 20):
            found = naive(interests, ids, parts=parts, seed=1)
            table.row(kind, parts, found.conquered_degree, degree(found.links, 1000)[0], best)


def _large(queue: Any, algorithm: str, kind: str) -> None:
    ids, interests = made(Popular(1, 8000, 200, kind), 8000)
    small = made(Popular(0, 200, 50, kind), 200)
    merge_greedily(small[1])
    dcbr_m(small[1], small[0], bulk_share=0.2, coverage=3, parts=2, seed=1)
    choose_parts(small[1], small[0], bulk_share=0.2, coverage=3, seed=1, least="time")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if algorithm == "gm-m":
        links, seconds = timed(lambda: merge_greedily(interests))
    else:
        p, choosing = timed(lambda: choose_parts(interests, ids, bulk_share=0.2, coverage=3, seed=1, least="time"))
        found, seconds = timed(lambda: dcbr_m(interests, ids, bulk_share=0.2, coverage=3, parts=p, seed=1))
        links, seconds = found.links, seconds + choosing
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    queue.put((*degree(links, 8000), seconds, (after - before) / 1024, after / 1024, degree_bound(interests)))


def large(given: argparse.Namespace) -> None:
    table = Table("distribution", "algorithm", "D", "d", "seconds", "MB more", "MB in all", "lower bound")
    for kind in KINDS:
        for algorithm in ("gm-m", "dcbr-m"):
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=_large, args=(queue, algorithm, kind))
            process.start()
            table.row(kind, algorithm, *queue.get())
            process.join()


def run(*command: object) -> float:
    start = time.perf_counter()
    done = subprocess.run([str(COMMAND), *map(str, command)], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr[-3000:])
    return time.perf_counter() - start


LOCAL = ("--master", "local[2]", "--conf", "spark.driver.maxResultSize=64m", "--quiet")


def told(place: str) -> dict[str, Any]:
    return json.loads(Path(f"{place}/metrics.json").read_text())


def sharded(given: argparse.Namespace) -> None:
    table = Table("nodes", "topics", "interests", "command s", "D", "lower bound", "d", "connected", "verify s", "verified", "stages")
    sizes = [(1_000_000, 200)] if given.million else [(100_000, 200), (100_000, 10_000)]
    with tempfile.TemporaryDirectory() as folder:
        for nodes, topics in sizes:
            run("generate", "--workload", "topics-zipf", "--nodes", nodes, "--topics", topics, "--seed", 1, "--out", f"{folder}/input", *LOCAL)
            seconds = run("topics", "--input", f"{folder}/input", "--out", f"{folder}/plan", "--algorithm", "sharded", "--seed", 1, *LOCAL)
            m = told(f"{folder}/plan")
            checking = time.perf_counter()
            done = subprocess.run([str(COMMAND), "verify", "--input", f"{folder}/input", "--plan", f"{folder}/plan", *LOCAL], capture_output=True)
            checking = time.perf_counter() - checking
            stages = ", ".join(f"{name} {s:.0f}" for name, s in m["seconds"].items() if s >= 1 and name != "total")
            table.row(nodes, topics, m["interests"], seconds, m["max_degree"], m["lower_bound_max_degree"], m["avg_degree"],
                      m["topic_connected"], checking, done.returncode == 0, stages)  # fmt: skip


def bulk(given: argparse.Namespace) -> None:
    table = Table("workload                    ", "nodes", "gm-m D", "sharded D", "ratio", "bulk apart above", "gm-m d", "sharded d")
    cases = [("1% want 500 of 1,000, others 5", 0.01, 500, 5.0), ("20% want 100 of 1,000, others 5", 0.2, 100, 5.0)]
    with tempfile.TemporaryDirectory() as folder:
        for name, share, size, light in cases:
            nodes = given.nodes or 8000
            _, interests = made(SparseBulk(1, nodes, 1000, share, size, light), nodes)
            most, mean = degree(merge_greedily(interests), nodes)
            run("generate", "--workload", "topics-sparse-bulk", "--nodes", nodes, "--topics", 1000, "--bulk-share", share, "--bulk-size", size,
                "--light-size", light, "--seed", 1, "--out", f"{folder}/input", *LOCAL)  # fmt: skip
            run("topics", "--input", f"{folder}/input", "--out", f"{folder}/plan", "--algorithm", "sharded", "--seed", 1, *LOCAL)
            m = told(f"{folder}/plan")
            table.row(name, nodes, most, m["max_degree"], m["max_degree"] / most, m["bulk_above"], mean, m["avg_degree"])


def repair(given: argparse.Namespace) -> None:
    nodes = given.nodes or 100_000
    table = Table("plan", "command s", "D", "d", "links", "kept", "removed", "added", "connected")
    with tempfile.TemporaryDirectory() as folder:
        run("generate", "--workload", "topics-zipf", "--nodes", nodes, "--topics", 200, "--seed", 1, "--out", f"{folder}/old", *LOCAL)
        run("generate", "--workload", "topics-zipf", "--nodes", nodes, "--topics", 200, "--seed", 2, "--out", f"{folder}/other", *LOCAL)
        spark = make_session("benchmark", "local[2]", {"spark.driver.maxResultSize": "64m"})
        old, other = (spark.read.parquet(f"{folder}/{name}/interests") for name in ("old", "other"))
        drawn = F.pmod(F.xxhash64(F.lit(5), "node_id", "topic_id"), F.lit(10_000))
        new = old.where(drawn >= 50).union(other.where(drawn < 50)).distinct()  # half a per cent goes, about as much comes
        new.write.parquet(f"{folder}/new/interests")
        spark.stop()
        seconds = run("topics", "--input", f"{folder}/old", "--out", f"{folder}/plan", "--algorithm", "sharded", "--seed", 1, *LOCAL)
        for name, place, options in (
            ("before", "plan", None),
            ("repaired", "repaired", ("--previous", f"{folder}/plan")),
            ("from scratch", "scratch", ("--algorithm", "sharded")),
        ):
            if options is not None:
                seconds = run("topics", "--input", f"{folder}/new", "--out", f"{folder}/{place}", "--seed", 1, *options, *LOCAL)
            m = told(f"{folder}/{place}")
            changes = [m.get(key, "-") for key in ("links_kept", "links_removed", "links_added")]
            table.row(name, seconds, m["max_degree"], m["avg_degree"], m["edges"], *changes, m["topic_connected"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tables", "figures", "large", "sharded", "bulk", "repair"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--million", action="store_true")
    arguments = parser.parse_args()
    globals()[arguments.what](arguments)
