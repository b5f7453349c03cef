"""All numbers of asv's results, as arrays: one reading of the folder serves every page of ours.

asv's own `Results` makes a dictionary of statistics for each number. A million of them take half a minute; pages need
the number, its interval and when it was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_plugins.report.site.gpu_type import GpuType
from hpml_plugins.report.site.result_files import (
    FAILED,
    LEFT_OUT,
    NOTHING,
    OK,
    Benchmarks,
    Layout,
    Measured,
    Place,
    measured,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = ["FAILED", "LEFT_OUT", "NOTHING", "OK", "Benchmarks", "History", "Lines", "Place", "gather", "read_history"]


@dataclass
class Lines:
    """One benchmark's numbers. values, low, high, status, started: place × commit × point.

    low, high: asv's 99 % interval of the median, NaN or infinite where it has none.  status: see OK.  started: when it
    was run, ms since 1970.
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    status: np.ndarray
    started: np.ndarray


@dataclass
class History:
    """Everything that was measured. commits: oldest first.  dates: of the commits, ms since 1970."""

    places: list[Place] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    dates: list[float] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)
    lines: dict[str, Lines] = field(default_factory=dict)

    def gpu_types(self) -> list[GpuType]:
        """The GPU types, in the order of columns."""
        return sorted({place.gpu_type for place in self.places})


def read_history(results: Path, benchmarks: Benchmarks, revisions: Mapping[str, int]) -> History:
    """The history of the commits in `revisions` (commit → its place in history).

    A file that is no result of asv's is passed over: asv names it when it reads the same folder. A result of another
    version of a benchmark, or of one that no longer exists, does not count.
    """
    import gc

    # Millions of numbers that are all alive: the collector would look at them again and again and find nothing.
    was_on = gc.isenabled()
    gc.disable()
    try:
        layout = Layout(benchmarks)
        return gather((each for each in measured(results, layout) if each.commit in revisions), layout, revisions)
    finally:
        if was_on:
            gc.enable()


def gather(files: Iterable[Measured], layout: Layout, revisions: Mapping[str, int]) -> History:
    """The history in these files, whose commits are all in `revisions`."""
    import numpy as np

    found: dict[tuple[Place, str], Measured] = {}
    dates = {}
    for each in files:
        key = each.place, each.commit
        found[key] = found[key].merged(each) if key in found else each
        dates[each.commit] = each.date
    places = sorted({place for place, _ in found})
    commits = sorted(dates, key=lambda commit: revisions[commit])
    row_of = {place: number for number, place in enumerate(places)}
    column_of = {commit: number for number, commit in enumerate(commits)}
    numbers = np.full((4, len(places), len(commits), layout.size), np.nan)
    status = np.zeros(numbers.shape[1:], np.uint8)
    for (place, commit), each in found.items():
        at = row_of[place], column_of[commit]
        numbers[:, at[0], at[1]], status[at] = each.numbers, each.status
    values, low, high, started = numbers
    lines = {
        name: Lines(values[..., part], low[..., part], high[..., part], status[..., part], started[..., part])
        for name, part in layout.parts.items()
        if status[..., part].any()
    }
    return History(places, commits, [dates[each] for each in commits], [revisions[each] for each in commits], lines)
