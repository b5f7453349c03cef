"""The loop over the rounds of a run, and what it prints: progress with the time left, tables of points, a summary."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from hpml_plugins.host import Declared
from hpml_plugins.model import formatting
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.formatting import counted
from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import combine, schedule
from hpml_plugins.model.work import Roof
from hpml_plugins.node import describe_load
from hpml_plugins.report.tables import describe_points, spell_samples
from hpml_plugins.terminal import one_line, warn

#: s between two lines of status where the output is no terminal.
INTERVAL = 30.0
#: Numbers that the summary shows, and reasons for having none.
HEADLINES, REASONS = 4, 2
#: Plugins with changed files that have a line each.
MOST_CHANGED = 3


def describe_code_changes(changed: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What to do about plugins whose files changed at equal versions: a line each, of many one for all.

    changed: plugin → benchmark → the commit that was measured with other files.
    """
    fix = "raise `version` if what is measured changed; if only its speed did, nothing is to do"
    if len(changed) > MOST_CHANGED:
        names = ", ".join(sorted(changed))
        return [
            f"the files of {len(changed)} plugins differ from those measured before, at equal versions ({names}): {fix}"
        ]
    lines = []
    for plugin, commits in changed.items():
        since = ", ".join(sorted({commit[:8] for commit in commits.values() if commit}))
        before = f"those measured at commit {since}" if since else "those of its last run"
        same = f"the version of {', '.join(sorted(commits))} is the same"
        lines.append(f"plugin {plugin}: its files differ from {before}, and {same}: {fix}")
    return lines


class RunReport:
    """Follows the points of one run, of `hpml run` or `asv run`.

    points: as `Record.point` has them, in order, each as often as it has rounds.  past: the rounds that this machine
    measured before, in order.
    """

    def __init__(self, points: Sequence[str] = (), past: Sequence[Record] = ()) -> None:
        self.points = points
        self.records: list[Record] = []
        self._of_benchmark: list[Record | None] = []
        self._durations = {each.point: each.duration for each in past}
        self._past = list(past)
        self._done = 0
        self._current = ""
        self._started = self._spoke = time.monotonic()

    def start_point(self, name: str) -> None:
        """Say which point is measured now, how many are left and about how long they take."""
        total = max(len(self.points), self._done + 1)
        known = list(self._durations.values())
        usual = sum(known) / len(known) if known else (time.monotonic() - self._started) / max(self._done, 1)
        # What each point took the last time it was measured; others like the mean of those, or of this run
        seconds = sum(self._durations.get(point, usual) for point in self.points[self._done :])
        left = f", about {_spell_time(seconds)} left" if self._done or known else ""
        self._current = f"{self._done + 1} of {total}{left}: {name}"
        self.progress("…", None)

    def progress(self, text: str, share: float | None) -> None:
        """Say what the point is doing: on a terminal in place of the line before, elsewhere at times."""
        if not (terminal := sys.stderr.isatty()) and time.monotonic() - self._spoke < INTERVAL:
            return
        self._spoke = time.monotonic()
        line = one_line(f"{self._current} {text}{f' {share:.0%}' if share is not None else ''}")
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r\x1b[K{line[: width - 1]}" if terminal else f"{line}\n")
        sys.stderr.flush()

    def finish_round(self) -> None:
        """A round of a point has ended, or is not needed."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._done += 1

    def add(self, record: Record | None) -> None:
        """Take in what all rounds of a point gave; a commit from before the suite gives nothing."""
        self._of_benchmark.append(record)
        if record:
            self.records.append(record)
            self._past.append(record)

    @property
    def code_changes(self) -> list[str]:
        """A line for each plugin whose files changed while the versions of its benchmarks stayed the same.

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
            if id(record) in of_this_run and same and before.source["sha256"] != record.source["sha256"]:
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
            f"{len(found)} of {len(measured)} points were measured while other processes used up to "
            f"{worst['other_cpus']:.1f} of {worst['cores']:g} CPUs: their CPU times are marked and not compared; "
            "measure them again when the machine is idle"
        ]

    def finish_benchmark(self, width: int) -> str:
        """The points since the last benchmark: measured ones as a table, the others by reason."""
        records, self._of_benchmark = self._of_benchmark, []
        lines = list(describe_points([record for record in records if record], width, Roof(self._past)))
        if None in records:
            lines.append(f"skipped: {records.count(None)} of {len(records)} points: not available at this commit")
        return "\n".join(lines)

    def summary(self, results: Path) -> Iterator[str]:
        """What was measured, some numbers, what was not measured and why, where to look; which code changed."""
        if not self.records:
            return
        by_status = Counter(record.status for record in self.records)
        benchmarks = len({record.benchmark for record in self.records if record.status == "ok"})
        seconds = _spell_time(time.monotonic() - self._started)
        machine = self.records[-1].machine
        measured = f"{counted(by_status['ok'], 'point')} of {counted(benchmarks, 'benchmark')}"
        yield f"Measured {measured} on {machine} in {seconds}."
        seen: set[str] = set()
        for record in self.records:
            if record.status == "ok" and record.metrics and record.plugin not in seen and len(seen) < HEADLINES:
                seen.add(record.plugin)
                name, samples = next(iter(record.metrics.items()))
                point = f"{record.benchmark} {formatting.format_point(record.params)}".rstrip()
                yield f"  {point}: {name} {spell_samples(samples, samples.unit)}"
        for status in ("failed", "skipped"):
            reasons = Counter(record.reason for record in self.records if record.status == status)
            if reasons:
                shown = [f"{reason} ({count})" for reason, count in reasons.most_common(REASONS)]
                more = f"; {len(reasons) - REASONS} other reasons" if len(reasons) > REASONS else ""
                yield f"{status.capitalize()} {counted(by_status[status], 'point')}: {'; '.join(shown)}{more}."
        yield from [*self.code_changes, *self.busy]
        yield f"Stored in {results / machine / 'records'}. Show it: asv publish && asv preview, or asv show COMMIT."


def measure_rounds(
    tasks: Sequence[tuple[Declared, Params]],
    run: str,
    measure: Callable[[int], Record | None],
    report: RunReport,
) -> list[Record | None]:
    """Measure all rounds of all points, in random order. Returns what the rounds of each gave, as one Record.

    A point that failed or was skipped has no further round.  run: the name of this run.  measure: measures a round of
    the point of this number; None where its commit gives no Record.
    """
    if load := describe_load():
        warn(f"{load}; CPU times will be marked and not compared")
    measured: list[list[Record | None]] = [[] for _ in tasks]
    for number in schedule(range(len(tasks)), lambda number: tasks[number][0].rounds, run):
        (declared, params), done = tasks[number], measured[number]
        if not done or _needs_more(done, run):
            which = f"round {len(done) + 1} of {declared.rounds}: " if declared.rounds > 1 else ""
            report.start_point(f"{which}{declared.benchmark} {formatting.format_point(params)}")
            done.append(measure(number))
        report.finish_round()
    return [_join(done, run) for done in measured]


def _join(rounds: Sequence[Record | None], run: str) -> Record | None:
    """One Record of the rounds; that of an earlier run, which this run completes, comes with all of its rounds."""
    last = rounds[-1]
    return combine([each for each in rounds if each]) if last and last.run == run else last


def _needs_more(rounds: Sequence[Record | None], run: str) -> bool:
    """Whether a point needs further rounds. A commit from before there were rounds plans one, and tells of one."""
    record = _join(rounds, run)
    if record is None or record.status != "ok":
        return False
    return not record.is_complete or (record.run == run and record.planned_rounds == 1)


def _spell_time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
