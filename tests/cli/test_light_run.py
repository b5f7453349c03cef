"""What `hpml run FILE.py` imports and starts for a point on the CPU: what a measurement needs, and
nothing of pages, merging, asv or tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import TOY

from hpml_plugins.node import detect_node

#: Runs hpml, and writes a line for each process: what it was, and our modules that it imported.
#: A fork shares its parent's; the measuring process ends by os._exit.
WATCHED = """
import atexit, os, sys

def note(what):
    ours = [name for name in sys.modules if name.startswith("hpml_plugins.")]
    with open("noted", "a") as file:
        print(what, *ours, file=file)

def exit_noted(status, end=os._exit):
    note("end")
    end(status)

os._exit = exit_noted
os.register_at_fork(after_in_child=lambda: note("fork"))
atexit.register(note, "end")
from hpml_plugins.cli import main
main()
"""
#: Of the core: what only other commands need.
NOT_NEEDED = (
    "analysis",
    "asv",
    "tools",
    "workloads",
    "plugins",
    "report.charts",
    "report.figures",
    "report.origins",
    "report.site",
    "report.tables",
    "store.asv_results",
    "store.declarations",
    "store.history",
    "store.locks",
    "store.merge",
    "store.projection",
    "measure.gpu_monitor",
    "measure.gpu_timer",
    "measure.power_limit",
    "measure.telemetry",
    "node.nvml",
    "model.alike_code",
    "model.figure",
    "model.finding",
    "model.site_page",
    "published",
    "suite.functions",
    "measure.ranks.launch",
    "measure.ranks.launchers",
    "measure.ranks.worker",
    "measure.ranks.collective_timing",
)
REGISTRY = (
    "version: 1\nplugins:\n  - {name: datasets, module: hpml_plugins.workloads.datasets}\n"
)
#: Modules of ours, packages included, that a process of such a run may have: each further one is
#: to be imported where it is needed.
MOST_MODULES = 60
UNWANTED = tuple(f"hpml_plugins.{name}." for name in NOT_NEEDED)


@pytest.fixture
def noted(write: Callable[[str, str], Path]) -> list[list[str]]:
    """What each process noted of a run of one round of a plugin's file."""
    folder = write("toy.py", TOY).parent
    # a registry, as in a project: no plugin of it is loaded for a file that asks for no data
    write("registry.yaml", REGISTRY)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "run", "toy.py", "-p", "size=10", "--rounds", "1"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in (folder / "noted").read_text().splitlines()]


def test_only_what_measuring_needs_is_imported(noted: list[list[str]]) -> None:
    for _, *modules in noted:
        assert "hpml_plugins.host.host" in modules
        assert [name for name in modules if f"{name}.".startswith(UNWANTED)] == []
        assert len(modules) <= MOST_MODULES


@pytest.mark.skipif(bool(detect_node().gpus), reason="a node with GPUs asks NVML in a fork")
def test_a_point_on_the_cpu_starts_four_processes(noted: list[list[str]]) -> None:
    """One loads the plugin, one measures, and each has a supervisor."""
    assert len([what for what, *_ in noted if what == "fork"]) == 4
