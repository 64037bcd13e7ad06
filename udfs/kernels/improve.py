"""Ruin and recreate on an overlay: take the links of a few nodes away, let GM-M put back what is missing, keep what is not worse.

``improve_links`` looks for a better overlay: with a lower maximum degree, then fewer nodes of that degree, then fewer links.
``relieve_links`` brings busy nodes down to a given degree and touches few links. The links given may be a part of a larger
overlay: ``component`` tells what the rest connects, ``outside`` how many links of the rest a node has.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.merge import Interests, merge_greedily
from udfs.kernels.prune import joined_components, needed_links, shared_topics

__all__ = ["improve_links", "relieve_links"]

Ints = NDArray[np.int64]
Links = NDArray[np.int32]

HELPERS = 120
"""Nodes, beside those whose links were taken, that may take links."""
PRUNE_EVERY = 50
TRIES = 40
"""Attempts to relieve a node of a link or more."""
MOST_ATTEMPTS = 1_000
"""Attempts in all."""
MOST_OWN = 5
"""An attempt takes away the links that a node has too many, and fewer than this more."""


def improve_links(
    interests: Interests,
    links: Links,
    *,
    seed: int,
    seconds: float,
    component: Ints | None = None,
    outside: Ints | None = None,
    moves: int | None = None,
) -> tuple[Links, int]:
    """(links, moves made). Never worse than the links given; ``moves`` limits them where a result must not depend on the clock."""
    rng = np.random.default_rng(seed)
    outside = np.zeros(interests.nodes, dtype=np.int64) if outside is None else outside
    links = links[needed_links(interests, links, component)]
    best, made, end = _worth(interests, links, outside), 0, time.perf_counter() + seconds
    current, worth = links, best
    while time.perf_counter() < end and (moves is None or made < moves) and len(current):
        made += 1
        trial = _recreate(interests, current, component, outside, rng)
        if made % PRUNE_EVERY == 0:
            trial = trial[needed_links(interests, trial, component)]
        value = _worth(interests, trial, outside)
        if value <= worth:
            current, worth = trial, value
    current = current[needed_links(interests, current, component)]
    return (current, made) if _worth(interests, current, outside) <= best else (links, made)


def _worth(interests: Interests, links: Links, outside: Ints) -> tuple[int, int, int]:
    degree = outside + np.bincount(links.ravel(), minlength=interests.nodes)
    most = int(degree.max(initial=0))
    return most, int((degree == most).sum()), len(links)


def relieve_links(
    interests: Interests, links: Links, cap: int, *, seed: int, component: Ints | None = None, outside: Ints | None = None
) -> tuple[Links, int]:
    """(links, attempts made): as few nodes above the degree ``cap`` as could be reached, by as little as could be reached.

    A busy node, the busiest first, loses some of its links, and GM-M puts back what is missing among helpers with room; the
    exchange stays if the nodes above the cap are by fewer links above it.
    """
    rng = np.random.default_rng(seed)
    outside = np.zeros(interests.nodes, dtype=np.int64) if outside is None else outside
    given_up, made = np.zeros(interests.nodes, dtype=bool), 0
    while True:
        degree = outside + np.bincount(links.ravel(), minlength=interests.nodes)
        over = np.maximum(degree - cap, 0)
        over[given_up | (degree == outside)] = 0
        if not over.any() or made >= MOST_ATTEMPTS:
            return links, made
        centre = int(over.argmax())
        own = np.flatnonzero((links == centre).any(1))
        for _ in range(TRIES):
            made += 1
            gone = np.zeros(len(links), dtype=bool)
            gone[rng.permutation(own)[: over[centre] + rng.integers(MOST_OWN)]] = True
            trial = _put_back(interests, links, gone, component, outside, cap, rng)
            if _above(interests, trial, outside, cap) < _above(interests, links, outside, cap):
                links = trial
                break
        else:
            given_up[centre] = True


def _above(interests: Interests, links: Links, outside: Ints, cap: int) -> int:
    return int(np.maximum(outside + np.bincount(links.ravel(), minlength=interests.nodes) - cap, 0).sum())


def _recreate(interests: Interests, links: Links, component: Ints | None, outside: Ints, rng: np.random.Generator) -> Links:
    degree = outside + np.bincount(links.ravel(), minlength=interests.nodes)
    most = int(degree.max())
    busiest = np.flatnonzero((degree == most) & (degree > outside))
    centre = int(rng.choice(busiest)) if len(busiest) and rng.random() < 0.6 else int(links[rng.integers(len(links)), 0])
    near = np.unique(links[(links == centre).any(1)])
    taken = np.append(rng.permutation(near)[: rng.integers(1, 4)], centre)
    hit = np.isin(links, taken)
    gone = hit.any(1) & ((links == centre).any(1) | (rng.random(len(links)) < 0.6))
    return _put_back(interests, links, gone, component, outside, most - int(rng.integers(2)), rng)


def _put_back(
    interests: Interests, links: Links, gone: NDArray[np.bool_], component: Ints | None, outside: Ints, cap: int, rng: np.random.Generator
) -> Links:
    """The links without those of ``gone``, and what GM-M adds among the ends of those and some helpers, ``cap`` first."""
    left = links[~gone]
    now = outside + np.bincount(left.ravel(), minlength=interests.nodes)
    joined = joined_components(interests, left, component)
    lost = np.zeros(interests.topics, dtype=bool)
    lost[shared_topics(interests, links[gone])[1]] = True
    asked = np.add.reduceat(lost[interests.topic], interests.start[:-1])
    helpers = rng.permutation(interests.nodes)[: 4 * HELPERS]
    worth = asked[helpers] * np.maximum(cap - now[helpers], 0)
    helpers = helpers[np.argsort(-worth, kind="stable")][: min(HELPERS, int((worth > 0).sum()))]
    nodes = np.union1d(np.unique(links[gone]), helpers)
    some = interests.of(nodes)
    entry = np.concatenate([np.arange(interests.start[v], interests.start[v + 1]) for v in nodes])
    new = nodes[merge_greedily(some, joined[entry], now[nodes], cap)].astype(np.int32).reshape(-1, 2)
    return np.concatenate([left, new])
