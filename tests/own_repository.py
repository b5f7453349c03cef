"""Somebody's own git repository, and an environment with hpml-plugins from a wheel that was built
here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from asv_project import no_network
from packaging.requirements import Requirement
from repositories import git
from support import ROOT, closure, link_packages

from hpml_plugins.tools.bundle.packages import find_uv

SETUP = """
    from setuptools import Extension, setup

    setup(name="sums", version="1", packages=["sums"], ext_modules=[Extension("sums.compiled", ["sums/compiled.c"])])
"""  # noqa: E501
#: A sum over a list, so often: a compiled extension whose speed is the commit's.
COMPILED = """
    #include <Python.h>

    static PyObject *total(PyObject *self, PyObject *list) {
        double sum = 0;
        for (int again = 0; again < AGAIN; again++)
            for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
                sum += PyFloat_AsDouble(PyList_GET_ITEM(list, i));
        return PyFloat_FromDouble(sum / AGAIN);
    }

    static PyMethodDef methods[] = {{"total", total, METH_O, ""}, {NULL}};
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "compiled", "", -1, methods};
    PyMODINIT_FUNC PyInit_compiled(void) { return PyModule_Create(&module); }
"""
PLUGIN = """
    from hpml_plugins import Benchmark, Metric, hookimpl

    def measure(bench, *, size):
        from sums.compiled import total
        numbers = [1.0] * size
        bench.check(total(numbers) == size, "the sum is wrong")
        return {"time": bench.time(lambda: total(numbers), budget=0.3)}

    @hookimpl
    def hpml_benchmarks():
        return [Benchmark("total", measure, [Metric("time", "s", "lower")], grid={"size": [20000]})]
"""


@dataclass(frozen=True)
class OwnRepository:
    """A repository, and the Python that hpml-plugins is run with."""

    path: Path
    home: Path
    python: str = sys.executable
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, python: str = sys.executable) -> OwnRepository:
        """An empty one on the branch main."""
        found = cls(folder / "mine", folder / "home", python)
        found.path.mkdir()
        found.home.mkdir()
        found.git("init", "-q", "-b", "main")
        return found

    def run(
        self, *command: str, status: int | None = 0, network: bool = False, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there, without network unless it is asked for. status: what it must end
        with, None for any."""
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "HPML", "ASV"))
        }
        path = f"{Path(self.python).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [*([] if network else no_network()), *command],
            cwd=self.path,
            env={
                **variables,
                "HOME": str(self.home),
                "COLUMNS": "200",
                "PATH": path,
                **self.env,
                **env,
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert status in (
            None,
            done.returncode,
        ), f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def hpml(
        self, *words: str, status: int | None = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run hpml there."""
        return self.run(
            self.python, "-P", "-m", "hpml_plugins", *words, status=status, **env
        )

    def asv(
        self, *words: str, status: int | None = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run asv there."""
        return self.run(self.python, "-P", "-m", "asv", *words, status=status, **env)

    def write(self, name: str, text: str) -> Path:
        """Write a dedented file."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    def write_package(self, again: int = 1) -> None:
        """The compiled package. again: how often it computes the sum."""
        self.write("setup.py", SETUP)
        self.write("sums/__init__.py", "")
        self.write("sums/compiled.c", COMPILED.replace("AGAIN", str(again)))

    def git(self, *words: str) -> str:
        """Run git there."""
        return git(self.path, *words)

    def commit(self, message: str) -> str:
        """Commit everything and return the hash."""
        self.git("add", "-A")
        self.git("commit", "-qm", message)
        return self.git("rev-parse", "HEAD")


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout's tracked files, built offline in a copy: a build folder may hold
    stale files."""
    source = folder / "source"
    listed = subprocess.run(
        [
            "git",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "--",
            ".",
            ":!results",
            ":!tests",
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        *options,
        "--wheel-dir",
        str(folder / "wheel"),
        ".",
    ]
    subprocess.run([*no_network(), *command], cwd=source, check=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    return wheel


def dependencies() -> set[str]:
    """What the wheel and its extras `publish` and `cluster` require, numba for a built-in plugin,
    and what builds and tests a repository's package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = [*project["dependencies"], *extras["publish"], *extras["cluster"]]
    return closure(
        [
            *(Requirement(text).name for text in required),
            "numba",
            "pip",
            "pytest",
            "setuptools",
        ]
    )


def install_wheel(wheel: Path, folder: Path) -> str:
    """An environment outside any checkout with the wheel, and links to what it requires; returns
    its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python3.*/site-packages"))
    link_packages(dependencies(), site)
    python = str(folder / "bin" / "python")
    options = ["--quiet", "--no-deps", "--no-index", "--python", python]
    subprocess.run(
        [*no_network(), find_uv(), "pip", "install", *options, str(wheel)], check=True
    )
    return python
