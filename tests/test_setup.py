"""The house: which package imports which, which Spark APIs stay out, the presets, and set-up's jar. No Spark is started."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

# folder -> what no file below it may import
FORBIDDEN_IMPORTS = {
    "udfs/kernels": ("pyspark", "graphframes", "pubsub_graph", "jobs", "udfs!kernels"),
    "udfs": ("pubsub_graph", "jobs"),
    "pubsub_graph": ("jobs",),
    "pubsub_graph/verify": ("udfs", "pubsub_graph.assignment", "pubsub_graph.topics", "pubsub_graph.components"),
}
PRESET_KEYS = {"alpha", "max_delay", "lbf", "lbf_max", "epsilon"}


def imports(source: str, module: str, is_package: bool = False) -> set[str]:
    """Every module name that ``source`` imports, at any depth, relative names resolved against ``module``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*parts, *([base] if base else [])])
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


def offends(name: str, rule: str) -> bool:
    if rule == "udfs!kernels":  # udfs itself, but not its kernels
        return (name == "udfs" or name.startswith("udfs.")) and not (name == "udfs.kernels" or name.startswith("udfs.kernels."))
    return name == rule or name.startswith(rule + ".")


def bad_imports(folder: str, rules: tuple[str, ...]) -> list[str]:
    bad = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        relative = path.relative_to(ROOT).with_suffix("")
        is_package = relative.name == "__init__"
        module = ".".join(relative.parts[:-1] if is_package else relative.parts)
        for name in sorted(imports(path.read_text(), module, is_package)):
            # `from udfs import kernels` names `udfs` on the way to an allowed module
            if any(offends(name, rule) for rule in rules) and not (name == "udfs" and "udfs!kernels" in rules):
                bad.append(f"{path.relative_to(ROOT)} imports {name}")
    return bad


@pytest.mark.parametrize("folder", FORBIDDEN_IMPORTS)
def test_imports_point_along_the_arrows(folder: str) -> None:
    assert list((ROOT / folder).rglob("*.py")), f"no files below {folder}: the test looks at nothing"
    assert bad_imports(folder, FORBIDDEN_IMPORTS[folder]) == []


def test_the_import_check_sees_every_form() -> None:
    source = "import pyspark.sql as s\ndef f():\n    from ..assignment import greedy\nfrom udfs.geometry import volume\n"
    names = imports(source, "pubsub_graph.verify.assignment")
    assert {"pyspark.sql", "pubsub_graph.assignment", "pubsub_graph.assignment.greedy", "udfs.geometry"} <= names
    assert imports("from . import a", "udfs.kernels", is_package=True) == {"udfs.kernels", "udfs.kernels.a"}
    assert offends("udfs.geometry", "udfs!kernels") and not offends("udfs.kernels.flow", "udfs!kernels")
    assert not offends("udfs_other", "udfs")


def forbidden_api(source: str) -> list[str]:
    """`.rdd`, `.sparkContext`, `._jvm` and Spark's `rand`, with line numbers."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            if node.attr in {"rdd", "sparkContext", "_jvm", "_jsc", "_jdf"}:
                found.append(f"line {node.lineno}: .{node.attr}")
            if node.attr in {"rand", "randn"} and isinstance(node.value, ast.Name) and node.value.id in {"F", "sf", "functions"}:
                found.append(f"line {node.lineno}: {node.value.id}.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module == "pyspark.sql.functions":
            found.extend(f"line {node.lineno}: {alias.name}" for alias in node.names if alias.name in {"rand", "randn"})
    return found


def test_dataframes_only() -> None:
    bad = []
    for folder in ("pubsub_graph", "udfs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path != ROOT / "pubsub_graph" / "session.py":
                bad += [f"{path.relative_to(ROOT)} {use}" for use in forbidden_api(path.read_text())]
    assert bad == []


def test_the_api_check_can_fail() -> None:
    source = (
        '"""Says .rdd in words."""\nx = df.rdd.map(f)\ny = spark.sparkContext\nz = F.rand(7)\n'
        "from pyspark.sql.functions import rand\nr = rng.rand()\n"
    )
    assert sorted(forbidden_api(source)) == ["line 2: .rdd", "line 3: .sparkContext", "line 4: F.rand", "line 5: rand"]


PRESETS = sorted((ROOT / "conf" / "presets").glob("*.json"))


def test_the_papers_settings_are_there() -> None:
    assert {path.stem for path in PRESETS} >= {"set1", "set2", "set3", "multilevel-tight", "multilevel-loose"}


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_presets(path: Path) -> None:
    preset = json.loads(path.read_text())
    assert set(preset) <= PRESET_KEYS
    assert {"alpha", "max_delay", "lbf", "lbf_max"} <= set(preset)
    assert isinstance(preset["alpha"], int) and preset["alpha"] >= 1
    assert preset["max_delay"] >= 0
    assert 1 <= preset["lbf"] <= preset["lbf_max"]


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "conf" / "bootstrap.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bootstrap"] = module
    spec.loader.exec_module(module)
    return module


WANTED = {
    "org/graphframes/GraphFrame.class": b"one",
    "org/apache/spark/graphframes/Graph.class": b"two",
    "org/apache/spark/sql/graphframes/Conf.class": b"three",
}
OTHERS = dict.fromkeys(["zingg/Main.class", "org/apache/spark/sql/Other.class", "org/graphframesx/A.class", "META-INF/LICENSE"], b"no")


def fake_jar(path: Path, files: dict[str, bytes], when: tuple[int, int, int, int, int, int] = (2020, 1, 1, 0, 0, 0)) -> Path:
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("org/graphframes/", b"")
        for name, content in files.items():
            jar.writestr(zipfile.ZipInfo(name, date_time=when), content)
    return path


def test_slim_jar_takes_only_graphframes(bootstrap: ModuleType, tmp_path: Path) -> None:
    source = fake_jar(tmp_path / "fat.jar", {**OTHERS, **WANTED})
    target = tmp_path / "slim.jar"
    assert bootstrap.slim_jar([source], target, bootstrap.content_hash(WANTED.items())) == 3
    with zipfile.ZipFile(target) as jar:
        assert {name: jar.read(name) for name in jar.namelist()} == WANTED


def test_slim_jar_is_the_same_bytes_from_other_archives(bootstrap: ModuleType, tmp_path: Path) -> None:
    expected = bootstrap.content_hash(WANTED.items())
    backwards = dict(reversed(WANTED.items()))
    one = fake_jar(tmp_path / "one.jar", WANTED)
    two = fake_jar(tmp_path / "two.jar", backwards, when=(2024, 5, 5, 5, 5, 4))
    bootstrap.slim_jar([one], tmp_path / "a.jar", expected)
    bootstrap.slim_jar([two], tmp_path / "b.jar", expected)
    assert (tmp_path / "a.jar").read_bytes() == (tmp_path / "b.jar").read_bytes()
    # the classes may also come in two jars, as they do from Maven
    first, *rest = WANTED.items()
    parts = [fake_jar(tmp_path / "main.jar", dict([first])), fake_jar(tmp_path / "graphx.jar", dict(rest))]
    assert bootstrap.slim_jar(parts, tmp_path / "c.jar", expected) == 3


@pytest.mark.parametrize("change", ["content", "missing", "extra", "nothing at all"])
def test_a_jar_with_another_hash_is_refused(bootstrap: ModuleType, tmp_path: Path, change: str) -> None:
    expected = bootstrap.content_hash(WANTED.items())
    files = dict(WANTED)
    if change == "content":
        files["org/graphframes/GraphFrame.class"] = b"0ne"
    elif change == "missing":
        del files["org/apache/spark/graphframes/Graph.class"]
    elif change == "extra":
        files["org/graphframes/Evil.class"] = b"boo"
    else:
        files = {}
    target = tmp_path / "slim.jar"
    with pytest.raises(bootstrap.SetupError, match=expected):
        bootstrap.slim_jar([fake_jar(tmp_path / "fat.jar", files)], target, expected)
    assert not target.exists()


def test_every_requirement_is_pinned() -> None:
    lines = [line for line in (ROOT / "conf" / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) > 20
    assert [line for line in lines if "==" not in line or "/" in line or "@" in line] == []
