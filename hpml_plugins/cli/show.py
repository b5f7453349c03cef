"""What `hpml run` shows: progress while it measures, tables at its end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from hpml_plugins.errors import one_line
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.formatting import format_point
from hpml_plugins.model.record import Record
from hpml_plugins.report.tables import describe_points


class Display:
    """One status line on stderr while points are measured, refreshed only when there is news."""

    def __init__(self, total: int, quiet: bool = False, debug: bool = False) -> None:
        self._on_terminal = sys.stderr.isatty() and not quiet
        self._quiet = quiet
        self._total = total
        self._debug = debug
        self._done = 0
        self._point = ""

    def start(self, benchmark: str, params: Params) -> None:
        """Say which point is being measured."""
        self._point = f"[{self._done + 1}/{self._total}] {benchmark} {format_point(params)}"
        self.progress("…", None)

    def progress(self, text: str, share: float | None) -> None:
        """Say what the point is doing."""
        if self._on_terminal:
            line = one_line(f"{self._point} {text}{f' {share:.0%}' if share is not None else ''}")
            sys.stderr.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
            sys.stderr.flush()

    def finish(self, record: Record) -> None:
        """Say how the point ended; failures stay on the screen."""
        self._done += 1
        self.clear()
        if record.status == "failed" and not self._quiet:
            print(f"failed {self._point}: {record.reason}", file=sys.stderr)
            if record.output and self._debug:
                print(record.output, file=sys.stderr)

    def clear(self) -> None:
        """Remove the status line."""
        if self._on_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def table(self, records: Sequence[Record]) -> None:
        """All points: each metric's median and interval, or the reason for having none."""
        for name in dict.fromkeys(record.benchmark for record in records):
            print(name)
            of_one = [record for record in records if record.benchmark == name]
            print("\n".join(describe_points(of_one, shutil.get_terminal_size().columns)))
