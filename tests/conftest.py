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
