"""What `asv run` prints for our benchmarks: progress with the time left, a compact table each, a summary."""

from __future__ import annotations

import ast
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from asv.console import log

from hpml_plugins.model import formatting
from hpml_plugins.model.record import Record, decode, point_key
from hpml_plugins.report.tables import describe_points, spell_samples

#: s between two lines of progress where the output is no terminal.
INTERVAL = 30.0
#: Numbers that the summary shows, and reasons for having none.
HEADLINES, REASONS = 4, 2


class RunReport:
    """Follows one `asv run`. scratch: its folder, where points leave their Records.

    durations: point → s that it took the last time, to estimate the time left.
    """

    def __init__(self, scratch: Path, durations: Mapping[str, float]) -> None:
        self.records: list[Record] = []
        self._of_benchmark: list[Record | None] = []
        self._scratch = scratch
        self._durations = durations
        self._points: list[str] = []
        self._done = 0
        self._read: set[Path] = set()
        self._started = self._spoke = time.monotonic()

    def expect(self, benchmarks: Iterable[tuple[Mapping[str, Any], Sequence[int] | None]], times: int) -> None:
        """Tell which points will be measured. benchmarks: asv's, with the indices of their points.  times: commits."""
        import itertools

        points: list[str] = []
        for benchmark, active in benchmarks:
            combinations = list(itertools.product(*benchmark["params"])) if benchmark["params"] else [()]
            chosen = range(len(combinations)) if active is None else active
            points += [point_of(benchmark, combinations[index]) for index in chosen]
        self._points = points * times

    def start_point(self, benchmark: Mapping[str, Any], values: Sequence[str]) -> None:
        """Say which point is measured now, how many are left and about how long they take."""
        terminal = sys.stderr.isatty()
        if not terminal and time.monotonic() - self._spoke < INTERVAL:
            return
        self._spoke = time.monotonic()
        done, total = self._done, max(len(self._points), self._done + 1)
        log.flush()
        name = formatting.format_point_texts(dict(zip(benchmark["param_names"], values, strict=False)))
        left = f", about {_spell_time(self._time_left())} left" if done or self._durations else ""
        text = f"point {done + 1} of {total}{left}: {benchmark['benchmark']} {name}".rstrip()
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r\x1b[K{text[: width - 1]}" if terminal else f"{text}\n")
        sys.stderr.flush()

    def finish_point(self, benchmark: Mapping[str, Any], values: Sequence[str]) -> None:
        """Take in the Record that the point left; a commit from before the suite leaves none."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        files = list(self._scratch.rglob(f"{point_of(benchmark, values)}.json"))
        new = [path for path in files if path not in self._read]
        self._read.update(new)
        self._of_benchmark.append(decode(new[-1].read_bytes()) if new else None)
        self._done += 1
        self.records += [record for record in self._of_benchmark[-1:] if record]

    def finish_benchmark(self) -> str:
        """The points of the benchmark that was just run: measured ones as a table, the others by reason."""
        records, self._of_benchmark = self._of_benchmark, []
        width = max(80, shutil.get_terminal_size((120, 24)).columns - 12)  # asv indents what it prints
        lines = list(describe_points([record for record in records if record], width))
        if None in records:
            lines.append(f"skipped: {records.count(None)} of {len(records)} points: not available at this commit")
        return "\n".join(lines)

    def summary(self, results: Path) -> Iterator[str]:
        """Ten lines at most: what was measured, some numbers, what was not measured and why, where to look."""
        if not self.records:
            return
        by_status = Counter(record.status for record in self.records)
        benchmarks = len({record.benchmark for record in self.records if record.status == "ok"})
        seconds = _spell_time(time.monotonic() - self._started)
        machine = self.records[-1].machine
        yield f"Measured {by_status['ok']} points of {benchmarks} benchmarks on {machine} in {seconds}."
        seen: set[str] = set()
        for record in self.records:
            if record.status == "ok" and record.metrics and record.plugin not in seen and len(seen) < HEADLINES:
                seen.add(record.plugin)
                name, samples = next(iter(record.metrics.items()))
                point = f"{record.benchmark} {formatting.format_point(record.params)}".rstrip()
                yield f"  {point}: {name} {spell_samples(samples)}"
        for status in ("failed", "skipped"):
            reasons = Counter(record.reason for record in self.records if record.status == status)
            if reasons:
                shown = [f"{reason} ({count})" for reason, count in reasons.most_common(REASONS)]
                more = f"; {len(reasons) - REASONS} other reasons" if len(reasons) > REASONS else ""
                yield f"{status.capitalize()} {by_status[status]} points: {'; '.join(shown)}{more}."
        yield f"Stored in {results / machine / 'records'}. Show it: asv publish && asv preview, or asv show COMMIT."

    def _time_left(self) -> float:
        """s: what each point took the last time it was measured; others like the mean of this run."""
        measured = [record.duration for record in self.records] or list(self._durations.values()) or [0.0]
        usual = sum(measured) / len(measured)
        return sum(self._durations.get(point, usual) for point in self._points[self._done :])


def point_of(benchmark: Mapping[str, Any], values: Sequence[str]) -> str:
    """The key of a point (`Record.point`) of one of asv's benchmarks. values: as Python's repr."""
    params = {name: ast.literal_eval(value) for name, value in zip(benchmark["param_names"], values, strict=True)}
    return point_key(benchmark["benchmark"], benchmark["version"], params)


def _spell_time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
