"""Verify a topic-connected overlay: interests, edges and ``metrics.json`` in, a ``VerificationReport`` out.

Everything is recomputed from the definition, with code of its own: the nodes interested in a topic, and the edges
between them, are one component. Topics are dealt to tasks by hash, and scipy counts components there. With few topics
every task gets all edges; with many, an edge is joined with the topics of both its ends and goes only where one is
shared. Only counts and examples reach the driver.

An edge is needless when every topic stays as connected without it: it is a bridge in no topic. Bridges are found by random
marks: an edge outside a spanning tree puts its mark on both its ends, and the edge above a vertex is taken for a bridge if the
marks below it cancel, which those of another edge do with probability 2^-64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.tables import EDGES, INTERESTS, conform
from pubsub_graph.verify.report import SHOWN, CheckResult, VerificationReport

__all__ = ["verify_topics"]

METRIC_TOLERANCE = 1e-6  # relative
TASK_ROWS = 4_000_000  # rows that one task holds at once
TASK_TOPICS = 64  # topics of a task that gets all edges, and looks at all of them for each
MOST_COPIES = 1_000  # of the edges
TASK_EDGES = 4_000_000  # edges of all topics together that a task looks at together

HINTS = {
    "missing ends": "an edge with a null end links nothing; drop it",
    "loops": "an edge from a node to itself; drop it",
    "edge order": "an edge is written once, with src < dst",
    "duplicated edges": "the same two nodes are linked more than once; keep one row",
    "unknown nodes": "an end that has no interest in the input; is it a plan of this input?",
    "topics connected": "nodes interested in a topic cannot reach each other through nodes interested in it: events would be lost",
    "needless edges": "information only: every topic stays connected without the edge; each could go, not all of them together",
    "metrics": "metrics.json does not say what the tables say",
}
MEASURES = ("max_degree", "avg_degree", "edges")
FIELDS = (
    "algorithm", "parameters", "seed", "feasible", "violations", "seconds", *MEASURES, "topic_connected", "pn_ratio", "lower_bound_max_degree",
)  # fmt: skip


def verify_topics(interests: DataFrame, edges: DataFrame, metrics: Mapping[str, Any]) -> VerificationReport:
    """Check an overlay against its interests; an interest that occurs twice counts once.

    ``needless_edges`` counts the edges that no topic needs: without any one of them every topic is as connected as with it.
    They cost degree and break nothing, so they are told and are no violation.
    """
    interests, edges = conform(interests, INTERESTS, "interests"), conform(edges, EDGES, "edges")
    pairs, topics = _count(interests)
    with Lineage() as lineage:
        nodes = lineage.persist(interests.select("node_id").distinct())
        undirected = F.least("src", "dst").alias("src"), F.greatest("src", "dst").alias("dst")
        links = lineage.persist(edges.where("src <> dst").select(*undirected).distinct())
        sizes = _Sizes(pairs, topics, nodes.count(), links.count())
        measures = _measure(links, sizes)
        split, spare = _components(interests, links, sizes, lineage)
        rows = [*_check_rows(edges), _check_known(nodes, links)]
    named = [f"topic {row['a']} has {row['b']:,} components" for row in split.shown]
    told = [f"{spare.number:,} edges, such as " + ", ".join(f"({row['a']}, {row['b']})" for row in spare.shown)]
    checks = (
        *rows,
        _result("topics connected", split.number, 1 - max(split.most, 1), named),
        _result("needless edges", 0, math.inf, told if spare.number else []),
    )
    recomputed = {**measures, "topic_connected": float(not split.number), "needless_edges": float(spare.number)}
    return VerificationReport((*checks, _check_metrics(metrics, recomputed)), recomputed)


# ---------------------------------------------------------------- nodes and edges one by one


def _count(interests: DataFrame) -> tuple[int, int]:
    """Rows, and about how many topics."""
    missing = F.col("node_id").isNull() | F.col("topic_id").isNull()
    row = interests.agg(F.count(F.lit(1)), F.approx_count_distinct("topic_id"), F.count(F.when(missing, 1))).first()
    assert row is not None
    if row[2]:
        raise BadInput(f"interests: {row[2]:,} rows with a null node_id or topic_id; every interest names both")
    return row[0], row[1]


def _check_rows(edges: DataFrame) -> list[CheckResult]:
    missing = F.col("src").isNull() | F.col("dst").isNull()
    kinds = {"missing ends": missing, "loops": F.col("src") == F.col("dst"), "edge order": F.col("src") > F.col("dst")}
    found = edges.agg(*[F.count(F.when(bad, 1)).alias(name) for name, bad in kinds.items()]).first()
    assert found is not None
    results = [_result(name, found[name], math.inf, _edges(edges.where(bad)) if found[name] else []) for name, bad in kinds.items()]
    ends = F.least("src", "dst").alias("src"), F.greatest("src", "dst").alias("dst")
    repeated = edges.where(~missing).groupBy(*ends).count().where("count > 1")
    number = repeated.count()
    return [*results, _result("duplicated edges", number, math.inf, _edges(repeated) if number else [])]


def _check_known(nodes: DataFrame, links: DataFrame) -> CheckResult:
    """Violations are nodes, not edges."""
    ends = links.select(F.explode(F.array("src", "dst")).alias("node_id")).distinct()
    unknown = ends.join(nodes, "node_id", "left_anti")
    rows = unknown.orderBy("node_id").limit(SHOWN).collect()
    return _result("unknown nodes", unknown.count() if rows else 0, math.inf, [f"node {row[0]}" for row in rows])


def _edges(table: DataFrame) -> list[str]:
    rows = table.orderBy(F.col("src").asc_nulls_first(), F.col("dst").asc_nulls_first()).limit(SHOWN).collect()
    return [f"({row['src']}, {row['dst']})" for row in rows]


def _measure(links: DataFrame, sizes: _Sizes) -> dict[str, float]:
    degrees = links.select(F.explode(F.array("src", "dst")).alias("node_id")).groupBy("node_id").count()
    row = degrees.agg(F.max("count")).first()
    assert row is not None
    return {"max_degree": float(row[0] or 0), "avg_degree": 2 * sizes.edges / max(sizes.nodes, 1), "edges": float(sizes.edges)}


# ---------------------------------------------------------------- components of all topics

FOUND = "is_edge boolean, a bigint, b bigint"  # a topic and its number of components, or an edge that a topic needs


@dataclass(frozen=True)
class _Sizes:
    pairs: int
    topics: int
    nodes: int
    edges: int

    @property
    def tasks(self) -> int:
        """So many that each has at most ``TASK_TOPICS`` topics and ``TASK_ROWS`` interests, on average."""
        return max(1, math.ceil(self.topics / TASK_TOPICS), math.ceil(self.pairs / TASK_ROWS))

    @property
    def topics_of_ends(self) -> int:
        """How many topics the two ends of all edges have, on average."""
        return math.ceil(2 * self.edges * self.pairs / max(self.nodes, 1))


@dataclass(frozen=True)
class _Found:
    """Rows (a, b): how many, the largest b (of topics: their components), some of them."""

    number: int = 0
    most: int = 0
    shown: Sequence[Row] = ()


def _components(interests: DataFrame, links: DataFrame, sizes: _Sizes, lineage: Lineage) -> tuple[_Found, _Found]:
    """The topics of more than one component (``most``: the largest number), and the edges that no topic needs."""
    if _copying_is_cheaper(sizes):
        found = _all_edges(interests, links, sizes.tasks).mapInArrow(_count_in_all_edges, FOUND)
    else:
        tasks = max(1, math.ceil((sizes.pairs + sizes.topics_of_ends / 2) / TASK_ROWS))
        found = _shared_edges(interests, links, tasks).mapInArrow(_count_in_shared_edges, FOUND)
    found = lineage.persist(found)
    split = found.where(~F.col("is_edge") & (F.col("b") > 1))
    needed = found.where("is_edge").select(F.col("a").alias("src"), F.col("b").alias("dst"))
    spare = lineage.persist(links.join(needed, ["src", "dst"], "left_anti").toDF("a", "b"))
    return _found(split), _found(spare)


def _found(rows: DataFrame) -> _Found:
    row = rows.agg(F.count(F.lit(1)), F.max("b")).first()
    assert row is not None
    return _Found(row[0], row[1], rows.orderBy("a", "b").limit(SHOWN).collect()) if row[0] else _Found()


def _copying_is_cheaper(sizes: _Sizes) -> bool:
    """All edges to every task, against the topics by node joined to both ends of every edge, in rows (or elements) moved."""
    return sizes.tasks <= MOST_COPIES and sizes.tasks * sizes.edges <= sizes.pairs + sizes.topics_of_ends


def _all_edges(interests: DataFrame, links: DataFrame, tasks: int) -> DataFrame:
    """(topic_id, a, b): a task has the interests of its topics (b null), and every edge (topic_id null)."""
    targets = F.array(*[F.lit(number) for number in _one_a_partition(interests.sparkSession, tasks)])
    null = F.lit(None).cast("bigint")
    task = targets[F.pmod(F.hash("topic_id"), F.size(targets))]
    mine = interests.select(task.alias("task"), "topic_id", F.col("node_id").alias("a"), null.alias("b"))
    copies = links.select(F.explode(targets).alias("task"), null.alias("topic_id"), F.col("src").alias("a"), F.col("dst").alias("b"))
    return mine.unionByName(copies).repartition(tasks, "task").drop("task")


def _one_a_partition(spark: SparkSession, tasks: int) -> list[int]:
    """For each of ``tasks`` hash partitions a number that falls into it, so that no task gets the share of two."""
    rows = spark.range(0, 40 * tasks, 1, 1).select("id", F.pmod(F.hash("id"), F.lit(tasks)).alias("part")).collect()
    return sorted({row["part"]: row["id"] for row in rows}.values())


def _shared_edges(interests: DataFrame, links: DataFrame, tasks: int) -> DataFrame:
    """(topic_id, a, b): the interests (b null), and every edge with each topic that both ends have."""
    topics = interests.groupBy("node_id").agg(F.collect_set("topic_id").alias("topics"))
    of_src = topics.select(F.col("node_id").alias("src"), F.col("topics").alias("src_topics"))
    of_dst = topics.select(F.col("node_id").alias("dst"), F.col("topics").alias("dst_topics"))
    shared = F.explode(F.array_intersect("src_topics", "dst_topics"))
    ends = links.join(of_src, "src").join(of_dst, "dst")
    rows = ends.select(shared.alias("topic_id"), F.col("src").alias("a"), F.col("dst").alias("b"))
    pairs = interests.select("topic_id", F.col("node_id").alias("a"), F.lit(None).cast("bigint").alias("b"))
    return pairs.unionByName(rows).repartition(tasks, "topic_id")


def _count_in_all_edges(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Which edges lie between the nodes of a topic, a topic at a time; topics are looked at together, as many as ``TASK_EDGES`` allows."""
    part = _Part.read(batches)
    if part is None:
        return
    known = np.flatnonzero(np.isin(part.src, part.nodes) & np.isin(part.dst, part.nodes))
    left, right = np.searchsorted(part.nodes, part.src[known]), np.searchsorted(part.nodes, part.dst[known])
    place = np.full(len(part.nodes), -1, dtype=np.int32)
    needed = np.zeros(len(part.src), dtype=bool)
    first, edges, held = 0, list[tuple[Ints, Ints, Ints]](), 0
    for index, (begin, end) in enumerate(zip(part.starts[:-1], part.starts[1:])):
        members = part.vertices[begin:end] - index * len(part.nodes)
        place[members] = np.arange(end - begin)
        a, b = place[left], place[right]
        here = np.flatnonzero((a >= 0) & (b >= 0))
        place[members] = -1
        offset = begin - part.starts[first]
        edges.append((known[here], a[here] + offset, b[here] + offset))
        held += len(here)
        if held >= TASK_EDGES or index + 1 == len(part.topics):
            edge, src, dst = (np.concatenate(column) for column in zip(*edges))
            numbers, bridge = _look(part.starts[first : index + 2] - part.starts[first], src, dst)
            needed[edge[bridge]] = True
            yield from _emit(part.topics[first : index + 1], numbers, edge[:0], edge[:0])
            first, edges, held = index + 1, [], 0
    yield from _emit(part.topics[:0], part.topics[:0], part.src[needed], part.dst[needed])


def _count_in_shared_edges(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All topics of the task as one graph, a vertex a pair (topic, node)."""
    part = _Part.read(batches)
    if part is None:
        return
    first = np.searchsorted(part.topics, part.edge_topic) * len(part.nodes)
    src, dst = (np.searchsorted(part.vertices, first + np.searchsorted(part.nodes, ends)) for ends in (part.keyed_src, part.keyed_dst))
    numbers, bridge = _look(part.starts, src, dst)
    needed = np.unique(np.stack([part.keyed_src[bridge], part.keyed_dst[bridge]]), axis=1)
    yield from _emit(part.topics, numbers, needed[0], needed[1])


Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Part:
    """The rows of one task as arrays; ``vertices`` are the distinct pairs, as topic index x nodes + node index."""

    topics: Ints
    nodes: Ints
    vertices: Ints
    starts: Ints  # where each topic begins in ``vertices``, and the end
    src: Ints  # of edges without a topic
    dst: Ints
    edge_topic: Ints
    keyed_src: Ints  # of edges with one
    keyed_dst: Ints

    @staticmethod
    def read(batches: Iterable[pa.RecordBatch]) -> _Part | None:
        kept = [batch for batch in batches if batch.num_rows]
        if not kept:
            return None
        columns = pa.Table.from_batches(kept).columns
        topic, a, b = (column.fill_null(0).to_numpy() for column in columns)
        is_pair = columns[2].is_null().to_numpy()
        plain = columns[0].is_null().to_numpy()
        keyed = ~is_pair & ~plain
        topics, topic_index = np.unique(topic[is_pair], return_inverse=True)
        nodes, node_index = np.unique(a[is_pair], return_inverse=True)
        vertices = np.unique(topic_index * len(nodes) + node_index)
        starts = np.searchsorted(vertices, np.arange(len(topics) + 1) * len(nodes))
        return _Part(topics, nodes, vertices, starts, a[plain], b[plain], topic[keyed], a[keyed], b[keyed])


def _look(starts: Ints, src: NDArray[Any], dst: NDArray[Any]) -> tuple[Ints, NDArray[np.bool_]]:
    """Graphs side by side, their vertices between ``starts``: the number of components of each, and which edges are bridges."""
    vertices = int(starts[-1])
    if not vertices:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
    label = connected_components(_graph(vertices, src, dst), directed=False)[1]
    first = np.unique(label, return_index=True)[1]  # one vertex of each component
    numbers = np.diff(np.searchsorted(np.sort(first), starts))
    return numbers, _bridges(vertices, np.append(src, np.full(len(first), vertices)), np.append(dst, first))[: len(src)]


def _bridges(vertices: int, src: NDArray[Any], dst: NDArray[Any]) -> NDArray[np.bool_]:
    """Which edges of a connected graph are bridges; vertex number ``vertices`` is there too, as the root. No edge occurs twice."""
    order, above = breadth_first_order(_graph(vertices + 1, src, dst), vertices, directed=False)
    down, up = above[dst] == src, above[src] == dst
    other = ~(down | up)
    mark, drawn = np.zeros(vertices + 1, dtype=np.uint64), np.random.default_rng(0).integers(2**64, size=int(other.sum()), dtype=np.uint64)
    for end in (src, dst):
        np.bitwise_xor.at(mark, end[other], drawn)
    place = np.empty(vertices + 1, dtype=np.int64)
    place[order] = np.arange(vertices + 1)
    parent = place[above[order[1:]]]  # never falls: the order is by distance from the root
    marks = mark[order]
    nearer = [1]  # how many vertices are nearer than distance 1, 2, ...
    while nearer[-1] <= vertices:
        nearer.append(1 + int(np.searchsorted(parent, nearer[-1])))
    for first, last in zip(nearer[-2::-1], nearer[:0:-1]):  # from the farthest
        run = np.flatnonzero(np.diff(parent[first - 1 : last - 1], prepend=-1))
        marks[parent[first - 1 + run]] ^= np.bitwise_xor.reduceat(marks[first:last], run)
    below = np.where(down, dst, src)
    return ~other & (marks[place[below]] == 0)


def _graph(vertices: int, src: NDArray[Any], dst: NDArray[Any]) -> coo_array:
    return coo_array((np.ones(len(src), dtype=np.int8), (src, dst)), shape=(vertices, vertices))


def _emit(topics: Ints, numbers: Ints, src: Ints, dst: Ints) -> Iterator[pa.RecordBatch]:
    is_edge = np.arange(len(topics) + len(src)) >= len(topics)
    columns = [pa.array(is_edge), pa.array(np.concatenate([topics, src])), pa.array(np.concatenate([numbers, dst]))]
    yield from pa.Table.from_arrays(columns, ["is_edge", "a", "b"]).to_batches(max_chunksize=250_000)


# ---------------------------------------------------------------- metrics


def _check_metrics(metrics: Mapping[str, Any], recomputed: Mapping[str, float]) -> CheckResult:
    wrong = [f"{field} is missing" for field in FIELDS if field not in metrics]
    worst = math.inf
    for name in MEASURES:
        if name in metrics:
            said, true = metrics[name], recomputed[name]
            if not _is_number(said) or abs(said - true) > METRIC_TOLERANCE * max(abs(said), abs(true)):
                wrong.append(f"{name} is {said!r}, the tables say {true:.9g}")
            else:
                worst = min(worst, -abs(said - true))
    bound: Any = metrics.get("lower_bound_max_degree")
    reached = recomputed["max_degree"]
    if "lower_bound_max_degree" in metrics and not (_is_number(bound) and bound <= reached):
        wrong.append(f"lower_bound_max_degree is {bound!r}, the greatest degree is {reached:.9g}: it is no lower bound")
    connected = bool(recomputed["topic_connected"])
    for name in ("topic_connected", "feasible"):
        if name in metrics and metrics[name] is not connected:
            wrong.append(f"{name} is {metrics[name]!r}, the tables say {connected}")
    if metrics.get("feasible") is True and metrics.get("violations"):
        wrong.append(f"feasible is true beside violations {metrics['violations']!r}")
    return _result("metrics", len(wrong), worst, wrong)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _result(name: str, number: int, worst: float, shown: Sequence[object]) -> CheckResult:
    return CheckResult(name, number, None if worst == math.inf else float(worst), tuple(shown[:SHOWN]), HINTS[name])
