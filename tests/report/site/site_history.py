"""A small history: Records, and the result files that asv reads: three commits, three machines,
four benchmarks."""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from records import a_record
from repositories import git, make_repository
from support import DRAWN, ROOT

from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.rounds import retract
from hpml_plugins.model.serialization import encode
from hpml_plugins.report.reading import History, read_history
from hpml_plugins.store import append_record, record_file
from hpml_plugins.store.declarations import read_declarations, value_of

NAN = math.nan
NASTY = "<script>alert(1)</script>"
WARNINGS = ["time: drifts", f"time: unstable, {NASTY}"]
RETRACTED = f"the timer fell back, {NASTY}"
QUESTIONS = """# Toys

## How long?

It takes <!--= cell toy.numbers column=time size=1000 --><!--/-->, which is
<!--= ratio toy.numbers column=time size=1000 over.size=10 --><!--/--> times as long as with 10.

<!--= table toy.numbers --><!--/-->
"""

Sample = float | Sequence[float] | None
AddResult = Callable[..., Any]


def benchmark(
    name: str, params: Mapping[str, Sequence[object]] | None = None, **more: object
) -> dict[str, Any]:
    """One entry of benchmarks.json."""
    grid = params or {}
    return {
        "name": name,
        "type": "track",
        "unit": "unit",
        "version": "1",
        "code": "",
        "params": [[repr(value) for value in values] for values in grid.values()],
        "param_names": list(grid),
        "timeout": 60.0,
        **more,
    }


def ours(
    plugin: str,
    name: str,
    metric: str,
    unit: str,
    direction: str,
    **params: Sequence[object],
) -> dict[str, Any]:
    """One entry of benchmarks.json with the keys that our generated benchmarks add."""
    return benchmark(
        f"{name}.track_{metric}",
        params,
        plugin=plugin,
        benchmark=name,
        metric=metric,
        direction=direction,
        si_unit=unit,
        unit="seconds" if unit == "s" else unit,
        pretty_name=f"{name} · {metric}",
    )


TIME = ours(
    "numba_cuda",
    "vector_add",
    "time",
    "s",
    "lower",
    n=[1000, 1000000],
    mode=["plain", "fast"],
)
BANDWIDTH = ours(
    "numba_cuda",
    "vector_add",
    "bandwidth",
    "B/s",
    "higher",
    n=[1000, 1000000],
    mode=["plain", "fast"],
)
FLOP = ours("fvcore", "resnet50", "flop", "FLOP", "none")
FOREIGN = benchmark("foreign.track_score", {"path": [NASTY, "a/b & c"]}, unit="points")
BENCHMARKS = {each["name"]: each for each in (TIME, BANDWIDTH, FLOP, FOREIGN)}


@pytest.fixture
def add_result(tmp_path: Path) -> AddResult:
    """Writes one result file through asv's own Results, and returns it."""
    return functools.partial(write_result, tmp_path / "results")


def write_result(
    folder: Path,
    machine: Mapping[str, str],
    commit: str,
    date: int,
    values: Mapping[str, Sequence[Sample]],
    *,
    benchmarks: Mapping[str, dict[str, Any]] = BENCHMARKS,
    started: float = 0.0,
    environment: str = "node-py3.11",
    code: str = "",
    packages: Mapping[str, str] | None = None,
) -> Any:
    """What a run leaves: Records of the benchmarks that are ours, and of others one result file, as
    asv writes it."""
    from asv.machine import Machine
    from asv.results import Results
    from asv.util import write_json

    declared = read_declarations(benchmarks)
    result = Results(dict(machine), {}, commit, date, "3.11", environment, {})
    for name, samples in values.items():
        if not declared[name].is_ours:
            result.add_result(
                benchmarks[name], _as_asv_returns(samples), _moment(started), 1.0
            )
    result.save(str(folder))
    write_json(
        str(folder / machine["machine"] / "machine.json"),
        dict(machine),
        Machine.api_version,
    )
    for record in records_of(
        machine["machine"], commit, values, benchmarks, started, environment, code, packages
    ):
        path = record_file(folder, record.machine, commit)
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:  # also what no reader takes
            file.write(encode(record) + b"\n")
    return result


#: Why a point is skipped that has NaN as its number, asv's word for none.
SKIPPED = "needs 1 GPU, this node has no GPU"


def records_of(
    machine: str,
    commit: str,
    values: Mapping[str, Sequence[Sample]],
    benchmarks: Mapping[str, dict[str, Any]] = BENCHMARKS,
    started: float = 0.0,
    environment: str = "",
    code: str = "",
    packages: Mapping[str, str] | None = None,
) -> list[Record]:
    """The Records of what was measured of our benchmarks: one for each point, with all its metrics.

    code: the digest of the plugin; by default each commit has another.
    """
    declared = read_declarations(benchmarks)
    points: dict[tuple[str, int], dict[str, Sample]] = {}
    for name, samples in values.items():
        if declared[name].is_ours:
            for number, each in enumerate(samples):
                points.setdefault((benchmarks[name]["benchmark"], number), {})[name] = each
    made = []
    for (title, number), numbers in points.items():
        entry = benchmarks[next(iter(numbers))]
        params = list(itertools.product(*entry["params"]))[number]
        metrics = {
            benchmarks[name]["metric"]: MetricSamples(
                benchmarks[name]["si_unit"],
                declared[name].better,
                list(each) if isinstance(each, Sequence) else [each],
            )
            for name, each in numbers.items()
            if each is not None and each == each
        }
        status = "ok" if metrics else "failed" if None in numbers.values() else "skipped"
        made.append(
            a_record(
                title,
                metrics,
                plugin=entry["plugin"],
                version=entry["version"],
                status=status,
                params=dict(zip(entry["param_names"], map(value_of, params), strict=True)),
                reason={"ok": "", "failed": "it broke", "skipped": SKIPPED}[status],
                machine=machine,
                commit=commit,
                started=started,
                environment=environment,
                source={"sha256": code} if code else {},
                packages=dict(packages or {}),
            )
        )
    return made


def read(
    results: Path,
    benchmarks: Mapping[str, dict[str, Any]] = BENCHMARKS,
    dates: Mapping[str, float] | None = None,
) -> History:
    """The history of these commits (commit → its date, ms), oldest first. A damaged line is an
    error."""
    dates = dates or {}
    revisions = {commit: place for place, commit in enumerate(dates)}

    def damaged(damage: object) -> None:
        raise AssertionError(str(damage))

    return read_history(results, None, benchmarks, revisions, dates, damaged)


def _as_asv_returns(samples: Sequence[Sample]) -> SimpleNamespace:
    lists = [list(each) if isinstance(each, Sequence) else None for each in samples]
    # asv's runner hands over a number for every point that gave samples; Results replaces it by
    # their median.
    numbers = [each[0] if isinstance(each, Sequence) else each for each in samples]
    return SimpleNamespace(
        result=numbers,
        samples=lists,
        number=[1 if each else None for each in lists],
        profile=None,
        stderr="",
        errcode=0,
    )


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


H200 = {
    "machine": "node1",
    "gpu": "NVIDIA H200",
    "num_gpu": "1",
    "cpu": "EPYC",
    "os": "Linux",
    "arch": "x86_64",
    "ram": "1",
}
A100 = {**H200, "machine": "node2", "gpu": "NVIDIA A100", "num_gpu": "2"}
WILD = "<img src=x onerror=alert(1)>"
LAPTOP = {
    **H200,
    "machine": "laptop",
    "gpu": "none",
    "num_gpu": "0",
    "cpu": "Xeon W",
    "ram": WILD,
}


def around(middle: float, spread: float = 0.02) -> list[float]:
    """Forty samples around a value; enough for asv to give an interval."""
    return [middle * (1 + spread * (i - 19.5) / 20) for i in range(40)]


class Project:
    """A folder with a repository of a few commits, asv.conf.json and results: what `asv publish`
    starts from."""

    def __init__(self, folder: Path, days: int) -> None:
        from asv.benchmarks import Benchmarks
        from asv.util import write_json

        self.folder, self.html, self.results = folder, folder / "html", folder / "results"
        self.commits = _repository(folder, days)
        self.results.mkdir()
        write_json(
            str(self.results / "benchmarks.json"), BENCHMARKS, Benchmarks.api_version
        )
        (folder / "hpml_plugins").symlink_to(ROOT / "hpml_plugins")
        (folder / "registry.yaml").write_text("version: 1\nplugins: []\n")
        conf = {
            "version": 1,
            "project": "hpml-plugins",
            "repo": ".",
            "branches": ["main"],
            "project_url": "#",
            "show_commit_url": "#",
            "plugins": [".hpml_plugins.asv"],
        }
        (folder / "asv.conf.json").write_text(json.dumps(conf))

    def add(
        self,
        machine: Mapping[str, str],
        day: int,
        values: Mapping[str, Sequence[Sample]],
        **more: Any,
    ) -> None:
        """A result of the commit of this day, counted from 0."""
        write_result(self.results, machine, *self.commits[day], values, **more)

    def publish(self, *words: str) -> str:
        """Run `asv publish`; returns what it said."""
        env = {**os.environ, "HOME": str(self.folder), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "asv", "publish", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of twelve commits without results."""
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder, 12)


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site as `asv publish` writes it: the path of html/. Tests read it and change nothing."""
    made = Project(tmp_path_factory.mktemp("site"), 3)
    for day in range(3):
        facts = {"started": float(day), "code": "new" if day == 2 else "old"}
        made.add(H200, day, _measured(1.0 + 0.5 * (day == 2)), **facts)
        made.add(A100, day, _measured(2.0), **facts)
    _a_plugin_that_draws(made.folder, made.commits[-1][0])
    left_out = {name: [NAN] * len(values) for name, values in _measured(1.0).items()}
    made.add(LAPTOP, 2, {**left_out, FLOP["name"]: [8.2e9], FOREIGN["name"]: [None, 3.0]})
    (made.folder / "gpu-prices.yaml").write_text(
        "currency: USD\nprices: {NVIDIA H200: 4, NVIDIA A100: 1}\n"
    )
    made.publish()
    return made.html


def _a_plugin_that_draws(folder: Path, commit: str) -> None:
    (folder / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n"
        "  - {name: course, module: hpml_plugins.plugins.course}\n"
    )
    (folder / "toy.py").write_text(DRAWN)
    (folder / "benchmarks" / "pages").mkdir(parents=True)
    (folder / "benchmarks" / "pages" / "000.md").write_text(QUESTIONS)
    for size, seconds, warnings in ((10, 2e-6, []), (1000, 3.5e-5, WARNINGS)):
        record = a_record(
            metrics={"time": seconds},
            params={"size": size},
            machine=WILD,
            commit=commit,
            warnings=warnings,
        )
        append_record(record_file(folder / "results", WILD, commit), record)
    append_record(
        record_file(folder / "results", WILD, commit), wrong := replace(record, started=9.0)
    )
    append_record(record_file(folder / "results", WILD, commit), retract(wrong, RETRACTED))
    (folder / "results" / WILD / "machine.json").write_text(
        json.dumps({"machine": WILD, "version": 1})
    )


def _measured(factor: float) -> dict[str, list[Sample]]:
    times = [1e-5, 2e-5, 3e-3, 4e-3]
    return {
        TIME["name"]: [around(factor * time) for time in times],
        BANDWIDTH["name"]: [around(1.2e10 / (factor * time)) for time in times],
        FLOP["name"]: [8.2e9],
        FOREIGN["name"]: [1.0, 2.0],
    }


def _repository(folder: Path, days: int) -> list[tuple[str, int]]:
    """Commits a day apart: (hash, ms since 1970), the oldest first."""
    if shutil.which("git") is None:
        pytest.skip("asv's publish needs git")

    make_repository(folder)
    commits = []
    for day in range(1, days + 1):
        date = f"2026-01-{day:02}T12:00:00+00:00"
        git(folder, "commit", "-q", "--allow-empty", "-m", f"day {day}", date=date)
        moment = int(git(folder, "show", "-s", "--format=%ct"))
        commits.append((git(folder, "rev-parse", "HEAD"), 1000 * moment))
    return commits
