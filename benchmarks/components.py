"""Connected components: ours, GraphFrames, and scipy in one process, on the same Parquet files. Ratios count, not seconds.

    .venv/bin/python benchmarks/components.py                        # 100,000 vertices; an overlay of 20,000 nodes x 50 interests
    .venv/bin/python benchmarks/components.py --rows 1000000 --skip graphframes
    .venv/bin/python benchmarks/components.py --only topics --topics 10000    # the route of many keys

``--rows`` is the number of vertices of the plain graph; the overlay has a fifth as many nodes. Every way must find the
same number of vertices and of components, or the run fails.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components as scipy_components

from pubsub_graph.components import connected_components, graphframes_components, induced_components, induced_components_graphframes
from pubsub_graph.session import make_session

DEGREE = 6  # of an overlay's nodes, on average
INTERESTS = 50  # of a node

Found = tuple[int, int]  # vertices, components


def random_links(spark: SparkSession, nodes: int, links: int) -> DataFrame:
    ends = [F.pmod(F.xxhash64("id", F.lit(end)), F.lit(nodes)) for end in ("one", "other")]
    both = spark.range(links).select(F.least(*ends).alias("src"), F.greatest(*ends).alias("dst"))
    return both.where("src < dst").distinct()


def stored(spark: SparkSession, table: DataFrame, place: str) -> DataFrame:
    table.write.parquet(place)
    return spark.read.parquet(place)


def counted(found: DataFrame, node: str) -> Found:
    row = found.agg(F.count(F.lit(1)), F.count(F.when(F.col(node) == F.col("component"), 1))).first()
    assert row is not None
    return row[0], row[1]


def number_of_components(vertices: int, src: np.ndarray, dst: np.ndarray) -> int:
    graph = coo_array((np.ones(len(src), dtype=np.int8), (src, dst)), shape=(vertices, vertices))
    return scipy_components(graph, directed=False, return_labels=False)


def read(place: str) -> list[np.ndarray]:
    return [column.to_numpy() for column in pq.read_table(place).columns]


def scipy_plain(folder: str) -> Found:
    (ids,), (src, dst) = read(f"{folder}/vertices"), read(f"{folder}/edges")
    ids = np.sort(ids)
    return len(ids), number_of_components(len(ids), np.searchsorted(ids, src), np.searchsorted(ids, dst))


def scipy_topics(folder: str) -> Found:
    """A topic at a time."""
    (node, topic), (src, dst) = read(f"{folder}/interests"), read(f"{folder}/links")
    pairs = np.unique(np.stack([topic, node]), axis=1)
    place, total = np.full(max(node.max(), src.max(), dst.max()) + 1, -1), 0
    for members in np.split(pairs[1], np.flatnonzero(np.diff(pairs[0])) + 1):
        place[members] = np.arange(len(members))
        here = (place[src] >= 0) & (place[dst] >= 0)
        total += number_of_components(len(members), place[src[here]], place[dst[here]])
        place[members] = -1
    return pairs.shape[1], total


def compare(title: str, ways: dict[str, Callable[[], Found]], skip: list[str]) -> None:
    print(f"\n{title}\n{'way':<14}{'seconds':>9}{'x ours':>9}{'vertices':>13}{'components':>13}", flush=True)
    first: tuple[float, Found] | None = None
    for name, way in ways.items():
        if name in skip:
            continue
        start = time.perf_counter()
        found = way()
        seconds = time.perf_counter() - start
        first = first or (seconds, found)
        print(f"{name:<14}{seconds:>9.1f}{seconds / first[0]:>9.2f}{found[0]:>13,}{found[1]:>13,}", flush=True)
        if found != first[1]:
            raise SystemExit(f"{name} found {found}, the first way {first[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--only", choices=["plain", "topics"])
    parser.add_argument("--skip", action="append", default=[], choices=["graphframes", "scipy"])
    parser.add_argument("--master", default="local[2]")
    args = parser.parse_args()
    spark = make_session("benchmark components", args.master, {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "4g"})
    warm = spark.createDataFrame([(1, 1), (2, 1)], "src bigint, dst bigint")
    counted(induced_components(warm, warm, node="src", key="dst"), "src")  # workers started, kernels compiled
    with tempfile.TemporaryDirectory() as folder:
        if args.only != "topics":
            vertices = stored(spark, spark.range(args.rows), f"{folder}/vertices")
            edges = stored(spark, random_links(spark, args.rows, args.rows), f"{folder}/edges")
            compare(
                f"random graph: {args.rows:,} vertices, {edges.count():,} edges",
                {
                    "ours": lambda: counted(connected_components(vertices, edges), "id"),
                    "graphframes": lambda: counted(graphframes_components(vertices, edges), "id"),
                    "scipy": lambda: scipy_plain(folder),
                },
                args.skip,
            )
        if args.only != "plain":
            nodes = max(2, args.rows // 5)
            topic = F.pmod(F.xxhash64("id", "k"), F.lit(args.topics))
            pairs = spark.range(nodes).select("id", F.explode(F.sequence(F.lit(1), F.lit(INTERESTS))).alias("k"))
            interests = stored(spark, pairs.select(F.col("id").alias("node_id"), topic.alias("topic_id")), f"{folder}/interests")
            links = stored(spark, random_links(spark, nodes, nodes * DEGREE // 2), f"{folder}/links")
            compare(
                f"induced by topics: {nodes:,} nodes x {INTERESTS} of {args.topics:,} topics, {links.count():,} edges",
                {
                    "ours": lambda: counted(induced_components(interests, links), "node_id"),
                    "graphframes": lambda: counted(induced_components_graphframes(interests, links), "node_id"),
                    "scipy": lambda: scipy_topics(folder),
                },
                args.skip,
            )
    spark.stop()


if __name__ == "__main__":
    main()
