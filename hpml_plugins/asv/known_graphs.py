"""asv's GraphSet and Graph, which are filled only where a graph's results are others than last time.

asv's own loop over the results says which commit of which file belongs to which graphs: it is handed files instead of
numbers (`Listed`), and one benchmark for all of a file. Once the loop is over, every graph's files are known, and with
them whether the graph is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from asv.graph import Graph, GraphSet
from asv.results import Results

from hpml_plugins.asv.known_files import File
from hpml_plugins.asv.summaries import Table
from hpml_plugins.site.known_numbers import KnownNumbers

if TYPE_CHECKING:
    from hpml_plugins.asv.graph_memory import Memory
    from hpml_plugins.site.known_charts import KnownCharts

#: What asv's loop adds: a file, to the graphs of these parameters, at this revision.
Adds = list[tuple[File, dict[str, Any], int]]
#: One piece of asv's: see `site.changes.Step`.
Steps = list[tuple[int, int, Any, Any, Any]]


class Known(msgspec.Struct, array_like=True):
    """What became of a graph. text: of its file.  revisions, values: its table.  series: the digest of each, where
    there is any number.  steps: of each series.
    """

    n_series: int
    scalar: bool
    text: bytes
    revisions: bytes
    values: bytes
    series: list[bytes]
    steps: list[Steps]


class Listed(Results):  # type: ignore[misc]  # asv is not typed
    """A result file without its numbers: to asv's loop it has one benchmark, whose only number is the file itself."""

    def __init__(self, graphs: Memory, file: File) -> None:
        super().__init__(*file.head)
        self._of, self._file = graphs, file

    def get_result_keys(self, benchmarks: Any) -> list[str]:
        """The first of the benchmarks in the file that are declared in this version, if any."""
        self._of.benchmarks = benchmarks
        return self._of.names(self._file.shape)[:1]

    def get_result_value(self, key: str, params: Any) -> list[File]:
        """The file."""
        return [self._file]

    def get_result_stats(self, key: str, params: Any) -> list[None]:
        """Nothing."""
        return [None]


class RememberedGraph(Graph):  # type: ignore[misc]
    """A graph whose every result is as it was. fill: makes it as asv does, for who asks for all its numbers."""

    def __init__(self, name: str, params: dict[str, Any], known: Known, fill: Any) -> None:
        super().__init__(name, params)
        self.known, self._fill = known, fill
        self.n_series, self.scalar_series = known.n_series, known.scalar
        self._steps = [list(each) for each in known.steps]

    def get_data(self) -> Any:
        """As asv's."""
        return self._fill().get_data()

    def table(self) -> Table:
        """See `summaries.table`."""
        import numpy as np

        revisions = np.frombuffer(self.known.revisions, np.int64)
        return revisions, np.frombuffer(self.known.values).reshape(len(revisions), self.n_series)

    def save(self, html_dir: str) -> None:
        """As asv's."""
        path = Path(html_dir, self.path + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.known.text)


class _Adding:
    """Stands for a graph in asv's loop."""

    def __init__(self, adds: Adds, params: dict[str, Any]) -> None:
        self.adds, self.params = adds, params

    def add_data_point(self, revision: int, value: Any, weight: Any = None) -> None:
        file = value[0] if isinstance(value, list) else value
        self.adds.append((file, self.params, revision))


class RememberingGraphs(GraphSet):  # type: ignore[misc]
    """asv's GraphSet; its graphs are made, in asv's order, when it is first looked at.

    numbers, charts: for our pages.  meanwhile: called while steps are detected.
    """

    def __init__(
        self, memory: Memory, numbers: KnownNumbers, charts: KnownCharts, meanwhile: Callable[[], None]
    ) -> None:
        super().__init__()
        self.memory, self.numbers, self.charts, self.meanwhile = memory, numbers, charts, meanwhile
        self._adds: Adds | None = []

    def get_graph(self, benchmark_name: str, params: dict[str, Any]) -> Any:
        """asv's loop asks for a graph to add a result to; later, anybody for one that is there."""
        if self._adds is not None:
            return _Adding(self._adds, params)
        return super().get_graph(benchmark_name, params)

    def detect_steps(self, pool: Any = None, dots: Any = None) -> None:
        """As asv's; while other processes work on them, this one does something that is needed later anyway."""
        for one in self._graphs.values():
            one.detect_steps(pool)
        self.meanwhile()
        super().detect_steps(pool, dots)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        adds, self._adds = self._adds, None
        if adds is not None:
            self._graphs, self._groups = self.memory.graphs(adds)
        return iter(self._graphs.items())
