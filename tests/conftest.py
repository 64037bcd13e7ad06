"""One Spark session for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pubsub_graph.session import make_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = make_session("tests", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def nothing_kept_between_modules() -> Iterator[None]:
    """Tests read plans after they are made, so their tables stay kept until the module ends; the heap is small."""
    yield
    session = SparkSession.getActiveSession()
    if session is not None:
        session.catalog.clearCache()
