"""One `asv run` of thousands of points: memory, open files and the CPU time of a point stay as they
were at its start."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from bisect import bisect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import killing
import psutil
import pytest
from asv_project import Project

from hpml_plugins.store import read_file

POINTS = int(os.environ.get("HPML_LONG_RUN_POINTS", "10000"))
PLUGIN = f"""
    from hpml_plugins import Benchmark, Metric, hookimpl

    def measure(bench, *, number):
        return {{"square": number ** 2}}

    @hookimpl
    def hpml_benchmarks():
        grid = {{"number": list(range({POINTS}))}}
        return [Benchmark("many", measure, [Metric("square", "1", "lower")], grid=grid)]
"""


@dataclass(frozen=True)
class Look:
    """What a process held at a moment. memory: resident, B.  files: open ones."""

    memory: int
    files: int


def look(pid: int) -> Look | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return Look(1024 * int(line.split()[1]), len(os.listdir(f"/proc/{pid}/fd")))  # noqa: PTH208
    except (OSError, ValueError):
        return None


def fork_server(asv: int) -> int | None:
    """The process that asv forks its benchmark processes from."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == asv and b"run_server" in (entry / "cmdline").read_bytes():
                return int(entry.name)
        except (OSError, ValueError):
            continue
    return None


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process, of those below it, and of those that these have waited for."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += sum(each.cpu_times()[:4])
    return total


@pytest.mark.slow
def test_a_run_of_thousands_of_points_neither_grows_nor_slows(
    make_project: Callable[[str], Project],
) -> None:
    project = make_project("version: 1\nplugins:\n  - {name: many, path: many.py}\n")
    project.write("many.py", PLUGIN)
    project.commit("many")
    looks: dict[str, list[Look]] = {"asv": [], "fork server": []}
    spent: list[tuple[float, float]] = []  # time of a look, and CPU time until then
    env = {**os.environ, "HOME": str(project.home)}
    with (
        (project.path / "said").open("wb") as said,
        subprocess.Popen(
            [sys.executable, "-m", "asv", "run"],
            cwd=project.path,
            env=env,
            stdout=said,
            stderr=said,
        ) as run,
    ):
        server = None
        while run.poll() is None:
            server = server or fork_server(run.pid)
            for name, pid in (("asv", run.pid), ("fork server", server)):
                if server and pid and (seen := look(pid)):
                    looks[name].append(seen)
            spent.append((time.time(), cpu_seconds(run.pid)))
            time.sleep(0.5)
    assert run.returncode == 0, (project.path / "said").read_text()[-2000:]

    (path,) = project.path.glob("results/*/records/*.jsonl")
    damage: list[str] = []
    records = list(read_file(path, damage.append))
    assert damage == []
    # asv run measures points in random order
    assert sorted((record.params["number"], record.status) for record in records) == [
        (n, "ok") for n in range(POINTS)
    ]

    tracemalloc.start()
    rounds = killing.rounds_below(project.path / "results")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    starts = sorted(each.started for each in rounds)
    print(f"{len(starts)} rounds of {POINTS} points in {starts[-1] - starts[0]:.0f} s")
    print(f"the Records of all rounds take {held / 1e6:.1f} MB")
    # asv run keeps each round's Record until its commit is done. That is what it may grow by: 0.7
    # of them are measured between the two looks, and they take a sixth more than is traced.
    room = {"asv": 1.2 * 0.7 * held, "fork server": 0.0}
    for name, seen in looks.items():
        tenth = max(1, len(seen) // 10)
        early, late = seen[tenth : 2 * tenth], seen[-2 * tenth : -tenth]
        memory = [statistics.median(each.memory for each in part) for part in (early, late)]
        files = [max(each.files for each in part) for part in (early, late)]
        print(
            f"{name}: {memory[0] / 1e6:.1f} MB, then {memory[1] / 1e6:.1f} MB; {files[0]} files,"
            f" then {files[1]}"
        )
        assert files[1] <= files[0] + 1, name
        assert memory[1] - memory[0] <= 5e6 + room[name], name
    # CPU time, since what else this machine does changes while the run lasts
    spent = [each for each in spent if starts[0] <= each[0] <= starts[-1]]
    tenth = len(spent) // 10
    parts = []
    for begin in range(0, 10 * tenth, tenth):
        (since, before), (until, after) = spent[begin], spent[begin + tenth - 1]
        parts.append(
            1e3 * (after - before) / (bisect(starts, until) - bisect(starts, since))
        )
    print("ms of CPU a round, by tenths: " + ", ".join(f"{part:.0f}" for part in parts))
    assert parts[-1] <= 1.5 * parts[0] + 10
