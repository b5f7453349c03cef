"""Plants slow-downs on commits of a small repository, measures all commits, and counts what was
found.

    cd examples/planted_regressions
    python exercise.py            # measures, keeps the Records, writes README.md
    python exercise.py --add DIR  # keeps the Records of another machine beside them
    python exercise.py --report   # prints the tables from the Records that are kept

The repository is the same wherever it is made, to the hash of each commit. `asv run` measures it;
the verdicts are those of `hpml compare` and of the page of regressions, on the Records that there
were after each commit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from hpml_plugins.model.figure import Table
from hpml_plugins.model.record import Record
from hpml_plugins.report.compare import Side, compare
from hpml_plugins.report.known import KnownRecords
from hpml_plugins.report.reading import History, read_history
from hpml_plugins.report.site.changes import Shift, find_changes, find_shifts
from hpml_plugins.report.tables import as_markdown
from hpml_plugins.store import read_records, record_file, results_folder

HERE = Path(__file__).parent
RESULTS = HERE / "results"
WORKLOADS = ("kernel", "copy", "data")
#: Unix time of the first commit, s; each further commit is a day later.
FIRST_DAY = 1_790_000_000
#: Readings after a planted slow-down of which the newest may be suspected because of it: of the
#: five before, more are then from before it.
SOON = 2
PACKAGE = '''
"""Three workloads. SLOWER: of which of them the slow-down is planted. Revision {revision} of this file."""

import torch

SLOWER = {slower!r}


def make_step(workload, percent, device):
    """(step, what it computed, what that must be as float64). percent: how much more work a planted slow-down is."""
    return STEPS[workload](percent * SLOWER[workload] / 100, torch.device(device))


def kernel(more, device):
    x = torch.ones(1 << (22 if device.type == "cuda" else 15), device=device)
    loops = round(100 * (1 + more))

    def step():
        for _ in range(loops):
            x.mul_(0.5).add_(0.5)

    return step, lambda: x, lambda: torch.ones_like(x, dtype=torch.float64)


def copy(more, device):
    on_gpu = device.type == "cuda"
    x = torch.ones(1 << (27 if on_gpu else 20), device=device)
    y = torch.empty_like(x)
    # A byte crosses the link to the host about 80 times more slowly than it passes the GPU's own memory twice.
    count = round(len(x) * more / (80 if on_gpu else 1))
    host = torch.empty(count, pin_memory=on_gpu)

    def step():
        torch.add(x, 1, out=y)
        if count:
            host.copy_(y[:count], non_blocking=True)

    return step, lambda: y, lambda: x.double() + 1


def data(more, device):
    images = torch.arange(200 * 3 * 32 * 32, dtype=torch.int32).remainder(256).to(torch.uint8).view(200, 3, 32, 32)
    twice = round(len(images) * more)
    batch = torch.empty(images.shape, device=device)

    def step():
        if twice:
            decode(images[:twice])
        batch.copy_(decode(images))

    return step, lambda: batch, lambda: images.to(device).double() / 255


def decode(images):
    return images.float().div_(255)


STEPS = {{"kernel": kernel, "copy": copy, "data": data}}
'''  # noqa: E501
BUILD = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "planted-work"
version = "1"

[tool.setuptools]
packages = ["planted_work"]
"""
REGISTRY = """
version: 1
plugins:
  - {{name: planted, path: planted.py, sampling: {{precision: 0.01, budget: {budget}, rounds: {rounds}}}}}
"""  # noqa: E501


@dataclass(frozen=True)
class Step:
    """A commit. plants: the workload that is slower from this commit on.  package: whether its
    package changes."""

    message: str
    plants: str = ""
    package: bool = False


#: Three plant a slow-down. Of the others after the first, five change only a text beside the
#: package, three a comment in it.
PLAN = (
    Step("first", package=True),
    Step("README"),
    Step("comment", package=True),
    Step("README"),
    Step("longer loop", plants="kernel", package=True),
    Step("comment", package=True),
    Step("copy to the host", plants="copy", package=True),
    Step("README"),
    Step("decode twice", plants="data", package=True),
    Step("README"),
    Step("comment", package=True),
    Step("README"),
)


def make_repository(folder: Path, plan: Sequence[Step] = PLAN) -> list[str]:
    """Write the repository into an empty or missing folder; returns its commits, oldest first."""
    (folder / "planted_work").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(BUILD.lstrip())
    _git(folder, "init", "-q", "-b", "main")
    slower = dict.fromkeys(WORKLOADS, False)
    commits = []
    for number, step in enumerate(plan):
        if step.plants:
            slower[step.plants] = True
        if step.package:
            text = PACKAGE.lstrip().format(revision=number, slower=slower)
            (folder / "planted_work" / "__init__.py").write_text(text)
        (folder / "README.md").write_text(f"Commit {number}: {step.message}\n")
        _git(folder, "add", "-A")
        date = f"{FIRST_DAY + 86_400 * number} +0000"
        _git(
            folder,
            "commit",
            "-qm",
            step.message,
            GIT_AUTHOR_DATE=date,
            GIT_COMMITTER_DATE=date,
        )
        commits.append(_git(folder, "rev-parse", "HEAD"))
    return commits


def _git(folder: Path, *words: str, **env: str) -> str:
    """Run git independently of the user's settings."""
    who = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in _WHO.items()
    }
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env={**os.environ, **settings, **who, **env},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


_WHO = {"NAME": "exercise", "EMAIL": "exercise@example.invalid"}


def measure(folder: Path, budget: float, rounds: int, *more: str) -> Path:
    """Measure every commit with `asv run ALL`; returns the folder of results.

    folder: of `make_repository`.  budget: s of sampling per point, all rounds together.  more:
    options of `asv run`.
    """
    _run(folder, "-m", "hpml_plugins", "init")
    shutil.copy(HERE / "planted.py", folder)
    (folder / "registry.yaml").write_text(
        REGISTRY.lstrip().format(budget=budget, rounds=rounds)
    )
    _run(folder, "-m", "asv", "run", "ALL", *more)
    return results_folder(folder)


def _run(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-P", *words], cwd=folder, check=True)


def keep(results: Path, to: Path) -> None:
    """Copy the Records and asv's files of the machines that were measured, in place of those
    machines' older ones."""
    for machine in (each for each in results.iterdir() if (each / "records").is_dir()):
        if (to / machine.name).exists():
            shutil.rmtree(to / machine.name)
        shutil.copytree(
            machine, to / machine.name, ignore=shutil.ignore_patterns("*.lock", ".*")
        )
    shutil.copy(results / "benchmarks.json", to)


@dataclass
class Found:
    """What became of one series on one machine. planted: the place of the commit that slows it
    down; None: never.

    ratio: the median of the values after it to that of those before.  verdict: of `hpml compare`,
    of this commit against the one before.  suspected, listed: after how many readings since the
    page of regressions first said so. at_end: whether it is an open regression after the last
    commit.
    """

    machine: str
    benchmark: str
    point: str
    planted: int | None
    values: list[tuple[int, float, bool]] = field(default_factory=list)
    verdict: str = ""
    suspected: int | None = None
    listed: int | None = None
    at_end: bool = False

    @property
    def ratio(self) -> float | None:
        """See the class; None where one side has no undisturbed reading."""
        sides = [
            [
                value
                for at, value, busy in self.values
                if not busy and (at >= (self.planted or 0)) == after
            ]
            for after in (False, True)
        ]
        return median(sides[1]) / median(sides[0]) if all(sides) else None

    def readings(self, until: int) -> int:
        """How many readings there are since the planted commit."""
        return sum((self.planted or 0) <= at <= until for at, _, _ in self.values)


@dataclass
class Report:
    """series: by machine, benchmark and point.

    equal: `hpml compare` of two successive commits where the series did not change: verdict → how
    many, of each machine.  looks: machine → how many series the page looked at, over all commits.
    false: machine → what kind of change the page showed where there was none → the series, each
    once. skipped: (machine, reason) → benchmarks.
    """

    series: dict[tuple[str, str, str], Found] = field(default_factory=dict)
    equal: dict[str, dict[str, int]] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    false: dict[str, dict[str, set[tuple[str, str, int]]]] = field(default_factory=dict)
    skipped: dict[tuple[str, str], list[str]] = field(default_factory=dict)


def analyse(results: Path, commits: Sequence[str], plan: Sequence[Step] = PLAN) -> Report:
    """What `hpml compare` and the page of regressions say after each commit, held against what was
    planted.

    Only the Records of the commits until then are read: later ones would make the variance better
    known.
    """
    report = Report()
    planted = {step.plants: number for number, step in enumerate(plan) if step.plants}
    records = [each for each in read_records(results) if each.commit in commits]
    for record in records:
        if record.status != "ok":
            known = report.skipped.setdefault(
                (record.machine, f"{record.status}: {record.reason}"), []
            )
            known += [record.benchmark] if record.benchmark not in known else []
            continue
        slowed = (
            planted.get(record.benchmark.partition("_")[0])
            if record.params["percent"]
            else None
        )
        point = f"percent={record.params['percent']}"
        key = record.machine, record.benchmark, point
        found = report.series.setdefault(key, Found(*key, slowed))
        place = commits.index(record.commit)
        found.values.append((place, record.metrics["time"].value, record.is_busy))
    for machine in sorted({record.machine for record in records}):
        own = [record for record in records if record.machine == machine]
        for number in range(1, len(commits)):
            _compare(report, machine, own, commits[: number + 1])
    with tempfile.TemporaryDirectory(prefix="hpml-planted-") as folder:
        for number, history in enumerate(_histories(results, commits, Path(folder)), 1):
            _look(report, history, number)
    return report


def _compare(
    report: Report, machine: str, records: Iterable[Record], commits: Sequence[str]
) -> None:
    """`hpml compare` of the last two commits, on the Records until then."""
    known = [record for record in records if record.commit in commits]
    order = {commit: place for place, commit in enumerate(commits)}
    sides = [Side("commit", commit) for commit in commits[-2:]]
    compared, _ = compare(sides[0], sides[1], KnownRecords.of(known), order)
    for each in compared:
        if each.regime:  # the settled value is judged
            continue
        found = report.series[machine, each.benchmark, each.point]
        verdict = each.difference.verdict
        if found.planted == len(commits) - 1:
            found.verdict = verdict
        else:
            counts = report.equal.setdefault(machine, {})
            counts[verdict] = counts.get(verdict, 0) + 1


def _histories(results: Path, commits: Sequence[str], folder: Path) -> Iterator[History]:
    """The history as the site would have it after the second commit, the third, and so on."""
    declarations = {
        name: entry
        for name, entry in json.loads((results / "benchmarks.json").read_text()).items()
        if isinstance(entry, dict)
    }
    dates = {
        commit: 1000.0 * (FIRST_DAY + 86_400 * number)
        for number, commit in enumerate(commits)
    }
    for machine in results.glob("*/machine.json"):
        (folder / machine.parent.name / "records").mkdir(parents=True)
        shutil.copy(machine, folder / machine.parent.name)
    for number, commit in enumerate(commits):
        for machine in folder.iterdir():
            if (file := record_file(results, machine.name, commit)).is_file():
                shutil.copy(file, machine / "records")
        if number:
            revisions = {each: place for place, each in enumerate(commits[: number + 1])}
            yield read_history(folder, None, declarations, revisions, dates, print)


def _look(report: Report, history: History, until: int) -> None:
    """What the page of regressions says after a commit."""
    shifts, _ = find_shifts(history, find_changes(history))
    for metric in history.measured:
        for (_, machine), line in metric.benchmark.index.lines().items():
            report.looks[machine] = report.looks.get(machine, 0) + any(
                each.status == "ok" for each in line
            )
    for kind, found in shifts.items():
        for shift in found:
            _hold_against(report, kind, shift, until)
    listed = {_key(shift) for shift in shifts["open regression"]}
    for key, each in report.series.items():
        each.at_end = key in listed and each.listed is not None


def _hold_against(report: Report, kind: str, shift: Shift, until: int) -> None:
    """Whether a change is the planted one: its commit is among those of the change, or the newest
    value came soon."""
    key, change = _key(shift), shift.change
    found = report.series[key]
    readings = found.readings(until) if found.planted is not None else 0
    if (
        kind == "open regression"
        and found.planted is not None
        and change.last < found.planted <= change.first
    ):
        found.listed = found.listed or readings
    elif kind == "suspected regression" and 0 < readings <= SOON:
        found.suspected = found.suspected or readings
    else:
        report.false.setdefault(key[0], {}).setdefault(kind, set()).add(
            (key[1], key[2], change.first)
        )


def _key(shift: Shift) -> tuple[str, str, str]:
    return shift.series.machine.name, shift.series.metric.benchmark.name, shift.series.label


def format_report(report: Report, plan: Sequence[Step] = PLAN) -> str:
    """The report as Markdown."""
    rows: list[Mapping[str, str | float | None]] = []
    for _, each in sorted(
        report.series.items(),
        key=lambda item: (item[0][0], item[0][1], item[1].point.zfill(12)),
    ):
        if each.planted is None:
            continue
        workload, _, device = each.benchmark.partition("_")
        rows.append(
            {
                "machine": each.machine,
                "slow-down": f"{workload}: {plan[each.planted].message}",
                "device": device,
                "planted": f"+{each.point.removeprefix('percent=')} %",
                "measured": (
                    f"{100 * (each.ratio - 1):+.1f} %" if each.ratio else "not judged: busy"
                ),
                "hpml compare": each.verdict or "no value",
                "suspected after": _count(each.suspected),
                "open regression after": _count(each.listed),
                "at the end": "listed" if each.at_end else "not listed",
            }
        )
    parts = [as_markdown(Table.of(rows))] if rows else []
    counts = [
        {
            "machine": machine,
            "comparisons of equal code": sum(equal.values()),
            **{
                verdict: equal.get(verdict, 0)
                for verdict in ("SAME", "BOUND", "AMBIGUOUS", "WORSE", "BETTER")
            },
            "series looked at by the page": report.looks.get(machine, 0),
            "false regressions": len(_false(report, machine, "open regression")),
            "false improvements": len(_false(report, machine, "improvement")),
            "false suspicions": sum(
                len(_false(report, machine, f"suspected {kind}")) for kind in _SUSPECTED
            ),
        }
        for machine, equal in sorted(report.equal.items())
    ]
    parts.append(as_markdown(Table.of(counts)))
    skipped = [
        f"{machine}: {', '.join(names)}: {reason}\n"
        for (machine, reason), names in report.skipped.items()
    ]
    return "\n".join([*parts, "".join(skipped)])


_SUSPECTED = ("regression", "improvement")


def _false(report: Report, machine: str, kind: str) -> set[tuple[str, str, int]]:
    return report.false.get(machine, {}).get(kind, set())


def _count(readings: int | None) -> str:
    return "never" if readings is None else f"{readings} reading{'s' * (readings != 1)}"


def write_readme(tables: str) -> None:
    """Put the tables at the end of the README."""
    readme = HERE / "README.md"
    head, mark, _ = readme.read_text().partition("<!-- written by exercise.py -->\n")
    readme.write_text(f"{head}{mark}\n{tables.rstrip()}\n")


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="Other options are those of asv run, such as --bench.",
    )
    parser.add_argument(
        "--report", action="store_true", help="only print the tables of the stored Records"
    )
    parser.add_argument(
        "--add",
        type=Path,
        metavar="DIR",
        help="store the Records of DIR, another machine's --results",
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="where Records are stored"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=0.6,
        help="s of sampling per point, all rounds together",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each point")
    parser.add_argument(
        "--commits", type=int, default=len(PLAN), help="measure only the first N commits"
    )
    chosen, more = parser.parse_known_args(words)
    if chosen.add and not any(chosen.add.glob("*/records")):
        parser.error(
            f"--add {chosen.add}: no Records there; name the folder that --results named on the"
            " other machine"
        )
    plan = PLAN[: chosen.commits]
    with tempfile.TemporaryDirectory(prefix="hpml-planted-") as folder:
        commits = make_repository(Path(folder) / "repository", plan)
        if chosen.add:
            chosen.results.mkdir(parents=True, exist_ok=True)
            keep(chosen.add, chosen.results)
        elif not chosen.report:
            results = measure(
                Path(folder) / "repository", chosen.budget, chosen.rounds, *more
            )
            chosen.results.mkdir(parents=True, exist_ok=True)
            keep(results, chosen.results)
        tables = format_report(analyse(chosen.results, commits, plan), plan)
        print(tables)
        if not chosen.report and chosen.results == RESULTS:
            write_readme(tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
