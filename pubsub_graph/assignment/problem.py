"""The subscriber assignment problem: validated tables, the broker tree, and the limits a plan must keep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pubsub_graph.errors import BadInput, examples
from pubsub_graph.tables import BROKERS, EVENTS, SUBSCRIBERS, Check, conform, duplicated_ids, failed_checks, vector_problem
from udfs.kernels.tree import BrokerTree

__all__ = ["AssignmentProblem", "Limits", "broker_tree", "make_problem"]

MOST_EVENTS = 100_000


@dataclass(frozen=True)
class Limits:
    """What a plan must keep: alpha rectangles a filter, the maximum delay, the desired and the largest load factor."""

    alpha: int = 3
    max_delay: float = 0.3
    lbf: float = 1.5
    lbf_max: float = 1.8
    latency: Literal["path", "last-hop"] = "path"
    """``path`` bounds the latency from the publisher, ``last-hop`` only that from the broker."""

    def __post_init__(self) -> None:
        findings = []
        if self.alpha < 1:
            findings.append(f"alpha is {self.alpha}; a filter needs at least 1 rectangle")
        if not (math.isfinite(self.max_delay) and self.max_delay >= 0):
            findings.append(f"max_delay is {self.max_delay}; it must be 0 or more")
        if not (math.isfinite(self.lbf) and self.lbf >= 1):
            findings.append(f"lbf is {self.lbf}; it must be at least 1, the perfect balance")
        if not (math.isfinite(self.lbf_max) and self.lbf_max >= self.lbf):
            findings.append(f"lbf_max is {self.lbf_max}; it must be at least lbf, {self.lbf}")
        if self.latency not in ("path", "last-hop"):
            findings.append(f"latency is {self.latency!r}; it must be 'path' or 'last-hop'")
        if findings:
            raise BadInput.of(findings)

    @property
    def last_hop(self) -> bool:
        return self.latency == "last-hop"


@dataclass(frozen=True)
class AssignmentProblem:
    """Made by ``make_problem``, which checks the tables."""

    tree: BrokerTree
    subscribers: DataFrame
    limits: Limits
    count: int
    event_low: tuple[float, ...]
    event_high: tuple[float, ...]
    """The corners of the box around all subscriptions."""
    events: DataFrame | None = None


def make_problem(
    brokers: DataFrame, subscribers: DataFrame, limits: Limits | None = None, events: DataFrame | None = None
) -> AssignmentProblem:
    """Check the tables (two passes over the subscribers) and put the problem together; every finding is reported at once."""
    tree, findings = _tree(conform(brokers, BROKERS, "brokers"))
    table = conform(subscribers, SUBSCRIBERS, "subscribers")
    dims = table.select(F.size("low").alias("d")).where("d > 0").limit(1).collect()
    if not dims:
        findings.append("subscribers: the table is empty or has no subscription; there is nothing to assign")
        raise BadInput.of(findings)
    event_dims, network_dims = dims[0][0], tree.location.shape[1] if tree is not None else None
    findings += failed_checks(table, "subscribers", "subscriber_id", _subscriber_checks(event_dims, network_dims))
    findings += duplicated_ids(table, "subscribers", "subscriber_id")
    event_table = None
    if events is not None:
        event_table = conform(events, EVENTS, "events")
        findings += _event_findings(event_table, event_dims)
    if findings or tree is None:
        raise BadInput.of(findings)
    extent = table.agg(
        F.count("*"),
        *[F.min(F.col("low")[k]) for k in range(event_dims)],
        *[F.max(F.col("high")[k]) for k in range(event_dims)],
    ).first()
    assert extent is not None
    corners = tuple(extent)[1:]
    return AssignmentProblem(
        tree, table, limits or Limits(), extent[0], corners[:event_dims], corners[event_dims:], event_table
    )  # fmt: skip


def broker_tree(brokers: DataFrame) -> BrokerTree:
    """The checked broker tree; brokers are few and come to the driver."""
    tree, findings = _tree(conform(brokers, BROKERS, "brokers"))
    if tree is None:
        raise BadInput.of(findings)
    return tree


def _subscriber_checks(event_dims: int, network_dims: int | None) -> list[Check]:
    inverted = F.exists(F.arrays_zip("low", "high"), lambda side: side["low"] > side["high"])
    wrong_event = (F.size("low") != event_dims) | (F.size("high") != event_dims)
    checks = [
        Check("a null subscriber_id", F.col("subscriber_id").isNull(), "give each subscriber an id"),
        Check("a null, empty or not finite location", vector_problem("location"), "remove them or mend the coordinates"),
        Check("a null, empty or not finite low or high", vector_problem("low") | vector_problem("high"), "mend the subscription"),
        Check(f"a low or high that has not {event_dims} dimensions", wrong_event, "all subscriptions share one event space"),
        Check("low > high", inverted, "swap the corners"),
        Check("a negative or NaN max_latency", (F.col("max_latency") < 0) | F.isnan("max_latency"), "use null for the default"),
    ]
    if network_dims is not None:
        wrong_network = F.size("location") != network_dims
        checks.append(Check(f"a location that has not the brokers' {network_dims} dimensions", wrong_network, "use one network space"))
    return checks


def _event_findings(events: DataFrame, dims: int) -> list[str]:
    numbered = events.withColumn("event", F.to_json("point"))
    findings = failed_checks(
        numbered,
        "events",
        "event",
        [
            Check("a null, empty or not finite point", vector_problem("point"), "remove them"),
            Check(f"a point that has not {dims} dimensions", F.size("point") != dims, "events live in the subscriptions' space"),
            Check("a null, negative or NaN weight", F.col("weight").isNull() | (F.col("weight") < 0) | F.isnan("weight"), "use weights >= 0"),
        ],
    )
    totals = events.agg(F.count("*"), F.sum("weight")).first()
    assert totals is not None
    if totals[0] == 0 or not totals[1]:
        findings.append("events: the table has no event of positive weight; leave it away for uniform events")
    if totals[0] > MOST_EVENTS:
        findings.append(f"events: {totals[0]:,} rows; a sample of at most {MOST_EVENTS:,} is expected")
    return findings


def _tree(brokers: DataFrame) -> tuple[BrokerTree | None, list[str]]:
    rows = brokers.orderBy("broker_id").collect()
    findings = _broker_findings(rows)
    if findings:
        return None, findings
    children: dict[int | None, list[Row]] = {}
    for row in rows:
        children.setdefault(row["parent_id"], []).append(row)
    ordered: list[Row] = []
    parents: list[int] = []
    queue: list[tuple[Row, int]] = [(children[None][0], -1)]
    while queue:
        row, parent = queue.pop(0)
        ordered.append(row)
        parents.append(parent)
        here = len(ordered) - 1
        queue += [(child, here) for child in children.get(row["broker_id"], [])]
    if len(ordered) < len(rows):
        reached = {row["broker_id"] for row in ordered}
        lost = [row["broker_id"] for row in rows if row["broker_id"] not in reached]
        return None, [f"brokers: {len(lost):,} brokers hang in a cycle (broker_id {examples(lost, len(lost))}); each must lead up to the root"]
    ids = np.array([row["broker_id"] for row in ordered], dtype=np.int64)
    location = np.array([row["location"] for row in ordered], dtype=np.float64)
    bare = BrokerTree(ids, np.array(parents), location, np.empty(0))
    if len(bare.leaves) == 0:
        return None, ["brokers: only the publisher (the row without a parent) is there; add brokers below it"]
    shares, findings = _shares([ordered[leaf] for leaf in bare.leaves])
    return (None, findings) if findings else (BrokerTree(ids, bare.parent, location, shares), [])


def _broker_findings(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["brokers: the table is empty"]
    ids = [row["broker_id"] for row in rows]
    known, findings = set(ids), []

    def find(what: str, bad: list[object], remedy: str) -> None:
        if bad:
            findings.append(f"brokers: {len(bad):,} {what} (broker_id {examples(bad, len(bad))}); {remedy}")

    find("rows with a null broker_id", [i for i in ids if i is None], "give each broker an id")
    repeated = sorted({i for i in ids if i is not None and ids.count(i) > 1}) if len(known) < len(ids) else []
    find("duplicate values of broker_id", list(repeated), "keep one row an id")
    roots = [row["broker_id"] for row in rows if row["parent_id"] is None]
    if not roots:
        findings.append("brokers: no row has a null parent_id; the publisher is the one row without a parent")
    if len(roots) > 1:
        find("rows with a null parent_id", list(roots), "only the publisher has no parent")
    lost = [row["broker_id"] for row in rows if row["parent_id"] is not None and row["parent_id"] not in known]
    find("rows with an unknown parent_id", lost, "name an existing broker")

    def unusable(vector: Sequence[float] | None) -> bool:
        return not vector or any(x is None or not math.isfinite(x) for x in vector)

    find("rows with a null, empty or not finite location", [r["broker_id"] for r in rows if unusable(r["location"])], "mend the coordinates")
    sizes = [len(r["location"]) for r in rows if r["location"]]
    if sizes:
        usual = max(set(sizes), key=sizes.count)
        odd = [row["broker_id"] for row in rows if row["location"] and len(row["location"]) != usual]
        find(f"rows whose location has not {usual} dimensions", odd, "use one network space")
    return findings


def _shares(leaves: Sequence[Row]) -> tuple[np.ndarray, list[str]]:
    given = [row["capacity"] for row in leaves]
    if all(value is None for value in given):
        return np.full(len(leaves), 1 / len(leaves)), []
    bad = [row["broker_id"] for row in leaves if row["capacity"] is None or not row["capacity"] > 0]
    if bad:
        return np.empty(0), [
            f"brokers: {len(bad):,} leaves whose capacity is null, zero, negative or NaN while others have one "
            f"(broker_id {examples(bad, len(bad))}); give every leaf a positive share, or none"
        ]
    total = float(sum(given))
    if abs(total - 1) > 1e-6:
        return np.empty(0), [f"brokers: the capacities of the {len(leaves)} leaves sum to {total:.6g}; they are shares and must sum to 1"]
    return np.array(given) / total, []
