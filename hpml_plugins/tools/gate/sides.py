"""Building two commits with asv's own environments, and measuring their points in turns, in random
order."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.asv import Prepared, Task, narrow, run_point, take_record, tasks_of
from hpml_plugins.errors import HpmlError, UsageError, describe
from hpml_plugins.host import Declared
from hpml_plugins.isolation import end_leftovers
from hpml_plugins.model import Params, Record
from hpml_plugins.report import RunReport
from hpml_plugins.run import measure_rounds, rounds_of
from hpml_plugins.terminal import warn

BASE, HEAD = 0, 1
SIDES = ("base", "head")


@dataclass(frozen=True)
class Commits:
    """What is compared. base, head: hashes.  uncommitted: whether head is the work tree with what
    is not committed.

    top: of the checkout, whose git repository alone has that commit.
    """

    base: str
    head: str
    uncommitted: bool
    top: Path = Path()

    def name(self, side: int) -> str:
        """For readers: `1a2b3c4d`, or `the work tree`."""
        return (
            "the work tree"
            if side == HEAD and self.uncommitted
            else (self.base, self.head)[side][:8]
        )


def find_commits(folder: Path, base: str, results: str) -> Commits:
    """The newest commit that HEAD and `base` share, and what is checked out here.

    A work tree with changes is put into a commit of its own that no branch has: tracked files, and
    untracked ones that git does not ignore, without the folder of results. Raises UsageError where
    there is nothing to compare.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel"))
    head = _git(top, "rev-parse", "--verify", "-q", "HEAD", fault="nothing is committed here yet")
    unknown = f"{base!r} is no branch, tag or commit here; git fetch gets those of a remote"
    named = _git(
        top, "rev-parse", "--verify", "-q", "--end-of-options", f"{base}^{{commit}}", fault=unknown
    )
    found = _git(
        top, "merge-base", head, named, fault=f"no commit of HEAD's history is in {base!r}"
    )
    kept = (folder / results).resolve()
    excluded = [f":(exclude,literal){kept.relative_to(top)}"] if kept.is_relative_to(top) else []
    with tempfile.TemporaryDirectory(prefix="hpml-gate-") as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch, "index"))}
        _git(top, "read-tree", "HEAD", **index)
        _git(top, "add", "--all", "--", ".", *excluded, **index)
        tree = _git(top, "write-tree", **index)
    if uncommitted := tree != _git(top, "rev-parse", "HEAD^{tree}"):
        who = ["-c", "user.name=hpml gate", "-c", "user.email=gate@localhost"]
        head = _git(
            top, *who, "commit-tree", tree, "-p", head, "-m", "the work tree, for hpml gate"
        )
    if head == found:
        raise UsageError(f"{base!r} has all that is checked out here: there is nothing to compare")
    return Commits(found, head, uncommitted, top)


def _git(folder: Path, *words: str, fault: str = "", **variables: str) -> str:
    env = {**os.environ, **variables}
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise UsageError("git is not installed; a gate compares commits") from None
    if done.returncode:
        raise UsageError(fault or f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


class Sides:
    """The packages of both commits, and what measures a round of a point of one of them.

    prepared: the suite and its points.  Each round of each side has a new process, from which that
    of every point is forked: what is fixed for the lifetime of a process, such as addresses and
    hash seeds, differs from round to round.
    """

    def __init__(self, conf: Any, prepared: Prepared, environments: Sequence[Any]) -> None:
        self.prepared = prepared
        self._conf = conf
        self._environments = environments
        self._spawners: dict[int, Any] = {}
        self._round = -1
        self._counts: Counter[tuple[int, str]] = Counter()

    def measure(self, side: int, task: Task) -> Record | None:
        """Measure one round; None where the commit gives no Record."""
        key = task.declared.key(task.params)
        number = self._counts[side, key]
        self._counts[side, key] += 1
        if number > self._round:
            self.close()
            self._round = number
        if side not in self._spawners:
            self._spawners[side] = self._start(side)
        output = run_point(self._spawners[side], task).output.strip()
        record = take_record(self.prepared.scratch, key)
        if record is None and output:
            warn(f"{SIDES[side]}: {output.splitlines()[-1]}")
        return record

    def _start(self, side: int) -> Any:
        from asv.runner import get_spawner

        spawner = get_spawner(
            self._environments[side], self._conf.benchmark_dir, self._conf.launch_method
        )
        spawner.preimport()
        return spawner

    def close(self) -> None:
        """End the processes."""
        for spawner in self._spawners.values():
            spawner.interrupt()  # or it would print what its server said
            spawner.close()
        self._spawners.clear()


@contextmanager
def build_sides(
    conf: Any, prepared: Prepared, commits: Commits, bench: Sequence[str]
) -> Iterator[Sides]:
    """Build both commits and find the points to measure. bench: regular expressions, as of `asv run
    --bench`.

    Raises HpmlError where a commit does not build, and where nothing is selected.
    """
    from asv.benchmarks import Benchmarks
    from asv.environment import get_environments
    from asv.repo import get_repo
    from asv.util import ProcessError, UserError

    for left in end_leftovers():
        warn(left)
    environments = []
    conf.repo = str(commits.top)  # asv.conf.json may name a remote one
    try:
        repository = get_repo(conf)
        for side, commit in zip(SIDES, (commits.base, commits.head), strict=True):
            own = copy.copy(conf)
            own.env_dir = str(Path(conf.env_dir, f"gate-{side}"))
            environment = next(iter(get_environments(own, None)), None)
            if environment is None:
                raise HpmlError("no environment of asv.conf.json can be made on this node")
            environment.create()
            environment.install_project(own, repository, commit)
            environments.append(environment)
        found = Benchmarks.discover(
            conf, repository, environments[HEAD:], [commits.head], regex=list(bench) or None
        )
    except ProcessError as error:
        said = (error.stderr or error.stdout or str(error)).strip().splitlines()
        what = (*(f"{side} does not build" for side in SIDES), "the suite does not import")[
            len(environments)
        ]
        # not pip's own summaries
        causes = [
            line.strip()
            for line in said
            if re.search(r"[Ee]rror: (?!subprocess-exited|metadata-gen)", line)
        ]
        raise HpmlError(
            f"{what}: {causes[0] if causes else 'what is printed above says why'}"
        ) from None
    except UserError as error:
        raise HpmlError(describe(error)) from None
    narrow(found, prepared.suite.benchmarks)
    prepared.tasks = tasks_of(found, prepared.suite.benchmarks)
    if not prepared.tasks:
        raise UsageError(
            "no benchmark is selected; hpml list shows the benchmarks and what this node skips"
        )
    sides = Sides(conf, prepared, environments)
    try:
        yield sides
    finally:
        sides.close()


Rounds = dict[tuple[int, int], list[Record]]


def measure_sides(sides: Sides, wanted: dict[int, int], rounds: Rounds) -> None:
    """Measure until each point has the wanted number of rounds on both sides, in random order; adds
    to `rounds`.

    wanted: number of the task → rounds.  A point that one side fails or lacks gets no further round
    on either.
    """
    tasks = sides.prepared.tasks
    while pending := sorted(
        (number, side)
        for number, count in wanted.items()
        for side in (BASE, HEAD)
        if len(rounds.setdefault((number, side), [])) < count and not _stopped(rounds, number)
    ):
        # The sampling budget covers the planned rounds of one run, so more rounds are measured as a
        # new run.
        planned = [
            min(tasks[number].declared.rounds, wanted[number] - len(rounds[number, side]))
            for number, side in pending
        ]
        chosen: list[tuple[Declared, Params]] = [
            (msgspec.structs.replace(tasks[number].declared, rounds=count), tasks[number].params)
            for (number, _), count in zip(pending, planned, strict=True)
        ]

        def measure(place: int, pending: Sequence[tuple[int, int]] = pending) -> Record | None:
            number, side = pending[place]
            record = sides.measure(side, tasks[number])
            rounds[number, side] += [record] if record else [_no_record(tasks[number])]
            return record

        report = RunReport()
        for task in chosen:
            report.plan(rounds_of(task))
        measure_rounds(chosen, sides.prepared.suite.run, measure, report)


def _no_record(task: Task) -> Record:
    declared = task.declared
    return Record(
        benchmark=declared.benchmark,
        plugin=declared.plugin.name,
        version=declared.version,
        params=dict(task.params),
        status="skipped",
        reason="the commit gives no Record of it",
    )


def _stopped(rounds: Rounds, number: int) -> bool:
    return any(
        each.status != "ok" for side in (BASE, HEAD) for each in rounds.get((number, side), ())
    )
