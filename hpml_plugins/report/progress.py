"""What a run prints: progress with the time left, tables of points, a summary."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hpml_plugins import clocks
from hpml_plugins.model import formatting
from hpml_plugins.model.formatting import counted
from hpml_plugins.model.record import Record
from hpml_plugins.node import describe_load
from hpml_plugins.report.shares import Roof
from hpml_plugins.report.tables import describe_points, spell_samples
from hpml_plugins.run import Follower, Round, RoundTimes, Task, TimeLimit
from hpml_plugins.terminal import one_line, warn

#: s between two lines of status where the output is no terminal.
INTERVAL = 30.0
#: Numbers that the summary shows, and reasons for having none.
HEADLINES, REASONS = 4, 2
#: Plugins with changed files that have a line each.
MOST_CHANGED = 3
#: Points that did not fit into a limit and are named.
MOST_LEFT_OUT = 12


def describe_code_changes(changed: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What to do about plugins whose files changed at equal versions: a line each, of many one for
    all.

    changed: plugin → benchmark → the commit that was measured with other files.
    """
    fix = "raise `version` if what is measured changed; if only its speed did, nothing is to do"
    if len(changed) > MOST_CHANGED:
        names = ", ".join(sorted(changed))
        return [
            f"the files of {len(changed)} plugins differ from those measured before, at equal"
            f" versions ({names}): {fix}"
        ]
    lines = []
    for plugin, commits in changed.items():
        since = ", ".join(sorted({commit[:8] for commit in commits.values() if commit}))
        before = f"those measured at commit {since}" if since else "those of its last run"
        same = f"the version of {', '.join(sorted(commits))} is the same"
        lines.append(f"plugin {plugin}: its files differ from {before}, and {same}: {fix}")
    return lines


class RunReport(Follower):
    """Follows the points of one run, of `hpml run` or `asv run`, and prints what it does.

    times: predicts how long the rounds take that are left.  past: the rounds that this machine
    measured before, in order.  limit: the time that the run may take.  left_out: what did not fit
    into it, in words.
    """

    def __init__(
        self,
        times: RoundTimes | None = None,
        past: Sequence[Record] = (),
        limit: TimeLimit | None = None,
    ) -> None:
        super().__init__(times)
        self.limit = limit
        self.records: list[Record] = []
        self.left_out: list[str] = []
        self._of_benchmark: list[Record | None] = []
        self._past = list(past)
        self._planned: Counter[Round] = Counter()
        self._total = 0
        self._done = 0
        self._current = ""
        self._started = self._spoke = clocks.monotonic()

    def plan(self, rounds: Sequence[Round], repeats: int = 1) -> None:
        """What the run will measure. repeats: how often each round is, once for each commit and
        environment."""
        for this in rounds:
            self._planned[this] += repeats
        self._total += len(rounds) * repeats

    def begin(self) -> None:
        """Say what disturbs the run before it begins."""
        if load := describe_load():
            warn(f"{load}; CPU times will be marked, and their intervals wider")

    def start_round(self, this: Round, task: Task) -> None:
        """Say which point is measured now, how many are left and about how long they take."""
        declared, params = task
        which = f"round {this.number + 1} of {declared.rounds}: " if declared.rounds > 1 else ""
        point = f"{which}{declared.benchmark} {formatting.format_point(params)}".rstrip()
        total = max(self._total, self._done + 1)
        self._current = (
            f"{self._done + 1} of {total}, about {_spell_time(self.seconds_left)} left: {point}"
        )
        self.progress("…", None)

    @property
    def seconds_left(self) -> float:
        """About how long the rounds take that are left, s; no more than what is left of the
        limit."""
        expected = sum(self.times.expect(this) * count for this, count in self._planned.items())
        return max(0.0, min(expected, self.limit.left)) if self.limit else expected

    def leave_out(self, task: Task, measured_rounds: int) -> None:
        """A point, or what is missing of its rounds, does not fit into the limit."""
        declared, params = task
        point = f"{declared.benchmark} {formatting.format_point(params)}".rstrip()
        part = (
            f" (measured {measured_rounds} of {declared.rounds} rounds)" if measured_rounds else ""
        )
        self.left_out.append(point + part)

    def progress(self, text: str, share: float | None) -> None:
        """Say what the point is doing: on a terminal in place of the line before, elsewhere at
        times."""
        if not (terminal := sys.stderr.isatty()) and clocks.monotonic() - self._spoke < INTERVAL:
            return
        self._spoke = clocks.monotonic()
        line = one_line(f"{self._current} {text}{f' {share:.0%}' if share is not None else ''}")
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r\x1b[K{line[: width - 1]}" if terminal else f"{line}\n")
        sys.stderr.flush()

    def finish_round(self, this: Round) -> None:
        """A round of a point has ended, or is not needed."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._done += 1
        self._planned[this] -= 1
        if self._planned[this] <= 0:
            del self._planned[this]

    def add(self, record: Record | None) -> None:
        """Take in what all rounds of a point gave; a commit from before the suite gives nothing."""
        self._of_benchmark.append(record)
        if record:
            self.records.append(record)
            self._past.append(record)

    @property
    def code_changes(self) -> list[str]:
        """A line for each plugin whose files changed while the versions of its benchmarks stayed
        the same.

        A Record of an earlier run, which asv was told not to repeat, says nothing.
        """
        changed: dict[str, dict[str, str]] = {}
        last: dict[str, Record] = {}
        of_this_run = set(map(id, self.records))
        known = [each for each in self._past if each.status == "ok" and "sha256" in each.source]
        for record in sorted(known, key=lambda each: each.started):
            before = last.setdefault(record.benchmark, record)
            last[record.benchmark] = record
            same = before.version == record.version
            if (
                id(record) in of_this_run
                and same
                and before.source["sha256"] != record.source["sha256"]
            ):
                changed.setdefault(record.plugin, {})[record.benchmark] = before.commit
        return describe_code_changes(changed)

    @property
    def busy(self) -> list[str]:
        """A line about the measured points that other processes disturbed, if there are any."""
        measured = [each for each in self.records if each.status == "ok"]
        found = [each.conditions for each in measured if each.is_busy]
        if not found:
            return []
        worst = max(found, key=lambda each: each["other_cpus"] / each["cores"])
        return [
            f"{len(found)} of {len(measured)} points were measured while other processes used up to"
            f" {worst['other_cpus']:.1f} of {worst['cores']:g} CPUs: their CPU times are marked,"
            " and their intervals are wider; measure them again when the machine is idle"
        ]

    @property
    def omitted(self) -> list[str]:
        """A line about the points that the limit left no time for, if there are any."""
        if not self.left_out:
            return []
        named = ", ".join(self.left_out[:MOST_LEFT_OUT])
        rest = len(self.left_out) - MOST_LEFT_OUT
        more = f" and {rest} more" if rest > 0 else ""
        points = counted(len(self.left_out), "point")
        return [
            f"Left out {points} that did not fit into the limit of {self.limit}: {named}{more}."
        ]

    def finish_benchmark(self, width: int) -> str:
        """The points since the last benchmark: measured ones as a table, the others by reason."""
        records, self._of_benchmark = self._of_benchmark, []
        lines = list(
            describe_points([record for record in records if record], width, Roof(self._past))
        )
        if None in records:
            lines.append(
                f"skipped: {records.count(None)} of {len(records)} points: not available at this"
                " commit"
            )
        return "\n".join(lines)

    def summary(self, results: Path) -> Iterator[str]:
        """What was measured, some numbers, what was not measured and why, where to look; which code
        changed."""
        if not self.records:
            yield from self.omitted
            return
        by_status = Counter(record.status for record in self.records)
        benchmarks = len({record.benchmark for record in self.records if record.status == "ok"})
        seconds = _spell_time(clocks.monotonic() - self._started)
        machine = self.records[-1].machine
        measured = f"{counted(by_status['ok'], 'point')} of {counted(benchmarks, 'benchmark')}"
        between = f"{self.times.between:.2g} s between two rounds"
        yield f"Measured {measured} on {machine} in {seconds}, {between}."
        seen: set[str] = set()
        for record in self.records:
            if (
                record.status == "ok"
                and record.metrics
                and record.plugin not in seen
                and len(seen) < HEADLINES
            ):
                seen.add(record.plugin)
                name, samples = next(iter(record.metrics.items()))
                point = f"{record.benchmark} {formatting.format_point(record.params)}".rstrip()
                yield f"  {point}: {name} {spell_samples(samples, samples.unit)}"
        for status in ("failed", "skipped"):
            reasons = Counter(record.reason for record in self.records if record.status == status)
            if reasons:
                shown = [f"{reason} ({count})" for reason, count in reasons.most_common(REASONS)]
                more = f"; {len(reasons) - REASONS} other reasons" if len(reasons) > REASONS else ""
                yield (
                    f"{status.capitalize()} {counted(by_status[status], 'point')}:"
                    f" {'; '.join(shown)}{more}."
                )
        yield from [*self.omitted, *self.code_changes, *self.busy]
        yield (
            f"Stored in {results / machine / 'records'}. Show it: asv publish && asv preview, or"
            " asv show COMMIT."
        )


def _spell_time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
