"""The output of a run: a bar with the time left, a line for each point, and a summary at the
end."""

from __future__ import annotations

import itertools
import math
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hpml_plugins import clocks
from hpml_plugins.model.formatting import counted, name_point
from hpml_plugins.model.record import Record
from hpml_plugins.registry import TaskEntry
from hpml_plugins.report.points import describe_points, headlines, kind_of, point_lines
from hpml_plugins.report.shares import Roof
from hpml_plugins.run import (
    MEASURED_NOTHING,
    NOT_WHOLE,
    Follower,
    Round,
    RoundTimes,
    Task,
    TimeLeft,
    TimeLimit,
)
from hpml_plugins.terminal import cut, one_line, say

#: s between two lines of status if the output is not a terminal.
INTERVAL = 60.0
#: The highest share that the bar shows during a run.
MOST_SHARE = 0.99
#: Characters of the bar.
BAR = 20
#: Characters of the name of a point beside it, at least.
SHORTEST_NAME = 8
#: Characters of a line if the output is not a terminal.
WIDTH = 100
#: The most reasons for missing numbers that the summary lists.
REASONS = 3
#: Characters of a reason that are shown.
MOST_OF_REASON = 70
#: The same for the only reason why a run measured nothing, which ends with how to fix it.
MOST_OF_ONLY_REASON = 300
#: The reason for a missing number if the commit has no suite.
UNAVAILABLE = "not available at this commit"
#: The most plugins with changed files that have a separate line.
MOST_CHANGED = 3
#: The most points left out by a limit that are listed.
MOST_LEFT_OUT = 12


def describe_code_changes(changed: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What to do about plugins whose files changed at equal versions: one line each, or one for all
    if there are many.

    changed: plugin → benchmark → the commit that was measured with other files.
    """
    fix = "raise it if what is measured changed"
    if len(changed) > MOST_CHANGED:
        names = ", ".join(sorted(changed))
        return [
            f"The files of {len(changed)} plugins changed since they were measured, their versions"
            f" did not ({names}): {fix}"
        ]
    lines = []
    for plugin, commits in changed.items():
        since = ", ".join(sorted({commit[:8] for commit in commits.values() if commit}))
        before = f"commit {since}" if since else "its last run"
        lines.append(
            f"Plugin {plugin} changed since {before}, the version of"
            f" {', '.join(sorted(commits))} did not: {fix}"
        )
    return lines


class RunReport(Follower):
    """Follows the points of one run, of `hpml run`, `asv run` or the gate, and prints its progress.

    times: predicts the duration of the remaining rounds.  past: the rounds that this machine
    measured before, in order.  limit: the time limit of the run.  verbose: whether all metrics and
    warnings are printed.  ends_early: whether fewer rounds than planned may be enough.
    """

    def __init__(
        self,
        times: RoundTimes | None = None,
        past: Sequence[Record] = (),
        limit: TimeLimit | None = None,
        *,
        verbose: bool = False,
        ends_early: bool = False,
    ) -> None:
        super().__init__(times)
        self.limit = limit
        self.verbose = verbose
        self.records: list[Record] = []
        self.left_out: list[str] = []
        self.stored: list[Record] = []  # of an earlier run, which asv was told to keep
        self._asked = self._unstarted = self._cut_short = 0
        self._companion = ""
        self._whole, self._keeps = True, False
        self._at_most = "at most" if ends_early else "about"
        self._unavailable = 0
        self._past = list(past)
        self._planned: Counter[Round] = Counter()
        self._commits = 0
        self._ended: float | None = None
        self._share = 0.0
        self._current = self._benchmark = self._reached = ""
        self._expected = 0.0
        self._started = self._spoke = self._began = clocks.monotonic()
        self._measuring: float | None = None

    def expect(
        self, points: int, *, companion: str = "", whole: bool = True, keeps: bool = False
    ) -> None:
        """Say what the run was asked for, which `outcome` compares with what was measured.

        points: their number, over all commits and environments.  companion: the benchmark that is
        measured beside them, asked for or not, such as the reference.  whole: whether nothing else
        is measured, such as a benchmark of asv's own.  keeps: whether points that an earlier run
        measured are skipped.
        """
        self._asked = points
        self._companion = companion
        self._whole = whole
        self._keeps = keeps

    def plan(self, rounds: Sequence[Round], repeats: int = 1, commits: int = 1) -> None:
        """Announce the rounds of the run. repeats: how often each is measured, once for each commit
        and environment.  commits: how often one is installed to be measured."""
        self._commits = commits
        for this in rounds:
            self._planned[this] += repeats

    def begin(self) -> None:
        """Print what will be measured, if it takes long."""
        points = counted(len({this.point for this in self._planned}), "point")
        rounds = counted(self._planned.total(), "round")
        self._began = self._spoke = clocks.monotonic()
        self._commits -= 1
        if self._measuring is None:
            self._measuring = self._began
        elif self._ended is not None:
            self.times.learn_build(self._began - self._ended)
        left = self.time_left
        if left.seconds > INTERVAL:
            say(f"Measuring {points} in {rounds}: {self._format_left(left)}", error=True)

    def start_round(self, this: Round, task: Task) -> None:
        """The measurement of a round starts."""
        declared, params = task
        if declared.why_unmet(params):  # its Record gives the reason immediately
            return
        which = (
            f"round {this.number + 1} of {declared.rounds}: " if declared.rounds > 1 else ""
        )
        self._current = f"{which}{name_point(declared.benchmark, params)}"
        self._benchmark = declared.benchmark
        self._expected = self.times.expect(this)
        self._began = clocks.monotonic()
        self.progress("", None)

    @property
    def time_left(self) -> TimeLeft:
        """The duration of the remaining rounds, at most what remains of the limit."""
        left = self.times.left(self._planned, max(0, self._commits))
        gone = min(self._expected, clocks.monotonic() - self._began)
        left = TimeLeft(*(max(0.0, each - gone) for each in left))
        return left.within(self.limit.left) if self.limit else left

    def _format_left(self, left: TimeLeft) -> str:
        """The time in words: a range if it is uncertain."""
        if left.is_one_number:
            return f"{self._at_most} {_format_time(left.seconds)}"
        if self._at_most == "about":
            return _format_range(left.low, left.high)
        return f"{self._at_most} {_format_time(left.high)}"

    def leave_out(self, task: Task, measured_rounds: int) -> None:
        """A point, or the rest of its rounds, does not fit into the limit."""
        declared, params = task
        point = name_point(declared.benchmark, params)
        if declared.benchmark != self._companion:
            self._unstarted += not measured_rounds
            self._cut_short += bool(measured_rounds)
        facts = []
        if measured_rounds:
            facts.append(f"measured {measured_rounds} of {declared.rounds} rounds")
        if self._reached:
            facts.append(f"ended at: {self._reached}")
        self.left_out.append(f"{point} ({'; '.join(facts)})" if facts else point)

    def progress(self, text: str, share: float | None) -> None:
        """Show the progress of the run and of the point: on a terminal as a bar that replaces the
        previous one, elsewhere as an occasional line.

        share: of the point, 0 to 1.
        """
        self._reached = text if share is None else f"{text} {share:.0%}"
        now = clocks.monotonic()
        if not (terminal := sys.stderr.isatty()) and now - self._spoke < INTERVAL:
            return
        self._spoke = now
        left = self.time_left
        # if the run takes longer than expected, the bar neither goes back nor reaches its end
        gone = 0.0 if self._measuring is None else now - self._measuring
        of_run = gone / (gone + left.seconds + 1e-9)
        self._share = max(self._share, min(of_run, MOST_SHARE))
        # the share in asv's format: `hpml jobs` searches for it
        told = f"[{self._share:4.0%}] {self._format_left(left)} left"
        if terminal:
            filled = round(BAR * self._share)
            bar = "█" * filled + "░" * (BAR - filled)
            width = shutil.get_terminal_size().columns - 1
            begin = f"{bar} {told}: "
            reached = f" {one_line(self._reached)}" if self._reached else ""
            # a long name of a point must not hide how far it is
            room = max(width - len(begin) - len(reached), SHORTEST_NAME)
            line = f"{begin}{cut(one_line(self._current), room)}{reached}"
            sys.stderr.write(f"\r\x1b[K{line[:width]}")
        else:
            line = f"{told}: {self._benchmark} {self._reached}".rstrip()
            sys.stderr.write(f"{one_line(line)}\n")
        sys.stderr.flush()

    def finish_round(self, this: Round) -> None:
        """A round of a point has ended, or is not needed."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._expected = 0.0
        self._reached = ""
        self._ended = clocks.monotonic()
        self._planned[this] -= 1
        if self._planned[this] <= 0:
            del self._planned[this]

    def add(self, records: Sequence[Record | None]) -> None:
        """Add the results of all rounds of some points; a commit from before the suite gives
        none."""
        found = [record for record in records if record]
        self._unavailable += len(records) - len(found)
        self.records += found
        self._past += found

    def describe(self, records: Sequence[Record | None], width: int) -> list[str]:
        """Describe the results of the points: one line for each and one for its warnings; with
        `verbose` a table of each benchmark, with all metrics and warnings."""
        found = [record for record in records if record]
        roof = Roof(self._past)
        if not self.verbose:
            return list(point_lines(found, roof, width))
        lines = []
        for name, group in itertools.groupby(found, lambda each: each.benchmark):
            lines += [name, *describe_points(list(group), width, roof, verbose=True), ""]
        return lines

    @property
    def code_changes(self) -> list[str]:
        """One line for each plugin whose files changed while the versions of its benchmarks stayed
        the same.

        Records of an earlier run that asv was told not to repeat are ignored.
        """
        changed: dict[str, dict[str, str]] = {}
        last: dict[str, Record] = {}
        of_this_run = set(map(id, self.records))
        known = [
            each for each in self._past if each.status == "ok" and "sha256" in each.source
        ]
        for record in sorted(known, key=lambda each: each.started):
            before = last.get(record.benchmark)
            last[record.benchmark] = record
            if before and id(record) in of_this_run and _differ_in_code(before, record):
                changed.setdefault(record.plugin, {})[record.benchmark] = before.commit
        return describe_code_changes(changed)

    @property
    def _measured(self) -> list[Record]:
        return [record for record in self.records if record.status == "ok"]

    @property
    def busy(self) -> list[str]:
        """A line about the measured points that other processes disturbed, if any."""
        measured = self._measured
        found = [each.conditions for each in measured if each.is_busy]
        if not found:
            return []
        worst = max(found, key=lambda each: each["other_cpus"] / each["cores"])
        return [
            f"Busy: during {len(found)} of {len(measured)} points other processes used"
            f" up to {worst['other_cpus']:.1f} of {worst['cores']:g} CPUs; measure again when idle"
        ]

    @property
    def omitted(self) -> list[str]:
        """A line about the points that did not fit into the limit, if any."""
        if not self.left_out:
            return []
        named = ", ".join(self.left_out[:MOST_LEFT_OUT])
        rest = len(self.left_out) - MOST_LEFT_OUT
        more = f" and {rest} more" if rest > 0 else ""
        points = counted(len(self.left_out), "point")
        return [
            f"Left out {points} that did not fit into the limit of {self.limit}: {named}{more}."
        ]

    @property
    def kept(self) -> list[str]:
        """A line about the points measured by an earlier run, if any."""
        points = counted(len(self.stored), "point")
        return [f"Not measured again: {points} of an earlier run"] if self.stored else []

    @property
    def noisy(self) -> list[str]:
        """A line about noisy points, if any."""
        measured = self._measured
        found = sum(bool(each.noise) for each in measured)
        hint = "" if self.verbose else "; -v shows how"
        return [f"Noisy: {found} of {len(measured)} points{hint}"] if found else []

    def _reasons(self, status: str) -> Counter[str]:
        """Why points failed or were skipped, and how many. That the companion is skipped, such as
        the reference on a node without a GPU, is no news."""
        records = self._of_asked if status == "skipped" else self.records
        told = [record.reason for record in records if record.status == status]
        reasons = Counter(map(kind_of, told) if status == "skipped" else told)
        if status == "skipped" and self._unavailable:
            reasons[UNAVAILABLE] += self._unavailable
        return reasons

    @property
    def without_number(self) -> Iterator[str]:
        """One line each for failed and for skipped points, by reason."""
        for status in ("failed", "skipped"):
            if reasons := self._reasons(status):
                points = counted(reasons.total(), "point")
                yield f"{status.capitalize()} {points}: {_list_reasons(reasons)}"

    @property
    def _of_asked(self) -> list[Record]:
        return [each for each in self.records if each.benchmark != self._companion]

    @property
    def measured_nothing(self) -> bool:
        """Whether this run measured no point that it was asked for."""
        measured = any(each.status == "ok" for each in self._of_asked)
        return bool(self._asked) and self._whole and not measured

    @property
    def _not_reached(self) -> int:
        stored = sum(each.benchmark != self._companion for each in self.stored)
        known = len(self._of_asked) + self._unavailable + stored + self._unstarted
        return max(0, self._asked - known)

    @property
    def _measured_before(self) -> bool:
        """Whether an earlier run measured some of the points."""
        skipped_commits = self._keeps and self._not_reached > 0
        return skipped_commits or any(each.status == "ok" for each in self.stored)

    @property
    def status(self) -> int:
        """The exit status of the run, if no point failed."""
        if self.measured_nothing and not self._measured_before:
            return MEASURED_NOTHING
        return NOT_WHOLE if self.left_out else 0

    @property
    def outcome(self) -> list[str]:
        """The last line of a run that has no number of some points: how many, and if it measured
        nothing, why."""
        missing = self._missing
        if self.measured_nothing:
            new = " new" if self._measured_before else ""
            but = f" but {self._companion}" if self._measured else ""
            told = [
                f"{counted(number, 'point')} {what}" + (f": {why}" if why else "")
                for what, number, why in missing
            ]
            return [f"Measured nothing{new}{but}: {'; '.join([*self._earlier, *told])}"]
        if not missing or not self._asked:
            return []
        measured = sum(each.status == "ok" for each in self._of_asked)
        counts = [f"{number} {what}" for what, number, _ in missing]
        told = [*counts, *self._earlier]
        return [
            f"Measured {measured} of {counted(self._asked, 'point')}: {', '.join(told)}"
        ]

    @property
    def _earlier(self) -> list[str]:
        """Of how many points the Records of an earlier run were kept."""
        if not self.stored:
            return []
        points = f"{counted(len(self.stored), 'point')} of an earlier run"
        if self._measured_before:
            return [points]
        unmet = Counter(
            kind_of(each.reason) for each in self.stored if each.requirement_unmet
        )
        if unmet.total() == len(self.stored):
            return [f"{points}, skipped: {_list_reasons(unmet, MOST_OF_ONLY_REASON)}"]
        return [f"{points}, without a number; they are tried again without --skip-existing"]

    @property
    def _missing(self) -> list[tuple[str, int, str]]:
        """What happened to the points without a number, or with fewer rounds than planned: in
        words, to how many, and why."""
        skipped, failed = self._reasons("skipped"), self._reasons("failed")
        because = "its commit was not built"
        if self._keeps:
            because += ", or has results"
        found = [
            ("failed", failed.total(), _list_reasons(failed, MOST_OF_ONLY_REASON)),
            ("skipped", skipped.total(), _list_reasons(skipped, MOST_OF_ONLY_REASON)),
            (f"did not fit into the limit of {self.limit}", self._unstarted, ""),
            ("not in all rounds", self._cut_short, ""),
            ("not reached", self._not_reached, because),
        ]
        return [each for each in found if each[1]]

    def summary(
        self, tasks: Mapping[str, Sequence[TaskEntry]], results: Path | None
    ) -> Iterator[str]:
        """The results of this machine, what was measured, and what was not and why.

        tasks: of the registry.  results: the folder in which they are stored; None if they are not.
        """
        if not self.records:
            yield from self.omitted
            return
        machine = self.records[-1].machine
        if self.measured_nothing:  # `outcome` says why; nothing may look like a result
            yield from [*self.omitted, _tell_stored(results, machine)]
            return
        if found := headlines(tasks, self._past, {each.run for each in self.records}):
            yield from ("", f"What {machine} reaches (± is the 95 % interval of one run):")
            yield from (f"  {line}" for line in found)
            yield ""
        measured = self._measured
        benchmarks = counted(len({record.benchmark for record in measured}), "benchmark")
        points = f"{counted(len(measured), 'point')} of {benchmarks}"
        taken = _format_time(clocks.monotonic() - self._started)
        yield f"Measured {points} on {machine} in {taken}"
        yield from [*self.kept, *self.without_number]
        yield from [*self.omitted, *self.noisy, *self.busy, *self.code_changes]
        yield _tell_stored(results, machine)


def _tell_stored(results: Path | None, machine: str) -> str:
    return f"Stored in {results / machine / 'records'}" if results else "Nothing is stored"


def _list_reasons(reasons: Counter[str], most: int = MOST_OF_REASON) -> str:
    """The most common reasons, each with the number of its points if there are several.
    most: characters of the only one."""
    common = reasons.most_common(REASONS)
    if len(common) == 1:
        return cut(common[0][0], most)
    shown = [f"{cut(reason, MOST_OF_REASON)} ({count})" for reason, count in common]
    if rest := reasons.total() - sum(count for _, count in common):
        shown.append(f"other reasons ({rest})")
    return "; ".join(shown)


def _differ_in_code(a: Record, b: Record) -> bool:
    """Whether they were measured with different code of the plugin, at one version of the
    benchmark."""
    if a.version != b.version or a.source["sha256"] == b.source["sha256"]:
        return False
    from hpml_plugins.model.alike_code import measuring_code  # reads a file

    return measuring_code(a) != measuring_code(b)


def _format_range(low: float, high: float) -> str:
    """A range, with the lower end rounded down and the upper one up."""
    if high < 2 * 60:
        return f"{math.floor(low / 10) * 10} to {math.ceil(high / 10) * 10} s"
    if high < 2 * 3600:
        step = 0.5 if high < 10 * 60 else 1
        most = f"{math.ceil(high / 60 / step) * step:g} min"
        if low < 60:
            return f"{math.floor(low / 10) * 10} s to {most}"
        return f"{math.floor(low / 60 / step) * step:g} to {most}"
    return f"{math.floor(low / 360) / 10:g} to {math.ceil(high / 360) / 10:g} h"


def _format_time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
