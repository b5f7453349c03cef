"""What became of each graph the last time, by the digest of all that it is made of, and the graphs of this time."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from asv import _stats, graph
from asv.graph import Graph

from hpml_plugins.asv.known_files import File, decoded
from hpml_plugins.asv.known_graphs import Adds, Known, RememberedGraph, Steps
from hpml_plugins.asv.summaries import table
from hpml_plugins.records.packs import Packs, digest, name_of, spelled

#: asv's parameters of a graph, as a key.
Params = tuple[tuple[str, Any], ...]


class _Pack(msgspec.Struct):
    """The graphs of one machine, environment and branch, by the digest of all they are made of."""

    graphs: dict[bytes, Known] = {}


class Memory:
    """The graphs of the last publish and of this one.  benchmarks: asv's, known once its loop has begun."""

    def __init__(self, packs: Packs) -> None:
        self.packs = packs
        self.benchmarks: Mapping[str, Any] = {}
        self._names: dict[bytes, list[str]] = {}
        self._old: dict[str, _Pack] = {}
        self._new: dict[str, dict[bytes, Graph]] = {}
        self._paths: dict[Params, str] = {}
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

    def graphs(self, adds: Adds) -> tuple[dict[str, Graph], dict[str, list[Graph]]]:
        """asv's two dictionaries of graphs, of what its loop added where."""
        lines: dict[str, _Line] = {}
        order: dict[tuple[str, str], None] = {}
        seen: set[tuple[bytes, tuple[Params, ...]]] = set()
        for file, chosen in itertools.groupby(adds, key=lambda each: each[0]):
            here = []
            for _, params, revision in chosen:
                line = lines.setdefault(self._path(params), _Line())
                line.adds.append((revision, file))
                here.append((line, params))
            whole = file.shape, tuple(tuple(params.items()) for _, params in here)
            if whole in seen:
                continue
            seen.add(whole)
            for name in self.names(file.shape):
                for line, params in here:
                    line.params.setdefault(name, params)
                    order.setdefault((name, self._path(params)))
        made = {path: self._made(path, line) for path, line in lines.items()}
        all_of_them: dict[str, Graph] = {}
        groups: dict[str, list[Graph]] = {}
        for name, path in order:
            one = made[path][name]
            all_of_them[one.path] = one
            groups.setdefault(name, []).append(one)
        return all_of_them, groups

    def _path(self, params: dict[str, Any]) -> str:
        """Where asv puts graphs with these parameters: those of one path are one to it."""
        key = tuple(params.items())
        if key not in self._paths:
            self._paths[key] = Graph.get_file_path(params, "")
        return self._paths[key]

    def _made(self, path: str, line: _Line) -> dict[str, Graph]:
        old = self._old[path] = self.packs.load(name_of("graphs", path), _Pack) or _Pack()
        for each in old.graphs.values():
            self._steps.update(zip(each.series, each.steps, strict=False))
        found: dict[str, Graph] = {}
        fresh: dict[str, Graph] = {}
        new: dict[bytes, Graph] = {}
        for name, params in line.params.items():
            made_of = line.digest(name, self)
            known = old.graphs.get(made_of)
            if known is None:
                one = fresh[name] = Graph(name, params)
            else:
                one = RememberedGraph(name, params, known, functools.partial(self._filled, line, name))
            found[name] = new[made_of] = one
        self._new[path] = new
        if fresh:
            self._fill(line, fresh)
        return found

    def _filled(self, line: _Line, name: str) -> Graph:
        one = Graph(name, line.params[name])
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
        for path, new in self._new.items():
            old = self._old[path].graphs
            if old.keys() != new.keys():
                self.packs.save(
                    name_of("graphs", path),
                    _Pack({made_of: self._known(one, html_dir) for made_of, one in new.items()}),
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
    """The files of all graphs with the same parameters, in asv's order.  params: of each benchmark's graph."""

    def __init__(self) -> None:
        self.params: dict[str, dict[str, Any]] = {}
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
