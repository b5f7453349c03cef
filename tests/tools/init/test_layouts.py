"""`hpml init`, `asv run` and `asv publish` in repositories of each layout that build tools know."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from own_repository import OwnRepository

from hpml_plugins.store import read_records
from hpml_plugins.tools.init.command import is_for_gpus, missing_packages, write_all

SETUPTOOLS = """
    [build-system]
    requires = ["setuptools"]
    build-backend = "setuptools.build_meta"

    [project]
    name = "mylib"
    version = "1"
"""


def backend(requires: str, name: str) -> str:
    """pyproject.toml of a build tool that finds the package by the project's name."""
    return SETUPTOOLS.replace('"setuptools"', f'"{requires}"').replace(
        "setuptools.build_meta", name
    )


POETRY = """
    [build-system]
    requires = ["poetry-core"]
    build-backend = "poetry.core.masonry.api"

    [tool.poetry]
    name = "mylib"
    version = "1"
    description = ""
    authors = []
"""
FLIT = """
    [build-system]
    requires = ["flit_core"]
    build-backend = "flit_core.buildapi"

    [project]
    name = "mylib"
    dynamic = ["version", "description"]
"""
MESON = """
    project('mylib', version: '1')
    py = import('python').find_installation(pure: true)
    py.install_sources('mylib/__init__.py', subdir: 'mylib')
"""
CODE = '"""What is measured."""\n__version__ = "1"\n'
#: Layout → the folder of hpml init, and its files.
LAYOUTS = {
    "setuptools-flat": ("", {"pyproject.toml": SETUPTOOLS, "mylib/__init__.py": CODE}),
    "setuptools-src": ("", {"pyproject.toml": SETUPTOOLS, "src/mylib/__init__.py": CODE}),
    "setuptools-named": (
        "",
        {
            "pyproject.toml": SETUPTOOLS
            + '\n    [tool.setuptools]\n    packages = ["mylib"]\n',
            "mylib/__init__.py": CODE,
        },
    ),
    "setuptools-module": ("", {"pyproject.toml": SETUPTOOLS, "mylib.py": CODE}),
    "hatchling": (
        "",
        {
            "pyproject.toml": backend("hatchling", "hatchling.build"),
            "mylib/__init__.py": CODE,
        },
    ),
    "poetry": ("", {"pyproject.toml": POETRY, "mylib/__init__.py": CODE}),
    "flit": ("", {"pyproject.toml": FLIT, "mylib/__init__.py": CODE}),
    "meson-python": (
        "",
        {
            "pyproject.toml": backend("meson-python", "mesonpy"),
            "meson.build": MESON,
            "mylib/__init__.py": CODE,
        },
    ),
    "monorepo": (
        "libraries/mylib",
        {
            "README.md": "Two libraries.\n",
            "libraries/mylib/pyproject.toml": SETUPTOOLS,
            "libraries/mylib/mylib/__init__.py": CODE,
            "libraries/other/pyproject.toml": SETUPTOOLS.replace("mylib", "other"),
            "libraries/other/other/__init__.py": "",
        },
    ),
    "no-pyproject": ("", {"mylib/__init__.py": CODE, "run.py": "import mylib\n"}),
}
#: The layout that `make test` tries; the others are slow.
QUICK = "setuptools-flat"


@pytest.mark.parametrize(
    "layout",
    [
        each if each == QUICK else pytest.param(each, marks=pytest.mark.slow)
        for each in LAYOUTS
    ],
)
def test_init_then_run_then_publish(layout: str, tmp_path: Path) -> None:
    """Twice: the second commit has the results of the first, which no build tool may package."""
    top = OwnRepository.make(tmp_path)
    below, files = LAYOUTS[layout]
    for name, text in files.items():
        top.write(name, text)
    top.commit("first")
    mine = replace(top, path=top.path / below)
    said = mine.hpml("init").stdout
    assert "pip install" not in said  # all that builds it is here
    top.commit("hpml init")
    mine.asv("run", "--quick")
    top.commit("results")
    mine.asv("run", "--quick")
    results = mine.path / "benchmarks" / "results"
    records = list(read_records(results))
    assert [each.status for each in records] == ["ok", "ok"], [
        each.reason for each in records
    ]
    assert len({each.commit for each in records}) == 2
    name = "export_time" if layout == "no-pyproject" else "import_time"
    assert {each.benchmark for each in records} == {name}
    mine.asv("publish")
    summary = json.loads((mine.path / ".asv" / "html" / "summary.json").read_text())
    assert summary["benchmarks"] == 1
    mine.hpml("table", name)  # finds the results that asv.conf.json names


def test_missing_build_requirements_are_named(tmp_path: Path) -> None:
    mine = OwnRepository.make(tmp_path)
    pyproject = backend("no-such-backend>=2", "no_such_backend")
    mine.write(
        "pyproject.toml", pyproject + '    dependencies = ["numpy", "no-such-library"]\n'
    )
    mine.write("mylib/__init__.py", "")
    assert missing_packages(mine.path) == ["no-such-backend>=2", "no-such-library"]
    assert "pip install 'no-such-backend>=2' no-such-library" in mine.hpml("init").stdout


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": SETUPTOOLS}, False),
        ({"pyproject.toml": SETUPTOOLS + '    dependencies = ["numpy>=2"]\n'}, False),
        ({"pyproject.toml": SETUPTOOLS + '    dependencies = ["torch>=2"]\n'}, True),
        (
            {
                "pyproject.toml": POETRY
                + "\n    [tool.poetry.dependencies]\n    jax = '*'\n"
            },
            True,
        ),
        ({"kernels/sum.cu": ""}, True),
        ({"Makefile": "all:\n"}, False),
    ],
)
@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_a_package_for_the_cpu_gets_a_runner_without_a_gpu(
    files: dict[str, str], expected: bool, service: str, tmp_path: Path
) -> None:
    mine = OwnRepository.make(tmp_path)
    for name, text in files.items():
        mine.write(name, text)
    mine.commit("first")
    assert is_for_gpus(mine.path) is expected
    write_all(mine.path, mine.path, service)
    if service == "github":
        workflow = yaml.safe_load((mine.path / ".github/workflows/hpml.yml").read_text())
        runs_on = workflow["jobs"]["gate"]["runs-on"]
        assert runs_on == (["self-hosted", "gpu"] if expected else "ubuntu-latest")
    else:
        job = yaml.safe_load((mine.path / ".gitlab-ci.yml").read_text())["hpml gate"]
        # an empty list of tags is none that GitLab's schema takes
        assert job.get("tags") == (["gpu"] if expected else None)
        assert ("image" in job) != expected


@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_the_workflow_installs_what_builds_the_package(
    service: str, tmp_path: Path
) -> None:
    mine = OwnRepository.make(tmp_path)
    mine.write("pyproject.toml", backend("hatchling>=1.2", "hatchling.build"))
    mine.write("mylib/__init__.py", "")
    write_all(mine.path, mine.path, service)
    place = ".github/workflows/hpml.yml" if service == "github" else ".gitlab-ci.yml"
    loaded = yaml.safe_load((mine.path / place).read_text())
    if service == "github":
        script = loaded["jobs"]["gate"]["steps"][2]["run"]
    else:
        script = "\n".join(loaded["hpml gate"]["script"])
    assert "pip install --quiet . 'hatchling>=1.2'\n" in script
