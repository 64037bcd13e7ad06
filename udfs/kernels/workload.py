"""The subscribers of the papers' workloads, each a function of (seed, id) alone, so any shard can make its own rows.

Set 1. The generator of the paper (from statistics of Google Groups) is not public; this is a model with the printed
properties. Three continents (Asia, North America, Europe) with 4 : 1 : 4 of the subscribers, each with cities of
Zipf-distributed size, in a 5-dimensional network space. Interests are points of a 2-dimensional event space; a
continent likes them in an order of its own (a shared order, perturbed), with Zipf popularity: exponent 0.3 for low
interest skew, 2.3 for high. A subscription is a rectangle around its interest whose sides are log-normal; broad
interests, 1% (low) or 4% (high) of them, are several times as wide.
Sets 2 and 3 follow section VI: 50 unit-square topics with ten locations each, and Zipf-ranked grid cells with a few
predefined widths at independent locations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.hashing import normals, uniforms
from udfs.kernels.tree import BrokerTree

__all__ = ["Cities", "DefeatsGrStar", "Rows", "SetOne", "SetThree", "SetTwo", "zipf_cumulative"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CONTINENTS = 3
NETWORK_DIMS = 5


@dataclass(frozen=True)
class Rows:
    """Subscribers as arrays. ``max_latency`` NaN: the limit follows from the maximum delay."""

    location: Floats
    low: Floats
    high: Floats
    max_latency: Floats
    city: Ints
    """A key by which neighbours in the network sort next to each other; used to place brokers."""


def zipf_cumulative(count: int, exponent: float) -> Floats:
    weight = np.arange(1, count + 1, dtype=float) ** -exponent
    return np.cumsum(weight / weight.sum())


def _pick(cumulative: Floats, u: Floats) -> Ints:
    return np.minimum(np.searchsorted(cumulative, u, side="right"), len(cumulative) - 1)


@dataclass(frozen=True)
class SetOne:
    """Workload set 1 with interest skew and broad interests low or high."""

    seed: int
    skewed: bool
    broad: bool
    continents: tuple[float, float, float] = (4.0, 1.0, 4.0)
    cities: int = 20
    interests: int = 400
    space: float = 10_000.0
    _made: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def exponent(self) -> float:
        return 2.3 if self.skewed else 0.3

    @property
    def broad_share(self) -> float:
        return 0.04 if self.broad else 0.01

    @property
    def publisher(self) -> Floats:
        """In Europe, away from its largest city."""
        return self._world()["continent"][2] + np.array([6.0, -4.0, 3.0, 0.0, 5.0])

    def _world(self) -> dict[str, Any]:
        if not self._made:
            rng = np.random.default_rng([self.seed, 101])
            angle = np.array([0.0, 2.1, 4.2])
            continent = np.zeros((CONTINENTS, NETWORK_DIMS))
            continent[:, 0], continent[:, 1] = 100 * np.cos(angle), 100 * np.sin(angle)
            self._made["continent"] = continent
            self._made["city"] = continent[:, None, :] + rng.normal(0, 18, (CONTINENTS, self.cities, NETWORK_DIMS))
            self._made["interest"] = rng.uniform(0.03, 0.97, (self.interests, 2)) * self.space
            shared = rng.permutation(self.interests)
            rank = np.argsort(np.argsort(shared + rng.normal(0, self.interests / 8, (CONTINENTS, self.interests)), axis=1), axis=1)
            self._made["by_rank"] = np.argsort(rank, axis=1)
        return self._made

    def rows(self, ids: Ints) -> Rows:
        world, seed = self._world(), self.seed
        weight = np.cumsum(np.array(self.continents) / sum(self.continents))
        continent = _pick(weight, uniforms(seed, 1, ids))
        city = _pick(zipf_cumulative(self.cities, 0.5), uniforms(seed, 2, ids))
        location = world["city"][continent, city] + 3.0 * normals(seed, 10, ids, NETWORK_DIMS)
        rank = _pick(zipf_cumulative(self.interests, self.exponent), uniforms(seed, 3, ids))
        interest = world["interest"][world["by_rank"][continent, rank]]
        center = interest + 0.008 * self.space * normals(seed, 30, ids, 2)
        side = 0.012 * self.space * np.exp(0.6 * normals(seed, 40, ids, 2))
        broad = uniforms(seed, 4, ids) < self.broad_share
        side *= np.where(broad, 5.0, 1.0)[:, None]
        low, high = np.clip(center - side / 2, 0, self.space), np.clip(center + side / 2, 0, self.space)
        return Rows(location, low, high, np.full(len(ids), np.nan), continent * self.cities + city)


@dataclass(frozen=True)
class SetTwo:
    """Workload set 2: topics as unit squares, each with ten network locations."""

    seed: int
    interests: int = 50
    locations: int = 10
    space: float = 1000.0

    @property
    def publisher(self) -> Floats:
        return np.zeros(NETWORK_DIMS)

    def rows(self, ids: Ints) -> Rows:
        rng = np.random.default_rng([self.seed, 202])
        corner = np.floor(rng.uniform(0, self.space - 1, (self.interests, 2)))
        place = rng.uniform(0, 100, (self.interests, self.locations, NETWORK_DIMS))
        topic = _pick(zipf_cumulative(self.interests, 0.5), uniforms(self.seed, 1, ids))
        spot = _pick(np.linspace(0.1, 1, self.locations), uniforms(self.seed, 2, ids))
        low = corner[topic]
        return Rows(place[topic, spot], low, low + 1.0, np.full(len(ids), np.nan), topic * self.locations + spot)


@dataclass(frozen=True)
class SetThree:
    """Workload set 3: Zipf-ranked grid cells, predefined widths, locations independent of interests."""

    seed: int
    cells: int = 10
    locations: int = 200
    space: float = 25_000.0
    widths: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 3.0)
    """In cells, most popular first."""

    @property
    def publisher(self) -> Floats:
        return np.zeros(NETWORK_DIMS)

    def rows(self, ids: Ints) -> Rows:
        rng = np.random.default_rng([self.seed, 303])
        by_rank = rng.permutation(self.cells**2)
        place = rng.uniform(0, 100, (self.locations, NETWORK_DIMS))
        cell = by_rank[_pick(zipf_cumulative(self.cells**2, 0.5), uniforms(self.seed, 1, ids))]
        unit = self.space / self.cells
        center = (np.stack([cell % self.cells, cell // self.cells], axis=1) + 0.5) * unit
        cumulative = zipf_cumulative(len(self.widths), 0.5)
        width = np.stack([np.array(self.widths)[_pick(cumulative, uniforms(self.seed, 2 + k, ids))] for k in range(2)], axis=1)
        spot = _pick(np.linspace(1 / self.locations, 1, self.locations), uniforms(self.seed, 9, ids))
        low, high = center - width * unit / 2, center + width * unit / 2
        return Rows(place[spot], low, high, np.full(len(ids), np.nan), spot)


@dataclass(frozen=True)
class Cities:
    """The world's cities: subscribers in proportion to population, interests shared within a country.

    ``position`` is on a sphere whose unit is the latency of a light signal through fibre (200 km a millisecond), so
    that distances are milliseconds one way, along the chord.
    """

    seed: int
    position: Floats
    population: Floats
    country: Ints
    interests: int = 400
    space: float = 10_000.0

    @property
    def publisher(self) -> Floats:
        """At the largest city."""
        return self.position[int(self.population.argmax())]

    def rows(self, ids: Ints) -> Rows:
        rng = np.random.default_rng([self.seed, 505])
        interest = rng.uniform(0.03, 0.97, (self.interests, 2)) * self.space
        city = _pick(np.cumsum(self.population) / self.population.sum(), uniforms(self.seed, 1, ids))
        location = self.position[city] + 0.1 * normals(self.seed, 10, ids, 3)
        rank = _pick(zipf_cumulative(self.interests, 1.2), uniforms(self.seed, 2, ids))
        likes = interest[(rank + 37 * self.country[city]) % self.interests]  # each country starts elsewhere in the list
        side = 0.012 * self.space * np.exp(0.6 * normals(self.seed, 40, ids, 2))
        center = likes + 0.008 * self.space * normals(self.seed, 30, ids, 2)
        low, high = np.clip(center - side / 2, 0, self.space), np.clip(center + side / 2, 0, self.space)
        return Rows(location, low, high, np.full(len(ids), np.nan), city)


@dataclass(frozen=True)
class DefeatsGrStar:
    """The workload on which Gr* pays orders of magnitude more than the optimum (the paper's supplement).

    (alpha + 1) n interests are unit squares on the line y = x, in groups with gaps of growing powers of ten. The
    optimum gives broker j the alpha + 1 consecutive interests of its group (its "home"), one gap of which is small.
    Gr* deals interests round robin and ends with alpha + 1 far squares on every broker. An interest i (from 0) below
    alpha n may be served by its home i div (alpha + 1) and its round-robin broker i mod n; where both are the same,
    the next broker (the one before, at the end of the list) joins. The printed formula counts from 1 and misses the
    home for n > 3; this one agrees with the printed table for alpha = n = 3 up to the free choice in the equal case.
    Each interest has m / ((alpha + 1) n) subscribers, so that a load factor of 1 holds exactly alpha + 1 interests.

    The network space has a dimension a broker: broker j stands at the unit vector j, the publisher at the origin. A
    subscriber of two brokers stands between them, one of all brokers at the origin; ``max_latency`` admits these only.
    """

    brokers: int
    alpha: int
    subscribers: int

    def tree(self) -> BrokerTree:
        n = self.brokers
        location = np.vstack([np.zeros(n), np.eye(n)])
        return BrokerTree(np.arange(n + 1), np.concatenate([[-1], np.zeros(n, dtype=np.int64)]), location, np.full(n, 1 / n))

    def candidate_pairs(self) -> Ints:
        """The two brokers of each restricted interest."""
        i = np.arange(self.alpha * self.brokers)
        home, dealt = i // (self.alpha + 1), i % self.brokers
        other = np.where(home == dealt, np.where(dealt + 1 < self.brokers, dealt + 1, dealt - 1), dealt)
        return np.stack([home, other], axis=1)

    def centers(self) -> Floats:
        """x (= y) of the centre of each interest."""
        i = np.arange(1, (self.alpha + 1) * self.brokers)
        return np.concatenate([[0.0], np.cumsum(10.0 ** (i % self.alpha + 1))])

    def rows(self, ids: Ints) -> Rows:
        n, restricted = self.brokers, self.alpha * self.brokers
        interests = restricted + n
        position = ids // (self.subscribers // interests)
        interest = np.where(position < restricted, position, interests - 1 - (position - restricted))  # the last ones backwards
        location = np.zeros((len(ids), n))
        max_latency = np.full(len(ids), 2.0)
        two = interest < restricted
        pairs = self.candidate_pairs()[interest[two]]
        where = np.flatnonzero(two)
        location[where, pairs[:, 0]] = location[where, pairs[:, 1]] = 0.5
        max_latency[two] = 1.8
        center = np.repeat(self.centers()[interest][:, None], 2, axis=1)
        return Rows(location, center - 0.5, center + 0.5, max_latency, interest)
