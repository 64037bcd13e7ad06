"""Carriers of the topic kernels: a group of (node, topic) rows in, links and what goes on to the next step out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql.types import BooleanType, ByteType, IntegerType, LongType, StringType, StructField, StructType

from udfs.kernels.degree_bound import degree_bound
from udfs.kernels.divide import bulk_nodes, choose_parts, dcb_m, dcbr_m, naive
from udfs.kernels.improve import improve_links, relieve_links
from udfs.kernels.merge import Interests, interests_of, merge_greedily
from udfs.kernels.prune import needed_links
from udfs.kernels.shards import Combined, combine_group, conquer_shard

__all__ = [
    "BOUND", "LINK", "OVERLAY", "REPRESENTATIVE", "STEP", "SUMMARY", "TRIAL",
    "bound_degree", "combine_groups", "conquer_shards", "improve_part", "mend_group", "relieve_part", "try_bulk",
    "whole_overlay",
]  # fmt: skip

Grouped = Callable[[pd.DataFrame], pd.DataFrame]

# One task: its links, and a row with a note (JSON) in place of a link.
OVERLAY = StructType([StructField("src", LongType()), StructField("dst", LongType()), StructField("note", StringType())])

# A step of the sharded planner. LINK: a, b are the ends. REPRESENTATIVE: a node (a) and one of its topics (b), with the
# node's degree; ``apart``: it is not connected to the others of its group yet. SUMMARY: a nodes, b representatives, largest degree.
LINK, REPRESENTATIVE, SUMMARY = 0, 1, 2
STEP = StructType(
    [
        StructField("kind", ByteType()),
        StructField("part", IntegerType()),
        StructField("a", LongType()),
        StructField("b", LongType()),
        StructField("degree", IntegerType()),
        StructField("apart", BooleanType()),
    ]
)
TRIAL = StructType([StructField("variant", IntegerType()), StructField("max_degree", IntegerType()), StructField("bulk_size", IntegerType())])
BOUND = StructType([StructField("bound", IntegerType())])


def whole_overlay(algorithm: str, *, bulk_share: float, coverage: int, parts: int | None, least: str, seed: int) -> Grouped:
    """The paper's algorithms on all nodes in one task; ``parts`` None: chosen as section V proposes."""

    def plan(rows: pd.DataFrame) -> pd.DataFrame:
        ids, _, interests = _interests(rows)
        begin = time.perf_counter()
        note: dict[str, Any] = {"nodes": len(ids)}
        if algorithm == "gm-m":
            links = merge_greedily(interests)
            note["pn_ratio"] = 1.0
        else:
            chosen = parts or choose_parts(interests, ids, bulk_share=bulk_share, coverage=coverage, seed=seed, least=least)  # type: ignore[arg-type]
            if algorithm == "dcbr-m":
                made = dcbr_m(interests, ids, bulk_share=bulk_share, coverage=coverage, parts=chosen, seed=seed)
            elif algorithm == "dcb-m":
                made = dcb_m(interests, ids, bulk_share=bulk_share, parts=chosen, seed=seed)
            else:
                made = naive(interests, ids, parts=chosen, seed=seed)
            links = made.links
            note |= {name: value for name, value in asdict(made).items() if name != "links"}
        note["kernel_seconds"] = time.perf_counter() - begin
        return _overlay(ids[links], note)

    return plan


def improve_part(seconds: float, seed: int) -> Grouped:
    """Improve the links of some nodes (rows as ``_part_of_overlay`` reads them), for so long."""

    def improve(rows: pd.DataFrame) -> pd.DataFrame:
        ids, interests, links, component, outside = _part_of_overlay(rows)
        better, moves = improve_links(interests, links, seed=seed, seconds=seconds, component=component, outside=outside)
        return _overlay(ids[better], {"moves": moves})

    return improve


def relieve_part(cap: int, seed: int) -> Grouped:
    """Bring the nodes above the degree ``cap`` down to it, if it can be (rows as ``_part_of_overlay`` reads them)."""

    def relieve(rows: pd.DataFrame) -> pd.DataFrame:
        ids, interests, links, component, outside = _part_of_overlay(rows)
        better, attempts = relieve_links(interests, links, cap, seed=seed, component=component, outside=outside)
        return _overlay(ids[better], {"attempts": attempts})

    return relieve


def _part_of_overlay(rows: pd.DataFrame) -> tuple[NDArray[np.int64], Interests, NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """(ids, interests, links, component, outside) from rows of kind LINK with the ends, and of kind REPRESENTATIVE with a node, a
    topic, the component that the rest of the overlay gives it, and how many links of the rest the node has (``degree``)."""
    entries = rows[rows["kind"] == REPRESENTATIVE].sort_values(["a", "b"])
    ids, _, interests = interests_of(entries["a"].to_numpy(), entries["b"].to_numpy())
    outside = entries.groupby("a")["degree"].first().to_numpy(dtype=np.int64)
    given = rows[rows["kind"] == LINK]
    links = np.sort(np.searchsorted(ids, given[["a", "b"]].to_numpy()), axis=1).astype(np.int32)
    links = links[np.lexsort((links[:, 1], links[:, 0]))]
    component = np.unique(entries["component"].to_numpy(), return_inverse=True)[1].astype(np.int64)
    return ids, interests, links, component, outside


def conquer_shards(coverage: int, bulk_size: int | None) -> Grouped:
    """For ``groupBy("part").applyInPandas`` on (part, node_id, topic_id, outside: other parts have the topic too)."""

    def conquer(rows: pd.DataFrame) -> pd.DataFrame:
        ids, topic_ids, interests = _interests(rows)
        outside = np.zeros(len(topic_ids), dtype=bool)
        outside[np.searchsorted(topic_ids, rows["topic_id"].to_numpy()[rows["outside"].to_numpy()])] = True
        done = conquer_shard(interests, outside, coverage, bulk_size)
        apart = np.diff(interests.start) > bulk_size if bulk_size is not None else np.zeros(len(ids), dtype=bool)
        return _step(int(rows["part"].iloc[0]), ids, topic_ids, interests, done, outside, apart)

    return conquer


def combine_groups(cap: int, coverage: int, most_nodes: int) -> Grouped:
    """For ``groupBy("into").applyInPandas`` on representatives (into, part, a, b, degree, apart, outside)."""

    def combine(rows: pd.DataFrame) -> pd.DataFrame:
        ids, topic_ids, interests = interests_of(rows["a"].to_numpy(), rows["b"].to_numpy())
        outside = np.zeros(len(topic_ids), dtype=bool)
        outside[np.searchsorted(topic_ids, rows["b"].to_numpy()[rows["outside"].to_numpy()])] = True
        each = rows.groupby("a")[["part", "degree", "apart"]].first()
        component, alone = each["part"].to_numpy(dtype=np.int64), each["apart"].to_numpy(dtype=bool)
        component[alone] = -1 - np.arange(int(alone.sum()))
        done = combine_group(interests, component, each["degree"].to_numpy(dtype=np.int64), cap, outside, coverage, most_nodes)
        return _step(int(rows["into"].iloc[0]), ids, topic_ids, interests, done, outside, np.zeros(len(ids), dtype=bool))

    return combine


def mend_group(cap: int) -> Grouped:
    """Connect the components of a group (part, node_id, topic_id, component, degree) topic by topic."""

    def mend(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.sort_values(["node_id", "topic_id"])
        ids, _, interests = _interests(rows)
        degree = rows.groupby("node_id")["degree"].first().to_numpy(dtype=np.int64)
        component = np.unique(rows["component"].to_numpy(), return_inverse=True)[1].astype(np.int64)
        links = merge_greedily(interests, component, degree, cap)
        return _overlay(ids[links[needed_links(interests, links, component)]], {})

    return mend


def try_bulk(coverage: int, bulk_share: float, most_nodes: int) -> Grouped:
    """Plan a sample (variant, shard, node_id, topic_id) with bulk nodes among the others (variant 0) or apart (1): which has the lower degree?"""

    def attempt(rows: pd.DataFrame) -> pd.DataFrame:
        ids, _, interests = _interests(rows)
        sizes, variant = np.diff(interests.start), int(rows["variant"].iloc[0])
        bulk = bulk_nodes(interests, bulk_share)
        bulk_size = int(sizes[np.setdiff1d(np.arange(len(ids)), bulk)].max(initial=0)) if len(bulk) else None
        if variant == 1 and bulk_size is None:
            return pd.DataFrame({"variant": [1], "max_degree": [2**31 - 1], "bulk_size": [0]})
        apart_above = bulk_size if variant == 1 else None
        shard = rows.groupby("node_id")["shard"].first().to_numpy()
        outside, degree = np.ones(interests.topics, dtype=bool), np.zeros(len(ids), dtype=np.int64)
        nodes, component = [], []
        for number in np.unique(shard):
            members = np.flatnonzero(shard == number)
            done = conquer_shard(interests.of(members), outside, coverage, apart_above)
            degree[members] = done.degree
            chosen = members[done.chosen]
            alone = sizes[chosen] > apart_above if apart_above is not None else np.zeros(len(chosen), dtype=bool)
            nodes.append(chosen)
            component.append(np.where(alone, -1 - chosen, number))
        taking, group = np.concatenate(nodes), np.concatenate(component)
        order = np.argsort(taking)
        taking, group = taking[order], group[order]
        last = combine_group(interests.of(taking), group, degree[taking], int(degree.max()), ~outside, coverage, most_nodes)
        degree[taking] = last.degree
        return pd.DataFrame({"variant": [variant], "max_degree": [int(degree.max())], "bulk_size": [bulk_size or 0]})

    return attempt


def bound_degree() -> Grouped:
    """The lower bound on the maximum degree from the given interests alone."""

    def bound(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"bound": [degree_bound(_interests(rows)[2])]})

    return bound


def _interests(rows: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64], Interests]:
    return interests_of(rows["node_id"].to_numpy(), rows["topic_id"].to_numpy())


def _overlay(links: NDArray[np.int64], note: dict[str, Any]) -> pd.DataFrame:
    links = links.reshape(-1, 2)
    made = pd.DataFrame({"src": links[:, 0], "dst": links[:, 1]}, dtype="Int64")
    made["note"] = None
    last = pd.DataFrame({"src": [None], "dst": [None], "note": [json.dumps(note)]})
    return pd.concat([made, last.astype({"src": "Int64", "dst": "Int64"})], ignore_index=True)


def _step(
    part: int,
    ids: NDArray[np.int64],
    topic_ids: NDArray[np.int64],
    interests: Interests,
    done: Combined,
    outside: NDArray[np.bool_],
    apart: NDArray[np.bool_],
) -> pd.DataFrame:
    """Links, the entries of the representatives for topics that others have too, and the summary."""
    some = interests.of(done.chosen)
    node = done.chosen[some.node]
    kept = outside[some.topic]
    node, topic = node[kept], some.topic[kept]
    pieces = [
        (LINK, ids[done.links[:, 0]], ids[done.links[:, 1]], np.zeros(len(done.links), dtype=np.int64), np.zeros(len(done.links), dtype=bool)),
        (REPRESENTATIVE, ids[node], topic_ids[topic], done.degree[node], apart[node]),
        (SUMMARY, np.array([len(ids)]), np.array([len(np.unique(node))]), np.array([done.degree.max(initial=0)]), np.array([False])),
    ]
    return pd.concat(
        [
            pd.DataFrame({"kind": np.int8(kind), "part": np.int32(part), "a": a, "b": b, "degree": degree.astype(np.int32), "apart": alone})
            for kind, a, b, degree, alone in pieces
        ],
        ignore_index=True,
    )
