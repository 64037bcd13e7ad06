"""Degrees and contributions of links, as grouped aggregations."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["contributions", "degrees"]


def contributions(labelled: DataFrame, edges: DataFrame) -> DataFrame:
    """(src, dst, topics, contribution) of links that exist or might: how many topics both ends want, and for how many of them the
    ends are in different components. ``labelled`` is (node_id, topic_id, component), as ``induced_components`` returns it.
    """
    one = labelled.select(F.col("node_id").alias("src"), "topic_id", F.col("component").alias("one"))
    other = labelled.select(F.col("node_id").alias("dst"), "topic_id", F.col("component").alias("other"))
    shared = edges.select("src", "dst").join(one, "src").join(other, ["dst", "topic_id"])
    counted = shared.groupBy("src", "dst").agg(
        F.count("*").alias("topics"), F.count(F.when(F.col("one") != F.col("other"), 1)).alias("contribution")
    )
    found = edges.select("src", "dst").join(counted, ["src", "dst"], "left")
    return found.fillna(0, ["topics", "contribution"])


def degrees(edges: DataFrame) -> DataFrame:
    """(node_id, degree) of the nodes that have links."""
    ends = edges.select(F.explode(F.array("src", "dst")).alias("node_id"))
    return ends.groupBy("node_id").agg(F.count("*").alias("degree"))
