"""Components on Spark against networkx, and union-find against GraphFrames."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from pubsub_graph import components as module
from pubsub_graph.components import (
    connected_components,
    graphframes_components,
    induced_components,
    induced_components_graphframes,
)  # fmt: skip
from pubsub_graph.errors import BadInput

Pairs = list[tuple[int, object]]
Edges = list[tuple[int, int]]


def smallest(graph: nx.Graph) -> dict[int, int]:
    return {v: min(part) for part in nx.connected_components(graph) for v in part}


def overlay(seed: int, nodes: int, keys: int, edges: int, text: bool = False) -> tuple[Pairs, Edges]:
    """Nodes with spread, also negative ids; some pairs twice; some edges to nodes without a key."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.choice(10**12, nodes, replace=False)) - 10**11
    has = rng.random((nodes, keys)) < min(0.5, 8 / keys)
    pairs: Pairs = [(int(ids[v]), f"topic {k}" if text else int(k) - 2) for v, k in zip(*np.nonzero(has))]
    ends = ids[rng.integers(0, nodes, (edges, 2))].tolist()
    return pairs + pairs[::7], [(a, b) for a, b in ends] + [(5, int(ids[0])), (5, 6)]


def expected_components(pairs: Pairs, edges: Edges) -> dict[tuple[int, object], int]:
    found = {}
    for key in {key for _, key in pairs}:
        members = {node for node, k in pairs if k == key}
        graph = nx.Graph((a, b) for a, b in edges if a in members and b in members)
        graph.add_nodes_from(members)
        found.update({(node, key): least for node, least in smallest(graph).items()})
    return found


def tables(spark: SparkSession, pairs: Pairs, edges: Edges) -> tuple[DataFrame, DataFrame]:
    kind = "string" if pairs and isinstance(pairs[0][1], str) else "bigint"
    return spark.createDataFrame(pairs, f"node_id bigint, topic_id {kind}"), spark.createDataFrame(edges, "src bigint, dst bigint")


def collected(found: DataFrame) -> dict[tuple[int, object], int]:
    rows = found.collect()
    result = {(row[0], row[1]): row[2] for row in rows}
    assert len(result) == len(rows)
    return result


@pytest.mark.parametrize("replicate", [True, False])
@pytest.mark.parametrize(("keys", "text"), [(5, False), (150, True)])
def test_induced_components_by_either_route(spark, monkeypatch, replicate, keys, text):
    pairs, edges = overlay(keys, 60, keys, 150, text)
    monkeypatch.setattr(module, "_replicating_is_cheaper", lambda sizes: replicate)
    monkeypatch.setattr(module, "TASK_ROWS", 200)  # several buckets
    assert collected(induced_components(*tables(spark, pairs, edges))) == expected_components(pairs, edges)


def test_a_bucket_may_hold_more_keys_than_a_word(spark, monkeypatch):
    pairs, edges = overlay(3, 40, 200, 100)
    monkeypatch.setattr(module, "_replicating_is_cheaper", lambda sizes: True)
    monkeypatch.setattr(module._Sizes, "buckets", 1)
    assert collected(induced_components(*tables(spark, pairs, edges))) == expected_components(pairs, edges)


def test_a_task_with_two_buckets_does_the_right_thing(spark, monkeypatch):
    pairs, edges = overlay(4, 40, 20, 100)
    monkeypatch.setattr(module, "_replicating_is_cheaper", lambda sizes: True)
    monkeypatch.setattr(module._Sizes, "buckets", 2)
    monkeypatch.setattr(module, "_slots", lambda spark, buckets: [0, 1, 2, 3, 4])
    assert collected(induced_components(*tables(spark, pairs, edges))) == expected_components(pairs, edges)


def test_slots_are_different_partitions(spark):
    assert module._slots(spark, 1) != []
    slots = module._slots(spark, 7)
    placed = spark.createDataFrame([(slot,) for slot in slots], "bucket bigint").repartition(7, "bucket")
    sizes = [row[0] for row in placed.selectExpr("spark_partition_id() as p").groupBy("p").count().select("count").collect()]
    assert sizes == [1] * 7


@pytest.mark.slow
def test_induced_components_agree_with_graphframes(spark):
    pairs, edges = overlay(11, 15, 3, 20)
    given = tables(spark, pairs, edges)
    found = collected(induced_components_graphframes(*given))
    assert found == expected_components(pairs, edges) == collected(induced_components(*given))


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_same_components_for_any_partitioning(spark, parts):
    pairs, edges = overlay(5, 50, 30, 90)
    interests, links = (table.repartition(parts) for table in tables(spark, pairs, edges))
    assert collected(induced_components(interests, links)) == expected_components(pairs, edges)


def test_other_columns_nulls_and_nothing(spark):
    interests = spark.createDataFrame([(1, "x"), (2, "x"), (None, "x"), (3, None), (3, "y")], "broker int, channel string")
    links = spark.createDataFrame([(2, 1), (3, None), (3, 3)], "u int, v int")
    names = {"node": "broker", "key": "channel", "src": "u", "dst": "v"}
    found = induced_components(interests, links, **names)
    assert found.columns == ["broker", "channel", "component"]
    assert collected(found) == {(1, "x"): 1, (2, "x"): 1, (3, "y"): 3}
    assert collected(induced_components(interests.limit(0), links, **names)) == {}
    assert collected(induced_components(interests, links.limit(0), **names)) == {(1, "x"): 1, (2, "x"): 2, (3, "y"): 3}
    with pytest.raises(BadInput, match="no column topic_id"):
        induced_components(interests, links, node="broker")


def test_the_route_follows_the_cost():
    few = module._Sizes(pairs=50_000_000, nodes=1_000_000, keys=200, edges=3_000_000)
    many = module._Sizes(pairs=5_000_000, nodes=100_000, keys=10_000, edges=1_300_000)
    assert module._replicating_is_cheaper(few) and few.buckets == 13
    assert not module._replicating_is_cheaper(many)
    assert module._replicating_is_cheaper(module._Sizes(0, 0, 0, 0))


def random_graph(seed: int, nodes: int, edges: int) -> tuple[list[int], Edges]:
    rng = np.random.default_rng(seed)
    ids = (rng.choice(10**9, nodes, replace=False) - 10**8).tolist()
    return ids, [(ids[a], ids[b]) for a, b in rng.integers(0, nodes, (edges, 2))]


@pytest.mark.parametrize("parts", [1, 3, 8])
@pytest.mark.parametrize("task_rows", [8, 10**6])
def test_connected_components_against_networkx(spark, monkeypatch, parts, task_rows):
    monkeypatch.setattr(module, "TASK_ROWS", task_rows)
    ids, edges = random_graph(parts, 100, 70)
    graph = nx.Graph(edges)
    graph.add_nodes_from(ids)
    vertices = spark.createDataFrame([(v,) for v in ids], "id bigint").repartition(parts)
    links = spark.createDataFrame(edges, "src bigint, dst bigint").repartition(parts)
    found = connected_components(vertices, links).collect()
    assert len(found) == 100
    assert {row["id"]: row["component"] for row in found} == smallest(graph)


@pytest.mark.slow
def test_connected_components_agree_with_graphframes(spark):
    ids, edges = random_graph(2, 30, 20)
    vertices, links = spark.createDataFrame([(v,) for v in ids], "v bigint"), spark.createDataFrame(edges, "x bigint, y bigint")
    ours = connected_components(vertices, links, id="v", src="x", dst="y")
    theirs = graphframes_components(vertices, links, id="v", src="x", dst="y")
    assert ours.columns == theirs.columns == ["v", "component"]
    assert sorted(ours.collect()) == sorted(theirs.collect())


def test_no_edges(spark):
    vertices = spark.createDataFrame([(3,), (1,)], "id bigint")
    none = spark.createDataFrame([], "src bigint, dst bigint")
    assert sorted(map(tuple, connected_components(vertices, none).collect())) == [(1, 1), (3, 3)]
