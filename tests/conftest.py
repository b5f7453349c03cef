"""What every test may use: a node without GPU, a registry written on the spot, the command in a
process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import PATIENCE, ROOT

from hpml_plugins.host import Host, make_host
from hpml_plugins.model import Gpu, Node
from hpml_plugins.registry import read_registry


@pytest.fixture
def node() -> Node:
    """A small machine without GPU."""
    return Node(
        os="Linux 6", arch="x86_64", cpu="Test CPU", num_cpu=2, ram=2.0**34, python="3.11"
    )


@pytest.fixture
def gpu_node() -> Node:
    """A machine with two H200."""
    card = Gpu(name="NVIDIA H200", memory=141e9)
    return Node(
        os="Linux 6",
        arch="x86_64",
        cpu="C",
        num_cpu=16,
        ram=2.0**37,
        python="3.12",
        gpus=(card, card),
    )


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a dedented file into the test's folder and return its path."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    return write


@pytest.fixture
def host_of(write: Callable[[str, str], Path]) -> Callable[..., Host]:
    """The host of a registry text and of plugin files given by name: `host_of(registry,
    toy=TOY)`."""

    def host_of(registry: str, **files: str) -> Host:
        for name, text in files.items():
            write(f"{name}.py", text)
        return make_host(read_registry(write("registry.yaml", registry)))

    return host_of


@pytest.fixture
def hpml(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command, run in a process of its own in the test's folder."""

    def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hpml_plugins", *args],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path), "COLUMNS": "200", **env},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def committed_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """results/ as committed: `make bench` adds results to a checkout, of which its texts and bands
    are not made."""
    command = ["git", "archive", "--format=zip", "-0", "HEAD", "results"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    folder = tmp_path_factory.mktemp("committed")
    with zipfile.ZipFile(io.BytesIO(archive)) as committed:
        committed.extractall(folder)
    return folder / "results"
