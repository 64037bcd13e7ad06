"""Connected components, of a graph and of the many graphs that a key column induces in it.

A topic's subgraph is the case in hand: nodes have topics, an overlay has edges, and the topic is connected when the
nodes that have it are one component of the edges between them. Both forms exist twice: union-find in the tasks of a few
shuffles (``connected_components``, ``induced_components``), and GraphFrames on the same graph, as the independent
second way (``graphframes_components``, ``induced_components_graphframes``). A component is named by its smallest id.
Nothing but counts reaches the driver, and the result does not depend on how the input is partitioned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pubsub_graph.errors import BadInput, examples
from pubsub_graph.session import require_graphframes
from udfs.components import STARS, component_schema, label_induced, label_keyed, stars

__all__ = ["connected_components", "graphframes_components", "induced_components", "induced_components_graphframes"]

TASK_ROWS = 4_000_000  # rows of a partition that a kernel holds at once: 24 bytes each, and about as much again to work
WORD = 64  # keys that the kernel takes in one go
FAN_IN = 8  # partitions of forest that become one in the next round
MOST_COPIES = 1_000  # of the edges


# ---------------------------------------------------------------- induced by a key


def induced_components(
    interests: DataFrame, edges: DataFrame, *, node: str = "node_id", key: str = "topic_id", src: str = "src", dst: str = "dst"
) -> DataFrame:
    """(node, key, component): for every key, the components of the graph induced by the nodes that have that key.

    Keys are dealt to buckets by hash, a bucket is one task, and its kernel does all its keys together. Edges come to the
    buckets in the cheaper of two ways: with few keys every bucket gets all edges; with many keys an edge is joined with
    the keys of both its ends and goes only where a key is shared. Nodes are whole numbers, keys of any type; a pair that
    occurs twice counts once, rows with a null are left out, and so are edges to nodes without a key. Counts both tables
    when called; the rest is lazy.
    """
    _need(interests, "interests", node, key)
    _need(edges, "edges", src, dst)
    pairs = interests.select(F.col(key).alias("key"), F.col(node).cast("bigint").alias("a")).dropna()
    links = _links(edges, src, dst)
    sizes = _measure(pairs, links)
    schema = component_schema(node, key, interests.schema[key].dataType)
    if _replicating_is_cheaper(sizes):
        return _replicated(pairs, links, sizes.buckets).mapInArrow(label_induced(schema), schema)
    return _joined(pairs, links, sizes.shared_rows).mapInArrow(label_keyed(schema), schema)


@dataclass(frozen=True)
class _Sizes:
    """Rows of both tables; nodes and keys are estimates (HyperLogLog), on which only the speed depends."""

    pairs: int
    nodes: int
    keys: int
    edges: int

    @property
    def buckets(self) -> int:
        """So many that one holds at most a word of keys and ``TASK_ROWS`` pairs, on average."""
        return max(1, math.ceil(self.keys / WORD), math.ceil(self.pairs / TASK_ROWS))

    @property
    def shared_rows(self) -> int:
        """Pairs, and at most one row an edge and a key of its end."""
        return self.pairs + self.edges * math.ceil(self.pairs / max(self.nodes, 1))


def _measure(pairs: DataFrame, links: DataFrame) -> _Sizes:
    row = pairs.agg(F.count(F.lit(1)), F.approx_count_distinct("a"), F.approx_count_distinct("key")).first()
    assert row is not None
    return _Sizes(row[0], row[1], row[2], links.count())


def _replicating_is_cheaper(sizes: _Sizes) -> bool:
    """Rows (or array elements) shuffled: copies of the edges, against the keys gathered by node and joined to both ends."""
    copies = sizes.buckets * sizes.edges
    gathered = sizes.pairs + 2 * sizes.edges * sizes.pairs / max(sizes.nodes, 1)
    return sizes.buckets <= MOST_COPIES and copies <= gathered


def _replicated(pairs: DataFrame, links: DataFrame, buckets: int) -> DataFrame:
    """(key, a, b) by bucket: the pairs of its keys (b null), and every edge (key null)."""
    slots = F.array(*[F.lit(slot) for slot in _slots(pairs.sparkSession, buckets)])
    number = F.pmod(F.xxhash64("key"), F.size(slots)).cast("int")
    key_type = pairs.schema["key"].dataType
    rows = pairs.select(slots[number].alias("bucket"), "key", "a", F.lit(None).cast("bigint").alias("b"))
    copies = links.select(F.explode(slots).alias("bucket"), F.lit(None).cast(key_type).alias("key"), "a", "b")
    return rows.unionByName(copies).repartition(buckets, "bucket").drop("bucket")


def _slots(spark: SparkSession, buckets: int) -> list[int]:
    """Numbers that ``repartition(buckets, column)`` sends to different partitions, so that no task gets two buckets.

    Should Spark deal otherwise one day, a task with two buckets still does the right thing.
    """
    place = F.pmod(F.hash("id"), F.lit(buckets))
    rows = spark.range(0, 40 * buckets, 1, 1).select("id", place.alias("place")).collect()
    return sorted({row["place"]: row["id"] for row in rows}.values())


def _joined(pairs: DataFrame, links: DataFrame, rows: int) -> DataFrame:
    """(key, a, b) by key: the pairs (b null), and the edges with each key that both ends have."""
    keys = pairs.groupBy("a").agg(F.collect_set("key").alias("keys"))
    of_b = keys.select(F.col("a").alias("b"), F.col("keys").alias("other_keys"))
    shared = links.join(keys, "a").join(of_b, "b").select(F.explode(F.array_intersect("keys", "other_keys")).alias("key"), "a", "b")
    both = pairs.select("key", "a", F.lit(None).cast("bigint").alias("b")).unionByName(shared)
    return both.repartition(max(1, math.ceil(rows / TASK_ROWS)), "key")


# ---------------------------------------------------------------- one graph


def connected_components(vertices: DataFrame, edges: DataFrame, *, id: str = "id", src: str = "src", dst: str = "dst") -> DataFrame:
    """(id, component): the components of a graph whose edges lead between ``vertices``.

    Every task turns its edges into a spanning forest, by union-find; forests are brought together, eight partitions into
    one a round, until one task holds the last. That task is the limit: it needs some 50 bytes for every vertex that has
    an edge (16 for its forest edge, as much for union-find, the rest to sort), 5 GB for 100 million. Counts the edges when
    called; the rest is lazy.
    """
    _need(vertices, "vertices", id)
    _need(edges, "edges", src, dst)
    links = _links(edges, src, dst)
    parts = math.ceil(links.count() / TASK_ROWS)
    forest = links.mapInArrow(stars(keep_roots=False), STARS)
    while parts > 1:  # by the id, not by the component: a giant component has many ids
        forest = forest.repartition(parts, "id").mapInArrow(stars(keep_roots=False), STARS)
        parts = math.ceil(parts / FAN_IN)
    labels = forest.repartition(1).mapInArrow(stars(keep_roots=True), STARS)
    found = vertices.select(F.col(id).cast("bigint").alias("id")).dropna().join(labels, "id", "left")
    return found.select(F.col("id").alias(id), F.coalesce("component", "id").alias("component"))


# ---------------------------------------------------------------- the second way


def graphframes_components(vertices: DataFrame, edges: DataFrame, *, id: str = "id", src: str = "src", dst: str = "dst") -> DataFrame:
    """The result of ``connected_components`` through GraphFrames: an order of magnitude slower, and another's code.

    ``broadcastThreshold=-1`` and local checkpoints are what makes it usable; give the session few shuffle partitions (4
    on two cores). Its own component numbers are replaced by the smallest id. Runs when called.
    """
    _need(vertices, "vertices", id)
    _need(edges, "edges", src, dst)
    require_graphframes(vertices.sparkSession)
    from graphframes import GraphFrame

    ids = vertices.select(F.col(id).cast("bigint").alias("id")).dropna()
    graph = GraphFrame(ids, _links(edges, src, dst).toDF("src", "dst"))
    found = graph.connectedComponents(broadcastThreshold=-1, use_local_checkpoints=True, max_iter=1_000)
    least = found.groupBy(F.col("component").alias("number")).agg(F.min("id").alias("least"))
    return found.join(least, found["component"] == least["number"]).select(F.col("id").alias(id), F.col("least").alias("component"))


def induced_components_graphframes(
    interests: DataFrame, edges: DataFrame, *, node: str = "node_id", key: str = "topic_id", src: str = "src", dst: str = "dst"
) -> DataFrame:
    """The result of ``induced_components`` through GraphFrames: a vertex a pair (node, key), an edge where a key is shared.

    Vertices are numbered by a 64-bit hash of the pair. Two pairs with one hash (1 in 10,000 runs at 50 million pairs) would
    run together, and are an error.
    """
    _need(interests, "interests", node, key)
    _need(edges, "edges", src, dst)
    pairs = interests.select(F.col(node).cast("bigint").alias("node"), F.col(key).alias("key")).dropna().distinct()
    pairs = pairs.withColumn("id", F.xxhash64("node", "key"))
    clash = pairs.groupBy("id").count().where("count > 1").first()
    if clash is not None:
        raise BadInput(f"interests: two pairs ({node}, {key}) have the hash {clash['id']}; renumber {node}")
    ends = [
        pairs.select(F.col("node").alias("a"), "key", F.col("id").alias("src")),
        pairs.select(F.col("node").alias("b"), "key", F.col("id").alias("dst")),
    ]
    links = _links(edges, src, dst).join(ends[0], "a").join(ends[1], ["b", "key"]).select("src", "dst")
    found = graphframes_components(pairs.select("id"), links).join(pairs, "id")
    least = found.groupBy("component").agg(F.min("node").alias("least"))
    return found.join(least, "component").select(F.col("node").alias(node), F.col("key").alias(key), F.col("least").alias("component"))


# ---------------------------------------------------------------- columns


def _links(edges: DataFrame, src: str, dst: str) -> DataFrame:
    """(a, b): the edges that lead from one node to another."""
    return edges.select(F.col(src).cast("bigint").alias("a"), F.col(dst).cast("bigint").alias("b")).where("a <> b")


def _need(table: DataFrame, name: str, *columns: str) -> None:
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise BadInput(f"table {name} has no column {examples(missing)}; found {examples(table.columns)}")
