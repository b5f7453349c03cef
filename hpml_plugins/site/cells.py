"""One cell of the matrix: a reading as text, tooltip, link and ratio."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hpml_plugins import display
from hpml_plugins.site.readings import Reading


@dataclass(frozen=True)
class Cell:
    """What one point gave on one GPU type.

    status: "ok", "failed", "skipped" or "" for nothing at all.  value: the number at full precision, for the
    page's script.  ratio: against the base; empty where there is none.  title: the tooltip.  link: asv's graph.
    """

    status: str = ""
    text: str = ""
    interval: str = ""
    value: str = ""
    ratio: str = ""
    judgement: str = ""
    title: str = ""
    link: str = ""


def direction_of(benchmark: Mapping[str, Any]) -> str:
    """ "lower", "higher", or "" where a benchmark that is not ours does not let it be known."""
    if "direction" in benchmark:
        return str(benchmark["direction"])
    is_cost = benchmark.get("type") == "time" or benchmark.get("unit") in ("seconds", "bytes")
    return "lower" if is_cost else ""


def unit_of(benchmark: Mapping[str, Any]) -> str:
    """Our SI symbol, or what asv's "unit" says."""
    return str(benchmark.get("si_unit") or benchmark.get("unit") or "")


def graph_link(name: str, selection: Mapping[str, str]) -> str:
    """The address of asv's own graph. selection: asv's parameters, and `p-NAME` for a benchmark's own."""
    chosen = "&".join(f"{_quoted(key)}={_quoted(value)}" for key, value in selection.items())
    return f"index.html#{_quoted(name)}" + (f"?{chosen}" if chosen else "")


def make_cell(
    name: str,
    benchmark: Mapping[str, Any],
    own: Mapping[str, str],
    reading: Reading | None,
    base: Reading | None,
    hash_length: int,
) -> Cell:
    """The cell of one reading.

    own: the point, as asv's `p-NAME` → value.  base: the reading of the same point on the base GPU type.
    """
    if reading is None:
        return Cell(title="no result")
    day = datetime.datetime.fromtimestamp(reading.date / 1000, datetime.UTC).date().isoformat()
    origin = f"commit {reading.commit[:hash_length]} of {day}, on {reading.machine}"
    link = graph_link(name, {"machine": reading.machine, **own})
    if reading.value is None:
        return Cell("failed", "failed", title=f"failed: {origin}", link=link)
    if not reading.measured:
        return Cell("skipped", "–", title="not measured here")
    unit = unit_of(benchmark)
    times = None
    if base is not None and base is not reading and base.value is not None:
        times = display.better_by(reading.value, base.value, direction_of(benchmark))
    return Cell(
        status="ok",
        text=display.quantity(reading.value, unit),
        interval=display.interval(reading.value, reading.low, reading.high, unit),
        value=repr(float(reading.value)),
        ratio="base" if base is reading else display.ratio(times) if times is not None else "",
        judgement=display.judge(times) if times is not None else "",
        title=origin,
        link=link,
    )


def _quoted(text: str) -> str:
    # As encodeURIComponent does, for asv's script reads it with decodeURIComponent.
    return quote(text, safe="-_.!~*'()")
