"""asv's summary graphs, one a benchmark: the same numbers from arrays, without averaging again what was averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from asv import graph, util

if TYPE_CHECKING:
    import numpy as np

#: Revisions, ascending; numbers, revision × series, NaN where there is none.
Table: TypeAlias = "tuple[np.ndarray, np.ndarray]"


def table(of: Any) -> Table:
    """The numbers of a graph of asv's."""
    import numpy as np

    data = of.get_data()
    rows = [[values] if of.scalar_series else values for _, values, _ in data]
    numbers = np.array(rows, dtype=float).reshape(len(rows), of.n_series)  # None becomes NaN
    return np.array([revision for revision, _, _ in data], np.int64), numbers


def make_summary_graph(graphs: list[Any]) -> Any:
    """asv's `make_summary_graph`, but that each series keeps its last number over gaps; see `carry`."""
    import numpy as np

    tables = [table(each) for each in graphs]
    revisions = np.unique(np.concatenate([each for each, _ in tables]))
    numbers = np.full((len(revisions), sum(each.n_series for each in graphs)), np.nan)
    start = 0
    for at, values in tables:
        numbers[np.searchsorted(revisions, at), start : start + values.shape[1]] = values
        start += values.shape[1]
    missing = np.asarray(np.isnan(numbers).all(axis=1))
    means = [
        None if gone else util.geom_mean_na(row.tolist())
        for row, gone in zip(carry(numbers), missing.tolist(), strict=True)
    ]
    summary = graph.Graph(graphs[0].benchmark_name, {"summary": ""})
    for revision, mean in graph.resample_data(list(zip(revisions.tolist(), means, strict=True))):
        summary.add_data_point(revision, mean)
    return summary


def carry(numbers: np.ndarray) -> np.ndarray:
    """Each column with its gaps (NaN) filled by the last number before them, and at its start by the first.

    For summary graphs, which average all points of a benchmark. asv fills only short gaps: at a commit for which a
    quick run measured few points, the mean was one of few points, and seemed to leap. Filled like this it moves where
    a measured number moved, and nowhere else.
    """
    import numpy as np

    if not len(numbers):
        return numbers
    there = ~np.isnan(numbers)
    rows = np.arange(len(numbers))[:, None]
    last = np.maximum.accumulate(np.where(there, rows, -1), axis=0)
    first = there.argmax(axis=0)
    filled: np.ndarray = np.take_along_axis(numbers, np.where(last < 0, first, last), axis=0)
    return np.ascontiguousarray(filled)
