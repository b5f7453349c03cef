"""docs/write-a-plugin.md, run: its plugins, its registry, its tests, and its four commands from
nothing to the page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from asv_project import Project, make_project
from support import ROOT
from workload_pages import read_points

from hpml_plugins.model.serialization import decode
from hpml_plugins.registry import read_registry

__all__ = ["make_project"]

PAGE = (ROOT / "docs" / "write-a-plugin.md").read_text()
BLOCKS = [
    textwrap.dedent(block).strip("\n")
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE, re.MULTILINE)
]
(COMMANDS,) = [block for block in BLOCKS if block.startswith("hpml new")]
(REGISTRY,) = [block for block in BLOCKS if block.startswith("version: 1")]
(SMALLEST,) = [block for block in BLOCKS if '"smallest"' in block and "@hookimpl" in block]
(AXPY,) = [block for block in BLOCKS if '"axpy"' in block]
(COPYING,) = [block for block in BLOCKS if "run_program" in block]
(MORE,) = [block for block in BLOCKS if "hpml_data" in block]
TESTS = [block for block in BLOCKS if "def test_" in block]

Hpml = Callable[..., subprocess.CompletedProcess[str]]


def test_every_python_block_is_one_of_those_run_here() -> None:
    assert [block for block in BLOCKS if "def " in block] == [
        SMALLEST,
        AXPY,
        COPYING,
        MORE,
        *TESTS,
    ]


def test_the_smallest_plugin_has_at_most_twenty_lines() -> None:
    assert len([line for line in SMALLEST.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize(
    ("name", "text", "points"),
    [
        ("smallest", SMALLEST, 2),
        pytest.param("axpy", AXPY, 2, marks=pytest.mark.slow),
        ("copying", COPYING, 2),
        ("parity", MORE, 2),
    ],
)
def test_a_plugin_of_the_page_is_measured(
    write: Callable[[str, str], Path], hpml: Hpml, name: str, text: str, points: int
) -> None:
    write("mine.py", text)
    write("registry.yaml", "version: 1\nplugins:\n  - {name: mine, path: mine.py}\n")
    done = hpml("run", name, "--json", "--budget", "0.1", "--rounds", "1")
    records = [decode(line.encode()) for line in done.stdout.splitlines()]
    assert [(record.status, record.reason) for record in records] == [("ok", "")] * 2, (
        done.stderr
    )


def test_the_registry_of_the_page_is_one(write: Callable[[str, str], Path]) -> None:
    entries = read_registry(write("registry.yaml", REGISTRY)).plugins
    assert [list(entry.sources) for entry in entries] == [
        ["path"],
        ["module"],
        ["entry_point"],
    ]


def test_the_tests_of_the_page_pass_beside_its_smallest_plugin(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("smallest.py", SMALLEST)
    write("conftest.py", 'pytest_plugins = ["hpml_plugins.testing"]\n')
    for number, text in enumerate(TESTS):
        write(f"test_{number}.py", text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--hpml-plugin",
        "smallest.py",
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 4  # type: ignore[index]  # one a finding


@pytest.mark.slow
def test_the_four_commands_lead_from_nothing_to_a_row_on_the_page(
    make_project: Callable[[str], Project],
) -> None:
    lines = [line.partition("#")[0].split() for line in COMMANDS.splitlines()]
    assert len(lines) == 4
    project = make_project("version: 1\nplugins: []\n")
    modules = {"hpml": "hpml_plugins", "asv": "asv"}
    for command, *args in lines:
        done = project.run(sys.executable, "-m", modules[command], *args)
        assert done.returncode == 0, done.stdout + done.stderr
    html = project.path / "html"
    assert "cols=4096" in read_points(html)
    assert "path benchmarks/hpml/row_sum.py" in (html / "workload-row_sum.html").read_text()
    assert (
        json.loads((project.path / "results" / "benchmarks.json").read_text())[
            "row_sum.track_time"
        ]["version"]
        == "1"
    )
