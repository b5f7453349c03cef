"""What `hpml run` shows: progress while it measures, a table at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.formatting import estimate, format_point
from hpml_plugins.model.record import Record


class Display:
    """One status line on stderr while points are measured, refreshed only when there is news.

    No thread of rich's may run while a point forks: a lock it held would stay locked in the child.
    """

    def __init__(self, total: int, quiet: bool = False, debug: bool = False) -> None:
        self._out = Console()
        self._status = Console(stderr=True, quiet=quiet)
        self._total = total
        self._debug = debug
        self._done = 0
        self._point = ""

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def start(self, benchmark: str, params: Params) -> None:
        """Say which point is being measured."""
        self._point = f"[{self._done + 1}/{self._total}] {benchmark} {format_point(params)}"
        self._write("…")

    def progress(self, text: str, share: float | None) -> None:
        """Say what the point is doing."""
        self._write(f"{text}{f' {share:.0%}' if share is not None else ''}")

    def finish(self, record: Record) -> None:
        """Say how the point ended; failures stay on the screen."""
        self._done += 1
        self._clear()
        if record.status == "failed":
            self._status.print(f"[red]failed[/red] {escape(self._point)}: {escape(record.reason)}", soft_wrap=True)
            if record.output and self._debug:
                self._status.print(escape(record.output), style="dim", soft_wrap=True)

    def table(self, records: Sequence[Record]) -> None:
        """All points: their parameters, each metric's median and interval, or the reason for having none."""
        for name in dict.fromkeys(record.benchmark for record in records):
            of_one = [record for record in records if record.benchmark == name]
            if any(record.metrics for record in of_one):
                for table in self._tables(of_one):
                    self._out.print(table)
            else:
                self._out.print(f"{name}: nothing measured", style="italic")
            # Below and not in a column: a reason is longer than all the numbers together.
            for record in of_one:
                for remark in [f"{record.status}: {record.reason}"] * bool(record.reason) + record.warnings:
                    self._out.print(
                        escape(f"{format_point(record.params) or name}: {remark}"), soft_wrap=True, highlight=False
                    )

    def _tables(self, records: Sequence[Record]) -> Iterator[Table]:
        """One with a row per point; where that is too wide, several with as many columns, one per point, as fit."""
        table = _rows(records)
        if self._fits(table):
            yield table
            return
        abreast = len(records)
        while abreast > 1 and not self._fits(_columns(records[:abreast])):
            abreast -= 1
        for start in range(0, len(records), abreast):
            yield _columns(records[start : start + abreast])

    def _fits(self, table: Table) -> bool:
        unbounded = self._out.options.update(width=10_000)
        return self._out.measure(table, options=unbounded).maximum <= self._out.width

    def _write(self, text: str) -> None:
        if self._status.is_terminal and not self._status.quiet:
            self._status.file.write(f"\r\x1b[K{self._point} {text}"[: self._status.width + 4])
            self._status.file.flush()

    def _clear(self) -> None:
        if self._status.is_terminal and not self._status.quiet:
            self._status.file.write("\r\x1b[K")
            self._status.file.flush()


def _rows(records: Sequence[Record]) -> Table:
    table = Table(title=records[0].benchmark, title_justify="left", caption_justify="left")
    for key in records[0].params:
        table.add_column(key)
    metrics = _metrics(records)
    for metric in metrics:
        table.add_column(metric, justify="right", no_wrap=True)
    for record in records:
        table.add_row(*(escape(str(value)) for value in record.params.values()), *_estimates(record, metrics))
    return table


def _columns(records: Sequence[Record]) -> Table:
    table = Table(title=records[0].benchmark, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    for _ in records:
        table.add_column(justify="right")
    for key in records[0].params:
        table.add_row(key, *(escape(str(record.params[key])) for record in records))
    table.add_section()
    metrics = _metrics(records)
    for metric, *cells in zip(metrics, *(_estimates(record, metrics) for record in records), strict=True):
        table.add_row(metric, *cells)
    return table


def _metrics(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(metric for record in records for metric in record.metrics))


def _estimates(record: Record, metrics: Sequence[str]) -> list[str]:
    """Each metric as `formatting.estimate` writes it."""
    cells = []
    for name in metrics:
        metric = record.metrics.get(name)
        found = metric.estimate if metric else None
        cells.append(estimate(found.value, found.low, found.high, metric.unit) if metric and found else "–")
    return cells
