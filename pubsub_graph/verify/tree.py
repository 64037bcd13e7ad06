"""The broker tree as the verifier reads it: from the rows of the table, checked, with code of its own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql import Row

from pubsub_graph.errors import BadInput, examples

__all__ = ["Tree", "is_finite", "read_tree"]


@dataclass(frozen=True)
class Tree:
    root: int
    parents: dict[int, int]  # without the root
    locations: dict[int, list[float]]
    leaves: list[int]
    shares: np.ndarray  # kappa, in the order of ``leaves``
    depth: int


def read_tree(rows: Sequence[Row]) -> Tree:
    locations = {row["broker_id"]: row["location"] for row in rows}
    roots = [row["broker_id"] for row in rows if row["parent_id"] is None]
    if len(locations) != len(rows):
        repeated = [key for key, count in Counter(row["broker_id"] for row in rows).items() if count > 1]
        raise BadInput(f"brokers: broker_id occurs more than once ({examples(repeated, len(repeated))}); keep one row an id")
    if len(roots) != 1:
        raise BadInput(f"brokers: {len(roots)} rows with a null parent_id ({examples(roots, len(roots))}); exactly one is the root")
    width = len(locations[roots[0]] or ())
    bad = [key for key, at in locations.items() if not is_finite(at, width)]
    if not width or bad:
        raise BadInput(f"brokers: location is null, not finite or not of {width} coordinates ({examples(bad, len(bad))})")
    parents = {row["broker_id"]: row["parent_id"] for row in rows if row["parent_id"] is not None}
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    reached, level, depth = set(roots), roots, 0
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        reached.update(level)
        depth += bool(level)
    lost = sorted(parents.keys() - reached)
    if lost:
        raise BadInput(f"brokers: {len(lost)} are not below the root ({examples(lost, len(lost))}); mend their parent_id")
    leaves = sorted(key for key in parents if key not in children)
    if not leaves:
        raise BadInput("brokers: there is no leaf below the root; at least one is needed")
    capacity = {row["broker_id"]: row["capacity"] for row in rows}
    given = [capacity[leaf] for leaf in leaves]
    if all(value is None for value in given):
        shares = np.full(len(leaves), 1.0 / len(leaves))
    elif any(value is None or not value >= 0 for value in given):
        raise BadInput("brokers: capacity must be given for every leaf, zero or more, or for none")
    else:
        shares = np.array(given, dtype=float)
        if not math.isclose(shares.sum(), 1.0, rel_tol=1e-6):
            raise BadInput(f"brokers: the capacities of the leaves sum to {shares.sum():.9g}; they are shares and must sum to 1")
    return Tree(roots[0], parents, locations, leaves, shares, depth)


def is_finite(vector: Sequence[float] | None, width: int) -> bool:
    return vector is not None and len(vector) == width and all(x is not None and math.isfinite(x) for x in vector)
