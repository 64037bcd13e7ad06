"""Ruin and recreate on an overlay: take the links of a few nodes away, let GM-M put back what is missing, keep what is not worse.

An overlay is better with a lower maximum degree, then fewer nodes of that degree, then fewer links. The links given may be a
part of a larger overlay: ``component`` tells what the rest connects, ``outside`` how many links of the rest a node has.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from udfs.kernels.merge import Interests, merge_greedily
from udfs.kernels.prune import joined_components, needed_links

__all__ = ["improve_links"]

Ints = NDArray[np.int64]
Links = NDArray[np.int32]

HELPERS = 120
"""Nodes, beside those whose links were taken, that may take links."""
PRUNE_EVERY = 50


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


def _recreate(interests: Interests, links: Links, component: Ints | None, outside: Ints, rng: np.random.Generator) -> Links:
    degree = outside + np.bincount(links.ravel(), minlength=interests.nodes)
    most = int(degree.max())
    busiest = np.flatnonzero((degree == most) & (degree > outside))
    centre = int(rng.choice(busiest)) if len(busiest) and rng.random() < 0.6 else int(links[rng.integers(len(links)), 0])
    near = np.unique(links[(links == centre).any(1)])
    taken = np.append(rng.permutation(near)[: rng.integers(1, 4)], centre)
    hit = np.isin(links, taken)
    gone = hit.any(1) & ((links == centre).any(1) | (rng.random(len(links)) < 0.6))
    left = links[~gone]
    joined = joined_components(interests, left, component)
    helpers = rng.permutation(interests.nodes)[: 4 * HELPERS]
    helpers = helpers[np.argsort(degree[helpers], kind="stable")][:HELPERS]
    nodes = np.union1d(np.unique(links[gone]), helpers)
    some = interests.of(nodes)
    entry = np.concatenate([np.arange(interests.start[v], interests.start[v + 1]) for v in nodes])
    now = outside + np.bincount(left.ravel(), minlength=interests.nodes)
    cap = max(int(now.max()), most - 1)
    new = nodes[merge_greedily(some, joined[entry], now[nodes], cap)].astype(np.int32).reshape(-1, 2)
    return np.concatenate([left, new])
