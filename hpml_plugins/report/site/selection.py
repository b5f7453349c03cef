"""Which lines asv's page of a benchmark draws before a reader chooses: some that have numbers.

asv takes the first values of every parameter, eight lines at most. Of a grid that no machine measures whole these may
be eight lines without any number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hpml_plugins.report.site.history import OK, History

if TYPE_CHECKING:
    import numpy as np

#: The key of a benchmark in index.json: for each of its parameters the numbers of the values to begin with.
KEY = "hpml_selected"
#: Lines of each machine, as asv has it.
MOST = 8


def select_lines(history: History, benchmarks: Mapping[str, dict[str, Any]]) -> None:
    """Tell every benchmark that has numbers and parameters what to begin with, for asv to write into its index."""
    for name, benchmark in benchmarks.items():
        benchmark.pop(KEY, None)
        shape = [len(values) for values in benchmark["params"]]
        if shape and name in history.lines:
            counts = (history.lines[name].status == OK).sum(axis=(0, 1)).reshape(shape)
            if counts.any():
                benchmark[KEY] = selection(counts)


def selection(counts: np.ndarray) -> list[list[int]]:
    """Of each axis, which values: around the point that was measured most often, the first of several.

    counts: how often each point was measured, an axis a parameter.
    """
    import numpy as np

    middle: tuple[Any, ...] = np.unravel_index(int(counts.argmax()), counts.shape)
    chosen: list[list[int]] = []
    room = MOST
    for axis, at in enumerate(middle):
        along = counts[(*middle[:axis], slice(None), *middle[axis + 1 :])]
        others = [int(value) for value in np.flatnonzero(along) if value != at]
        values = sorted([int(at), *others[: room - 1]])
        chosen.append(values)
        room = max(1, room // len(values))
    return chosen
