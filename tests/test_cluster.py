"""Jobs on a real standalone cluster: a master and two workers on this machine, the wheel shipped by spark-submit.

Driver and executors run a Python that does not see the checkout (no site hooks, so no editable install): what they import
comes out of the shipped wheel.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pyspark
import pytest
from pandas.testing import assert_frame_equal

from pubsub_graph.session import find_java

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parent.parent
SPARK_HOME = Path(pyspark.__file__).parent
COMMAND = Path(sys.executable).parent / "pubsub-graph"
LIMIT = 600  # seconds for one job


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def get_json(port: int, path: str) -> Any:
    """The answer, or None while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


def spark_environment(folder: Path) -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))}
    environment |= {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    java_home = find_java()
    if java_home is not None:
        environment["JAVA_HOME"] = java_home
    return environment


@dataclass
class Cluster:
    folder: Path
    port: int = field(default_factory=free_port)
    web: int = field(default_factory=free_port)
    workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)  # by the port of the worker's page
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def launch(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
                env=spark_environment(self.folder),
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group of its own: executors die with their worker
            )
        self.processes.append(process)
        return process

    def start(self) -> None:
        master = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.web))
        self.launch("master", *master)
        wait_for("the master's page", lambda: get_json(self.web, "/json/"))
        for number in range(2):
            page = free_port()
            worker = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m", "1g", "--webui-port", str(page))
            self.workers[page] = self.launch(f"worker-{number}", *worker, self.url)
        wait_for("two registered workers", lambda: (get_json(self.web, "/json/") or {}).get("aliveworkers") == 2)

    def kill_worker(self, page: int) -> None:
        worker = self.workers.pop(page)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def run_here(*arguments: str | Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_MASTER"}
    done = subprocess.run([str(COMMAND), *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr[-4000:]


def read_assignment(plan: Path) -> pd.DataFrame:
    return pq.read_table(plan / "assignment").to_pandas().sort_values("subscriber_id", ignore_index=True)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel under a name that ends in .zip: Spark 3.5 puts .zip, .egg and .jar on its workers' path, not .whl."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    source = folder / "source"  # a copy: a build leaves its traces in the folder it builds
    for name in ("jobs", "pubsub_graph", "udfs", "conf"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, source / name)
    done = subprocess.run([*build, str(source)], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("pubsub_graph-*.whl")
    return Path(shutil.copy(wheel, folder / "pubsub_graph.zip"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    run_here("generate", "--workload", "set1-ll", "--subscribers", "20000", "--brokers", "20", "--seed", "5", "--out", folder / "input")
    return folder / "input"


PLANNERS = {"gr-star": (), "slp": ("--effort", "0.3", "--tries", "2")}


@pytest.fixture(scope="module", params=["gr-star", pytest.param("slp", marks=pytest.mark.slow)])
def planner(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options of a planner."""
    return ("--algorithm", request.param, *PLANNERS[request.param])


@pytest.fixture(scope="module")
def expected(data: Path, planner: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The plan of a local run."""
    plan = tmp_path_factory.mktemp("local") / "plan"
    run_here("assign", "--input", data, "--out", plan, "--seed", "1", *planner)
    table = read_assignment(plan)
    assert len(table) == 20_000
    assert table["broker_id"].nunique() > 1
    return table


def submit(cluster: Cluster, shipped: Path, data: Path, planner: tuple[str, ...], out: Path, ui_port: int, log: Path) -> subprocess.Popen[bytes]:
    python = cluster.folder / "python"
    packages = sysconfig.get_paths()["purelib"]
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.maxResultSize": "64m",
        "spark.executor.memory": "1g",
        "spark.ui.port": str(ui_port),
        "spark.checkpoint.dir": str(cluster.folder / "checkpoints"),
        "spark.sql.shuffle.partitions": "4",
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url, "--py-files", str(shipped)]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command += [str(ROOT / "jobs" / "assign.py"), "--input", str(data), "--out", str(out), "--seed", "1", *planner]
    environment = spark_environment(cluster.folder) | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command, env=environment, cwd=cluster.folder, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    cluster.processes.append(process)
    return process


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-6000:]


def applications(cluster: Cluster) -> int:
    page = get_json(cluster.web, "/json/")
    return len(page["activeapps"]) + len(page["completedapps"])


def test_a_submitted_job_gives_the_local_plan(
    cluster: Cluster, shipped: Path, data: Path, planner: tuple[str, ...], expected: pd.DataFrame, tmp_path: Path
) -> None:
    log = tmp_path / "submit.log"
    job = submit(cluster, shipped, data, planner, tmp_path / "plan", free_port(), log)
    assert job.wait(timeout=LIMIT) == 0, tail(log)
    assert applications(cluster) == 1, "the job did not run on the cluster"
    assert_frame_equal(read_assignment(tmp_path / "plan"), expected, check_exact=True)


def test_a_lost_worker_does_not_change_the_plan(
    cluster: Cluster, shipped: Path, data: Path, planner: tuple[str, ...], expected: pd.DataFrame, tmp_path: Path
) -> None:
    log, ui_port = tmp_path / "submit.log", free_port()
    job = submit(cluster, shipped, data, planner, tmp_path / "plan", ui_port, log)

    def busy_worker() -> int | None:
        """The page port of a worker whose executor has been given a task."""
        assert job.poll() is None, f"the job ended before a worker could be killed:\n{tail(log)}"
        for application in get_json(ui_port, "/api/v1/applications") or []:
            executors = get_json(ui_port, f"/api/v1/applications/{application['id']}/executors") or []
            used = {entry["id"] for entry in executors if entry["id"] != "driver" and entry["totalTasks"] > 0}
            for page in cluster.workers:
                here = {str(entry["id"]) for entry in (get_json(page, "/json/") or {}).get("executors", [])}
                if used & here:
                    return page
        return None

    page = wait_for("an executor with a task", busy_worker, LIMIT)
    cluster.kill_worker(page)
    assert job.poll() is None, "the job was over when the worker died"
    assert job.wait(timeout=LIMIT) == 0, tail(log)
    assert len(cluster.workers) == 1
    assert_frame_equal(read_assignment(tmp_path / "plan"), expected, check_exact=True)
