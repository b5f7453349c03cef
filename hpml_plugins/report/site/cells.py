"""One cell of the matrix: a reading as text, tooltip, link and ratio."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hpml_plugins.model import formatting as display


@dataclass(frozen=True)
class Reading:
    """The newest result of one point on one GPU type. value: None when it failed, NaN when not measured.

    low, high: asv's 99 % interval of the median.  date: of the commit, ms since 1970.  usual: the commit is its
    column's newest, and the column has one machine, so that the cell need not say so.
    """

    value: float | None
    low: float
    high: float
    commit: str
    date: float
    machine: str
    usual: bool = False

    @property
    def measured(self) -> bool:
        """Whether there is a number."""
        return self.value is not None and abs(self.value) != float("inf") and self.value == self.value


@dataclass(frozen=True)
class Cell:
    """What one point gave on one GPU type.

    status: "ok", "failed", "skipped" or "" for nothing at all.  value: the number at seven digits, for the
    page's script.  ratio: against the base; empty where there is none.  title: the tooltip.
    linked: to its row's history.
    """

    status: str = ""
    text: str = ""
    interval: str = ""
    value: str = ""
    ratio: str = ""
    judgement: str = ""
    title: str = ""
    linked: bool = False


def direction_of(benchmark: Mapping[str, Any]) -> str:
    """ "lower", "higher", or "" where a benchmark that is not ours does not let it be known."""
    if benchmark.get("direction") in ("lower", "higher"):
        return str(benchmark["direction"])
    is_cost = benchmark.get("type") == "time" or benchmark.get("unit") in ("seconds", "bytes")
    return "lower" if is_cost and "direction" not in benchmark else ""


def unit_of(benchmark: Mapping[str, Any]) -> str:
    """Our SI symbol, or what asv's "unit" says."""
    return str(benchmark.get("si_unit") or benchmark.get("unit") or "")


def graph_link(name: str, selection: Mapping[str, str]) -> str:
    """The address of asv's own graph. selection: asv's parameters, and `p-NAME` for a benchmark's own."""
    chosen = "&".join(f"{_quoted(key)}={_quoted(value)}" for key, value in selection.items())
    return f"index.html#{_quoted(name)}" + (f"?{chosen}" if chosen else "")


def history_link(name: str, point: str) -> str:
    """The address of a point's history.  point: as `display.point` spells it."""
    return f"history.html#{_quoted(name)}" + (f"?{_quoted(point)}" if point else "")


def make_cell(benchmark: Mapping[str, Any], reading: Reading | None, base: Reading | None) -> Cell:
    """The cell of one reading.  base: the reading on the base GPU type."""
    if reading is None:
        return Cell()
    origin = "" if reading.usual else f"commit {reading.commit[:8]} of {day(reading.date)}, on {reading.machine}"
    if reading.value is None:
        return Cell("failed", "failed", title=origin, linked=True)
    if not reading.measured:
        return Cell("skipped", "–")
    unit = unit_of(benchmark)
    times = None
    if base is not None and base is not reading and base.value is not None:
        times = display.better_by(reading.value, base.value, direction_of(benchmark))
    return Cell(
        status="ok",
        text=display.quantity(reading.value, unit),
        interval=display.interval(reading.value, reading.low, reading.high, unit),
        value=f"{reading.value:.7g}",
        ratio="base" if base is reading else display.ratio(times) if times is not None else "",
        judgement=display.judge(times) if times is not None else "",
        title=origin,
        linked=True,
    )


def day(date: float) -> str:
    """The day of a commit: ms since 1970 as 2026-01-31."""
    return datetime.datetime.fromtimestamp(date / 1000, datetime.UTC).date().isoformat()


def _quoted(text: str) -> str:
    # As encodeURIComponent does, for asv's script reads it with decodeURIComponent.
    return quote(text, safe="-_.!~*'()")
