"""A long history made on the spot: a repository and Records of it, for timing `asv publish`."""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.model import MetricSamples, Record
from hpml_plugins.store import record_file

CARDS = ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S", "NVIDIA L4", "Tesla T4")
STARTED = 1_700_000_000
DAY = 86_400
#: Samples of each point, as shares of its value.
SHARES = (-0.01, -0.006, -0.002, 0.0, 0.002, 0.006, 0.01)


@dataclass(frozen=True)
class History:
    """How much history. values: commits × machines × benchmarks × points."""

    commits: int
    machines: int = 8
    benchmarks: int = 40
    points: int = 8

    @property
    def values(self) -> int:
        """How many numbers it holds."""
        return self.commits * self.machines * self.benchmarks * self.points


def make_history(project: Path, history: History) -> list[str]:
    """Write a git repository and `results/` into a folder that exists; returns the commits, oldest first.

    asv's result files are written from the Records by `hpml_plugins.store.project`. Half of the metrics are times and
    half throughputs. Each series has noise of 1 % with intervals of that width, and three changes of level, up or down
    by 3 to 30 %, as the code's speed has. The same history gives the same files.
    """
    commits = _make_repository(project, history.commits)
    benchmarks = [_benchmark(number, history.points) for number in range(history.benchmarks)]
    results = project / "results"
    results.mkdir()
    (results / "benchmarks.json").write_text(json.dumps({each["name"]: each for each in benchmarks} | {"version": 2}))
    for number in range(history.machines):
        machine = _machine(number)
        folder = results / machine["machine"]
        folder.mkdir()
        (folder / "machine.json").write_text(json.dumps({**machine, "version": 1}))
        levels = {each["name"]: _levels(number, each, history) for each in benchmarks}
        (folder / "records").mkdir()
        for place, commit in enumerate(commits):
            lines = (
                msgspec.json.encode(record) + b"\n"
                for each in benchmarks
                for record in _records(each, levels[each["name"]], place, commit, machine)
            )
            record_file(results, machine["machine"], commit).write_bytes(b"".join(lines))
    return commits


def _make_repository(project: Path, count: int) -> list[str]:
    lines = []
    for place in range(count):
        who = f"made <made@example.invalid> {STARTED + place * DAY} +0000"
        message = f"change {place}"
        lines += ["commit refs/heads/main", f"mark :{place + 1}", f"committer {who}", f"data {len(message)}", message]
        lines += [f"from :{place}"] if place else []
        lines += ["M 644 inline place.txt", f"data {len(str(place))}", str(place), ""]

    def git(*words: str, text: str = "") -> str:
        done = subprocess.run(["git", *words], cwd=project, input=text, capture_output=True, text=True, check=True)
        return done.stdout

    git("init", "-q", "-b", "main")
    git("fast-import", "--quiet", text="\n".join(lines))
    return git("rev-list", "--reverse", "main").split()


def _benchmark(number: int, points: int) -> dict[str, Any]:
    higher = number % 2 == 1
    unit = "B/s" if higher else "s"
    metric = "bandwidth" if higher else "time"
    return {
        "name": f"made{number:02}.track_{metric}",
        "benchmark_name": f"made{number:02}.track_{metric}",
        "pretty_name": f"made{number:02} · {metric}",
        "type": "track",
        "unit": "seconds" if unit == "s" else unit,
        "si_unit": unit,
        "direction": "higher" if higher else "lower",
        "plugin": f"group{number // 10}",
        "benchmark": f"made{number:02}",
        "metric": metric,
        "version": "1",
        "code": "",
        "timeout": 60.0,
        "param_names": ["size"],
        "params": [[str(2**place) for place in range(points)]],
    }


def _machine(number: int) -> dict[str, str]:
    return {
        "machine": f"node{number}", "os": "Linux", "arch": "x86_64", "cpu": "EPYC", "num_cpu": "64", "ram": "512 GiB",
        "gpu": CARDS[number % len(CARDS)], "num_gpu": str(1 + number // len(CARDS)),
    }  # fmt: skip


def _levels(number: int, benchmark: dict[str, Any], history: History) -> list[list[float]]:
    """Point → commit → the true level."""
    dice = random.Random(f"{number} {benchmark['name']}")
    found = []
    for point in range(history.points):
        level = 1e-4 * 2**point * (1 + number) if benchmark["si_unit"] == "s" else 1e12 / (1 + number)
        changes = {dice.randrange(1, max(2, history.commits)) for _ in range(3)}
        line = []
        for place in range(history.commits):
            if place in changes:
                level *= 1 + dice.choice((-1, 1)) * dice.uniform(0.03, 0.3)
            line.append(level)
        found.append(line)
    return found


def _records(
    benchmark: dict[str, Any], levels: list[list[float]], place: int, commit: str, machine: dict[str, str]
) -> Iterator[Record]:
    dice = random.Random(f"{levels[0][place]} {place}")
    for size, line in enumerate(levels):
        value = line[place] * math.exp(dice.gauss(0, 0.01))
        samples = [value * (1 + share) for share in SHARES]
        yield Record(
            benchmark=benchmark["benchmark"],
            plugin=benchmark["plugin"],
            version="1",
            params={"size": 2**size},
            status="ok",
            metrics={benchmark["metric"]: MetricSamples(benchmark["si_unit"], benchmark["direction"], samples)},
            started=float(STARTED + place * DAY + 3600 + size),
            duration=1.0,
            machine=machine["machine"],
            commit=commit,
            environment="node-py3.12",
            node={"cpu": machine["cpu"], "gpus": [{"name": machine["gpu"]}] * int(machine["num_gpu"])},
        )
