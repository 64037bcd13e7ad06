"""Verify a topic-connected overlay: interests, edges and ``metrics.json`` in, a ``VerificationReport`` out.

Everything is recomputed from the definition, with code of its own: the nodes interested in a topic, and the edges
between them, are one component. Topics are dealt to tasks by hash, and scipy counts components there. With few topics
every task gets all edges; with many, an edge is joined with the topics of both its ends and goes only where one is
shared. Only counts and examples reach the driver.
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
from scipy.sparse.csgraph import connected_components

from pubsub_graph.errors import BadInput
from pubsub_graph.lineage import Lineage
from pubsub_graph.tables import EDGES, INTERESTS, conform
from pubsub_graph.verify.report import CheckResult, VerificationReport

__all__ = ["verify_topics"]

METRIC_TOLERANCE = 1e-6  # relative
SHOWN = 5
TASK_ROWS = 4_000_000  # rows that one task holds at once
TASK_TOPICS = 64  # topics of a task that gets all edges, and looks at all of them for each
MOST_COPIES = 1_000  # of the edges

HINTS = {
    "missing ends": "an edge with a null end links nothing; drop it",
    "loops": "an edge from a node to itself; drop it",
    "edge order": "an edge is written once, with src < dst",
    "duplicated edges": "the same two nodes are linked more than once; keep one row",
    "unknown nodes": "an end that has no interest in the input; is it a plan of this input?",
    "topics connected": "nodes interested in a topic cannot reach each other through nodes interested in it: events would be lost",
    "useless links": "information only: the two ends share no topic, so no topic needs the edge",
    "metrics": "metrics.json does not say what the tables say",
}
MEASURES = ("max_degree", "avg_degree", "edges")
FIELDS = (
    "algorithm", "parameters", "seed", "feasible", "violations", "seconds", *MEASURES, "topic_connected", "pn_ratio", "lower_bound_max_degree",
)  # fmt: skip


def verify_topics(interests: DataFrame, edges: DataFrame, metrics: Mapping[str, Any]) -> VerificationReport:
    """Check an overlay against its interests; an interest that occurs twice counts once.

    ``needless_edges`` counts the edges whose ends share no topic. That is weaker than "no topic would fall apart without
    it", which needs the bridges of every topic's subgraph: an overlay without such edges may still have edges to spare.
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
        _result("useless links", 0, math.inf, told if spare.number else []),
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

FOUND = "is_edge boolean, a bigint, b bigint"  # a topic and its number of components, or an edge that no topic of the task has


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
    number: int = 0
    most: int = 0
    shown: Sequence[Row] = ()


def _components(interests: DataFrame, links: DataFrame, sizes: _Sizes, lineage: Lineage) -> tuple[_Found, _Found]:
    """The topics of more than one component (``most``: the largest number), and the edges that no topic has."""
    if _copying_is_cheaper(sizes):
        found, copies = _all_edges(interests, links, sizes.tasks).mapInArrow(_count_in_all_edges, FOUND), sizes.tasks
    else:
        tasks = max(1, math.ceil((sizes.pairs + sizes.topics_of_ends / 2) / TASK_ROWS))
        found, copies = _shared_edges(interests, links, tasks).mapInArrow(_count_in_shared_edges, FOUND), 1
    counted = found.groupBy("is_edge", "a", "b").count()
    bad = lineage.persist(counted.where(F.when(F.col("is_edge"), F.col("count") == copies).otherwise(F.col("b") > 1)))
    kinds = {}
    for row in bad.groupBy("is_edge").agg(F.count(F.lit(1)).alias("number"), F.max("b").alias("most")).collect():
        shown = bad.where(F.col("is_edge") == row["is_edge"]).orderBy("a", "b").limit(SHOWN).collect()
        kinds[row["is_edge"]] = _Found(row["number"], row["most"], shown)
    return kinds.get(False, _Found()), kinds.get(True, _Found())


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
    """(topic_id, a, b): the interests (b null), and every edge with each topic that both ends have, or once with none."""
    topics = interests.groupBy("node_id").agg(F.collect_set("topic_id").alias("topics"))
    of_src = topics.select(F.col("node_id").alias("src"), F.col("topics").alias("src_topics"))
    of_dst = topics.select(F.col("node_id").alias("dst"), F.col("topics").alias("dst_topics"))
    shared = F.explode_outer(F.array_intersect("src_topics", "dst_topics"))
    ends = links.join(of_src, "src", "left").join(of_dst, "dst", "left")
    rows = ends.select(shared.alias("topic_id"), F.col("src").alias("a"), F.col("dst").alias("b"))
    pairs = interests.select("topic_id", F.col("node_id").alias("a"), F.lit(None).cast("bigint").alias("b"))
    return pairs.unionByName(rows).repartition(tasks, F.coalesce("topic_id", "a"))


def _count_in_all_edges(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A topic at a time: which edges lie between its nodes, and how many components they leave."""
    part = _Part.read(batches)
    if part is None:
        return
    known = np.isin(part.src, part.nodes) & np.isin(part.dst, part.nodes)
    left, right = np.searchsorted(part.nodes, part.src[known]), np.searchsorted(part.nodes, part.dst[known])
    used, numbers = np.zeros(len(left), dtype=bool), np.zeros(len(part.topics), dtype=np.int64)
    for index, (begin, end) in enumerate(zip(part.starts[:-1], part.starts[1:])):
        place = np.full(len(part.nodes), -1, dtype=np.int32)
        place[part.vertices[begin:end] - index * len(part.nodes)] = np.arange(end - begin)
        a, b = place[left], place[right]
        here = (a >= 0) & (b >= 0)
        used |= here
        numbers[index] = _labels(end - begin, a[here], b[here])[0]
    unshared = np.ones(len(part.src), dtype=bool)
    unshared[np.flatnonzero(known)[used]] = False
    yield from _emit(part.topics, numbers, part.src[unshared], part.dst[unshared])


def _count_in_shared_edges(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All topics of the task as one graph, a vertex a pair (topic, node)."""
    part = _Part.read(batches)
    if part is None:
        return
    first = np.searchsorted(part.topics, part.edge_topic) * len(part.nodes)
    src, dst = (np.searchsorted(part.vertices, first + np.searchsorted(part.nodes, ends)) for ends in (part.keyed_src, part.keyed_dst))
    _, label = _labels(len(part.vertices), src, dst)
    first_seen = np.unique(label, return_index=True)[1]  # one vertex of each component
    numbers = np.diff(np.searchsorted(np.sort(first_seen), part.starts))
    yield from _emit(part.topics, numbers, part.src, part.dst)


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


def _labels(vertices: int, src: NDArray[Any], dst: NDArray[Any]) -> tuple[int, NDArray[Any]]:
    """How many components, and which one each vertex is in."""
    return connected_components(coo_array((np.ones(len(src), dtype=np.int8), (src, dst)), shape=(vertices, vertices)), directed=False)


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
