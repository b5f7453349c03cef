"""asv's GraphSet and Graph, which are filled only where a graph's results are others than last time.

asv's own loop over the results says which commit of which file belongs to which graphs: it is handed files instead of
numbers (`Listed`), and one benchmark for all of a file. Once the loop is over, every graph's files are known, and with
them whether the graph is.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from asv import _stats, graph
from asv.graph import Graph, GraphSet
from asv.results import Results

from hpml_plugins.asv.known_files import File, decoded
from hpml_plugins.asv.summaries import Table, table
from hpml_plugins.records.packs import Packs, digest, name_of, spelled
from hpml_plugins.site.known_numbers import KnownNumbers

#: asv's parameters of a graph, as a key.
Params = tuple[tuple[str, Any], ...]
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


class _Pack(msgspec.Struct):
    """The graphs of one machine, environment and branch, by the digest of all they are made of."""

    graphs: dict[bytes, Known] = {}


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
        return revisions, np.frombuffer(self.known.values).reshape(len(revisions), -1)

    def save(self, html_dir: str) -> None:
        """As asv's."""
        path = Path(html_dir, self.path + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.known.text)


class _Adding:
    """Stands for a graph in asv's loop."""

    def __init__(self, adds: list[tuple[File, dict[str, Any], int]], params: dict[str, Any]) -> None:
        self.adds, self.params = adds, params

    def add_data_point(self, revision: int, value: Any, weight: Any = None) -> None:
        file = value[0] if isinstance(value, list) else value
        self.adds.append((file, self.params, revision))


class RememberingGraphs(GraphSet):  # type: ignore[misc]
    """asv's GraphSet; its graphs are made, in asv's order, when it is first looked at.

    numbers: for our pages.  meanwhile: called while steps are detected.
    """

    def __init__(self, memory: Memory, numbers: KnownNumbers, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self.memory, self.numbers, self.meanwhile = memory, numbers, meanwhile
        self._adds: list[tuple[File, dict[str, Any], int]] | None = []

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


class Memory:
    """The graphs of the last publish and of this one.  benchmarks: asv's, known once its loop has begun."""

    def __init__(self, packs: Packs) -> None:
        self.packs = packs
        self.benchmarks: Mapping[str, Any] = {}
        self._names: dict[bytes, list[str]] = {}
        self._old: dict[Params, _Pack] = {}
        self._new: dict[Params, dict[bytes, Graph]] = {}
        self._steps: dict[bytes, Steps] = {}
        self._digests: dict[int, list[bytes]] = {}

    def names(self, shape: bytes) -> list[str]:
        """The benchmarks of a file that count, in one order."""
        if shape not in self._names:
            versions = decoded(shape)
            self._names[shape] = sorted(
                name
                for name, version in versions.items()
                if name in self.benchmarks and (version is None or version == self.benchmarks[name].get("version"))
            )
        return self._names[shape]

    def graphs(self, adds: list[tuple[File, dict[str, Any], int]]) -> tuple[dict[str, Graph], dict[str, list[Graph]]]:
        """asv's two dictionaries of graphs, of what its loop added where."""
        lines: dict[Params, _Line] = {}
        order: dict[tuple[str, Params], dict[str, Any]] = {}
        seen: set[tuple[bytes, tuple[Params, ...]]] = set()
        start = 0
        while start < len(adds):
            file = adds[start][0]
            end = start
            keys = []
            while end < len(adds) and adds[end][0] is file:
                _, params, revision = adds[end]
                key = tuple(params.items())
                lines.setdefault(key, _Line(params)).adds.append((revision, file))
                keys.append((key, params))
                end += 1
            start = end
            whole = file.shape, tuple(key for key, _ in keys)
            if whole not in seen:
                seen.add(whole)
                for name in self.names(file.shape):
                    for key, params in keys:
                        order.setdefault((name, key), params)
        made = {key: self._made(key, line) for key, line in lines.items()}
        all_of_them: dict[str, Graph] = {}
        groups: dict[str, list[Graph]] = {}
        for name, key in order:
            one = made[key][name]
            if one.path not in all_of_them:
                groups.setdefault(name, []).append(one)
            all_of_them.setdefault(one.path, one)
        return all_of_them, groups

    def _made(self, key: Params, line: _Line) -> dict[str, Graph]:
        old = self._old[key] = self.packs.load(_name(key), _Pack) or _Pack()
        self._steps.update(
            (each, steps)
            for known in old.graphs.values()
            for each, steps in zip(known.series, known.steps, strict=False)
        )
        found: dict[str, Graph] = {}
        fresh: dict[str, Graph] = {}
        new: dict[bytes, Graph] = {}
        for name in sorted({name for shape in line.shapes() for name in self.names(shape)}):
            made_of = line.digest(name, self)
            known = old.graphs.get(made_of)
            if known is None:
                one = fresh[name] = Graph(name, line.params)
            else:
                one = RememberedGraph(name, line.params, known, functools.partial(self._filled, line, name))
            found[name] = new[made_of] = one
        self._new[key] = new
        if fresh:
            self._fill(line, fresh)
        return found

    def _filled(self, line: _Line, name: str) -> Graph:
        one = Graph(name, line.params)
        self._fill(line, {name: one})
        return one

    def _fill(self, line: _Line, wanted: Mapping[str, Graph]) -> None:
        """As asv's loop fills graphs."""
        for revision, file in line.adds:
            result = file.whole()
            for name in self.names(file.shape):
                if name in wanted:
                    params = self.benchmarks[name]["params"]
                    values = result.get_result_value(name, params)
                    weights = [_stats.get_weight(each) for each in result.get_result_stats(name, params)]
                    if params:
                        wanted[name].add_data_point(revision, values, weights)
                    else:
                        wanted[name].add_data_point(revision, values[0], weights[0])

    def detecting(self, detect: Any) -> Any:
        """`Graph.detect_steps`, which computes only the steps of a series that is new."""

        @functools.wraps(detect)
        def detecting(of: Any, pool: Any = None) -> None:
            if of._steps is not None:
                return
            data = of.get_data()
            if not data or pool is None:
                detect(of, pool)
                return
            count = 1 if of.scalar_series else of.n_series
            of._steps, digests = [], self._digests.setdefault(id(of), [])
            for place in range(count):
                series = data if of.scalar_series else [(at, values[place], many[place]) for at, values, many in data]
                digests.append(digest(spelled(series)))
                known = self._steps.get(digests[-1])
                of._steps.append(
                    pool.apply_async(graph._compute_graph_steps, (series,)) if known is None else list(known)
                )

        return detecting

    def save(self, html_dir: Path) -> None:
        """Write the packs of which a graph is new, or gone. Raises OSError."""
        for key, new in self._new.items():
            old = self._old[key].graphs
            if old.keys() != new.keys():
                self.packs.save(
                    _name(key), _Pack({made_of: self._known(one, html_dir) for made_of, one in new.items()})
                )

    def _known(self, one: Any, html_dir: Path) -> Known:
        if isinstance(one, RememberedGraph):
            return one.known
        revisions, values = table(one)
        text = (html_dir / (one.path + ".json")).read_bytes()
        digests = self._digests.get(id(one), [])
        return Known(
            one.n_series,
            one.scalar_series,
            text,
            revisions.tobytes(),
            values.tobytes(),
            digests,
            one._steps if digests else [[]] * one.n_series,
        )


class _Line:
    """The files of all graphs with the same parameters, in asv's order."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        self.adds: list[tuple[int, File]] = []
        self._digests: dict[frozenset[bytes], bytes] = {}

    def shapes(self) -> set[bytes]:
        return {file.shape for _, file in self.adds}

    def digest(self, name: str, memory: Memory) -> bytes:
        """Of all that a graph of this benchmark is made of."""
        shapes = frozenset(shape for shape in self.shapes() if name in memory.names(shape))
        if shapes not in self._digests:
            # Results of one commit are averaged in asv's order; that of commits does not matter.
            chosen = [(revision, file.digest) for revision, file in self.adds if file.shape in shapes]
            self._digests[shapes] = digest(spelled(sorted(chosen, key=lambda each: each[0])))
        benchmark = memory.benchmarks[name]
        made_of = [name, benchmark.get("version"), benchmark["params"]]
        return digest(self._digests[shapes] + json.dumps(made_of).encode())


def _name(key: Params) -> str:
    return name_of("graphs", json.dumps(key))
