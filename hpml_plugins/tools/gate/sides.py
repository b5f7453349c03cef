"""Builds two commits with asv's own environments, and measures pairs of rounds, one of each
commit."""

from __future__ import annotations

import copy
import itertools
import random
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.asv import (
    AsvTask,
    Prepared,
    narrow,
    own_tasks,
    refuse_unmeasured,
    run_own,
    run_point,
    take_record,
    tasks_of,
)
from hpml_plugins.errors import HpmlError, UsageError, describe, raise_interrupt
from hpml_plugins.git import tell_git
from hpml_plugins.isolation import end_leftovers
from hpml_plugins.model import Record
from hpml_plugins.report import RunReport
from hpml_plugins.run import CAUTION, OutOfTime, TimeLimit, rounds_of
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import warn
from hpml_plugins.tools.gate.removed import find_removed
from hpml_plugins.tools.gate.verdicts import Pair, looks, needed_pairs

BASE = 0
HEAD = 1
SIDES = ("base", "head")


@dataclass(frozen=True)
class Commits:
    """The commits to compare. base, head: hashes.  uncommitted: whether head is the work tree with
    uncommitted changes.

    top: of the checkout; only its git repository has that commit.
    """

    base: str
    head: str
    uncommitted: bool
    top: Path = Path()

    def name(self, side: int) -> str:
        """Its name for readers: `1a2b3c4d`, or `the work tree`."""
        if side == HEAD and self.uncommitted:
            return "the work tree"
        return (self.base, self.head)[side][:8]


def find_commits(folder: Path, base: str, results: str) -> Commits:
    """The newest commit that HEAD and `base` share, and the checkout.

    A work tree with changes is put into a new commit that is on no branch: tracked files, and
    untracked ones that git does not ignore, without the folder of results. Raises UsageError if
    there is nothing to compare.
    """
    top = Path(tell_git(folder, "rev-parse", "--show-toplevel"))
    nothing = "there is no commit here yet"
    head = tell_git(top, "rev-parse", "--verify", "-q", "HEAD", fault=nothing)
    unknown = (
        f"{base!r} is not a branch, tag or commit here; git fetch gets those of a remote"
    )
    named = tell_git(
        top,
        "rev-parse",
        "--verify",
        "-q",
        "--end-of-options",
        f"{base}^{{commit}}",
        fault=unknown,
    )
    found = tell_git(
        top, "merge-base", head, named, fault=f"no commit of HEAD's history is in {base!r}"
    )
    kept = (folder / results).resolve()
    excluded = (
        [f":(exclude,literal){kept.relative_to(top)}"] if kept.is_relative_to(top) else []
    )
    with temporary_folder("hpml-gate-") as scratch:
        index = {"GIT_INDEX_FILE": str(scratch / "index")}
        tell_git(top, "read-tree", "HEAD", **index)
        tell_git(top, "add", "--all", "--", ".", *excluded, **index)
        tree = tell_git(top, "write-tree", **index)
    if uncommitted := tree != tell_git(top, "rev-parse", "HEAD^{tree}"):
        who = ["-c", "user.name=hpml gate", "-c", "user.email=gate@localhost"]
        head = tell_git(
            top, *who, "commit-tree", tree, "-p", head, "-m", "the work tree, for hpml gate"
        )
    if head == found:
        raise UsageError(
            f"{base!r} has all that is checked out here: there is nothing to compare"
        )
    return Commits(found, head, uncommitted, top)


class Sides:
    """The packages of both commits, and the processes that measure a round of a point on one of
    them.

    prepared: the suite and its points.  removed: see `find_removed`.

    Each round of each side has a new process, from which the process of every point is forked:
    properties fixed for the lifetime of a process, such as addresses and hash seeds, differ from
    round to round.
    """

    def __init__(
        self,
        conf: Any,
        prepared: Prepared,
        environments: Sequence[Any],
        removed: Mapping[str, int],
    ) -> None:
        self.prepared = prepared
        self.removed = removed
        self._conf = conf
        self._environments = environments
        self._spawners: dict[int, Any] = {}
        self._caches: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def measure(self, side: int, task: AsvTask, timeout: float) -> Record | None:
        """Measure one round; None if the commit gives no Record within `timeout`, s."""
        spawner = self._spawners.get(side) or self._start(side)
        timeout = max(timeout, 1.0)
        if "benchmark" not in task.entry:  # asv's own
            return run_own(spawner, task, timeout, self._caches[side])
        output = run_point(spawner, task, timeout=timeout).output.strip()
        record = take_record(self.prepared.scratch, task.declared.key(task.params))
        if record is None and output:
            warn(f"{SIDES[side]}: {output.splitlines()[-1]}")
        return record

    def _start(self, side: int) -> Any:
        from asv.runner import get_spawner

        spawner = get_spawner(
            self._environments[side], self._conf.benchmark_dir, self._conf.launch_method
        )
        self._spawners[side] = spawner  # from now on `close` ends it
        spawner.preimport()
        return spawner

    def close(self) -> None:
        """End the processes."""
        for spawner in self._spawners.values():
            spawner.interrupt()  # otherwise it would print the output of its server
            spawner.close()
        self._spawners.clear()

    def remove(self) -> None:
        """End the processes, and remove their shared files."""
        self.close()
        for folder in itertools.chain(*(each.values() for each in self._caches)):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def build_sides(
    conf: Any, prepared: Prepared, commits: Commits, bench: Sequence[str], limit: TimeLimit
) -> Iterator[Sides]:
    """Build both commits and find the points to measure. bench: regular expressions, as of `asv run
    --bench`.  limit: of each step of a build too.

    Raises HpmlError if a commit does not build or nothing is selected; OutOfTime if building takes
    all of the limit.
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
            own.install_timeout = min(conf.install_timeout, max(limit.left, 1.0))
            environment = next(iter(get_environments(own, None)), None)
            if environment is None:
                raise HpmlError("no environment of asv.conf.json can be made on this node")
            if not environment.can_install_project():
                raise HpmlError(
                    f"environment_type {environment.tool_name!r} of asv.conf.json builds no"
                    ' commits, and would compare this Python with itself; "node" builds them'
                )
            environment.create()
            environment.install_project(own, repository, commit)
            environments.append(environment)
        only = copy.copy(conf)
        only.branches = []  # asv would install one of them if head's suite does not import
        found = Benchmarks.discover(
            only, repository, environments[HEAD:], [commits.head], regex=list(bench) or None
        )
    except ProcessError as error:
        if limit.left <= 0:
            raise OutOfTime(
                f"the limit of {limit} passed while base and head were built"
            ) from None
        raise HpmlError(_why_not_built(error, len(environments))) from None
    except UserError as error:
        raise_interrupt(error)
        if len(environments) == len(SIDES):
            cause = "the suite does not import at head: see the output above"
            raise HpmlError(cause) from None
        raise HpmlError(describe(error)) from None
    base = commits.top, commits.base
    removed = find_removed(
        conf, repository, environments[BASE], base, prepared, bench, found._all_benchmarks
    )
    if not removed:  # a pattern may match only what is; that counts as not judged
        refuse_unmeasured(bench, found, prepared)
    narrow(found, prepared.suite.benchmarks)
    prepared.tasks = tasks_of(found, prepared.suite.benchmarks)
    prepared.tasks += own_tasks(found, conf.default_benchmark_timeout)
    if not prepared.tasks and not removed:
        raise UsageError(
            "no benchmark is selected; hpml list shows the benchmarks and what this node skips,"
            " and hpml compare --check judges imported results"
        )
    sides = Sides(conf, prepared, environments, removed)
    try:
        yield sides
    finally:
        sides.remove()


def _why_not_built(error: Any, built: int) -> str:
    """What did not build, and the first cause that was printed.  built: how many sides are."""
    problems = (*(f"{side} does not build" for side in SIDES), "the suite does not import")
    printed = (error.stderr or error.stdout or str(error)).splitlines()
    own_errors = re.compile(r"[Ee]rror: (?!subprocess-exited|metadata-gen)")  # not pip's
    causes = [line.strip() for line in printed if own_errors.search(line)]
    return f"{problems[built]}: {causes[0] if causes else 'see the output above'}"


def balanced_orders(source: random.Random) -> Iterator[list[int]]:
    """Which side of each pair is measured first, without end: at random, and in the next pair the
    other way round.

    A pair's second round may always be the slower one, on a card that warms up or beside a load
    that grows. Every look then has as many pairs of either order, and the mean difference is free
    of it. Independent orders are all the same in one of eight gates of four pairs.
    """
    while True:
        order = source.sample((BASE, HEAD), 2)
        yield order
        yield order[::-1]


#: A point's rounds of both sides, in the order of time.
Pairs = list[Pair]


@dataclass
class PairLoop:
    """Measures pairs of rounds of all points, one of each side, while points are `undecided`.

    most: pairs of a point.  undecided: the numbers of the points that need more pairs, among those
    measured on both sides; called after each of `looks(most)`.  pairs: the measurements of each
    point.
    """

    sides: Sides
    most: int
    limit: TimeLimit
    undecided: Callable[[Sequence[Pairs]], Collection[int]]

    def __post_init__(self) -> None:
        tasks = self.sides.prepared.tasks
        self.pairs: list[Pairs] = [[] for _ in tasks]
        self._pending = list(range(len(tasks)))
        self._seconds: dict[int, float] = {}  # of the longest pair
        self._random = random.Random(self.sides.prepared.suite.run)
        self._orders = [balanced_orders(self._random) for _ in tasks]
        times = self.sides.prepared.report.times
        self._report = RunReport(times, limit=self.limit, ends_early=True)
        self._planned = [
            (msgspec.structs.replace(task.declared, rounds=self.most), task.params)
            for task in tasks
        ]

    def run(self) -> None:
        """Measure until all points are decided, `most` pairs are measured, or the limit has
        passed."""
        for task in self._planned:
            self._report.plan(rounds_of(task), repeats=len(SIDES))
        self._report.begin()
        looks_at = looks(self.most)
        for number in range(self.most):
            self.sides.close()  # each round of each side has a process of its own
            for point in self._random.sample(self._pending, len(self._pending)):
                if self._expected(point) > self.limit.left:
                    self._end([point])
                else:
                    self._measure_pair(point, number)
            self._end([point for point in self._pending if not compared(self.pairs[point])])
            if number == 0:
                self._end(self._without_verdict())
            if number + 1 in looks_at:
                undecided = self.undecided(self.pairs)
                self._end([point for point in self._pending if point not in undecided])
            if not self._pending:
                return

    def _expected(self, point: int) -> float:
        """s of the next pair of a point; for a new point, the longest so far."""
        known = self._seconds.get(point, max(self._seconds.values(), default=0.0))
        return CAUTION * known

    def _without_verdict(self) -> list[int]:
        """The points that cannot be judged within the limit: the last of the registry."""
        needed = needed_pairs(self.most) - 1
        left = self.limit.left
        found = []
        for point in self._pending:
            seconds = needed * self._expected(point)
            if seconds > left:
                found.append(point)
            else:
                left -= seconds
        return found

    def _end(self, points: Iterable[int]) -> None:
        """Stop measuring these points."""
        for point in points:
            self._pending.remove(point)
            for this in rounds_of(self._planned[point])[len(self.pairs[point]) :]:
                for _ in SIDES:
                    self._report.finish_round(this)

    def _measure_pair(self, point: int, number: int) -> None:
        """A round of each side."""
        this = rounds_of(self._planned[point])[number]
        began = time.monotonic()
        found: dict[int, Record] = {}
        for side in next(self._orders[point]):
            self._report.start_round(this, self._planned[point])
            record = self.sides.measure(
                side, self.sides.prepared.tasks[point], self.limit.left
            )
            self._report.finish_round(this)
            if record is None and self.limit.left <= 0:
                self._end([point])
                return
            found[side] = record or _no_record(self.sides.prepared.tasks[point])
        seconds = time.monotonic() - began
        self._seconds[point] = max(seconds, self._seconds.get(point, 0.0))
        self._report.times.learn(this, seconds / 2, seconds / 2)
        self.pairs[point].append((found[BASE], found[HEAD]))


def compared(pairs: Pairs) -> bool:
    """Whether all of them were measured on both sides."""
    return all(each.status == "ok" for pair in pairs for each in pair)


def _no_record(task: AsvTask) -> Record:
    declared = task.declared
    return Record(
        benchmark=declared.benchmark,
        plugin=declared.plugin.name,
        version=declared.version,
        params=dict(task.params),
        status="skipped",
        reason="the commit gives no Record of it",
    )
