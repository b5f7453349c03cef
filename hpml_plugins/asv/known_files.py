"""The result files of one publish: each read and decoded only when its bytes are new."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from asv import results, util
from asv.console import log
from asv.results import Results

from hpml_plugins.records.packs import Packs, digest, name_of, spelled

#: benchmark → (values, params, version, stats).  stats: of each point asv's 99 % interval, as far as it has one.
Rows = dict[str, tuple[Any, Any, Any, list[dict[str, Any]] | None]]


class _File(msgspec.Struct, array_like=True):
    """head: the arguments of asv's Results.  shape: which of its pack's.  rows: Rows, not decoded until needed."""

    head: tuple[Any, ...]
    shape: int
    rows: bytes


class _Pack(msgspec.Struct):
    """The files of one machine by digest.  shapes: see File."""

    shapes: list[bytes] = []
    files: dict[bytes, _File] = {}


@dataclass
class File:
    """One result file.

    digest: of its bytes, its name and its machine.  shape: its benchmarks and their versions, encoded: most files have
    the same.  rows: Rows, encoded.
    """

    digest: bytes
    machine: str
    head: tuple[Any, ...]
    shape: bytes
    rows: bytes

    def whole(self) -> Any:
        """asv's Results with all numbers that `asv publish` uses."""
        result = Results(*self.head)
        for name, (values, params, version, stats) in decoded(self.rows).items():
            result._results[name], result._benchmark_params[name] = values, params
            result._benchmark_version[name], result._stats[name] = version, stats
        return result


class Files:
    """Reads the result files below a folder, once, and remembers them machine by machine.

    by_path: the digest of each file that could be read.
    """

    def __init__(self, packs: Packs) -> None:
        self.packs = packs
        self.read: list[File] | None = None
        self.by_path: dict[Path, bytes] = {}
        self._old: dict[str, _Pack] = {}

    def all(self, folder: str) -> list[File]:
        """Every file that asv can read, in its order. asv walks twice; it is given the same both times."""
        if self.read is None:
            self.read = list(self._walk(folder))
        return self.read

    def _walk(self, folder: str) -> Iterator[File]:
        for (root, machine), found in itertools.groupby(results.iter_results_paths(folder), lambda each: each[::2]):
            name = name_of("files", machine)
            if name not in self._old:
                self._old[name] = self.packs.load(name, _Pack) or _Pack()
            for _, filename, _ in found:
                try:
                    yield self._file(Path(root, filename), machine, self._old[name])
                except util.UserError as error:
                    log.warning(str(error))

    def _file(self, path: Path, machine: str, pack: _Pack) -> File:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise util.UserError(f"Error loading results file '{path}': {error.strerror}") from None
        key = digest(f"{machine}\0{path.name}\0".encode() + content)
        known = pack.files.get(key)
        if known is not None:
            self.by_path[path] = key
            return File(key, machine, known.head, pack.shapes[known.shape], known.rows)
        result = Results.load(str(path), machine_name=machine)
        if path.read_bytes() != content:  # rewritten meanwhile
            return self._file(path, machine, pack)
        self.by_path[path] = key
        return File(key, machine, *_taken(result))

    def save(self) -> None:
        """Write the packs of machines whose files are others than before. Raises OSError."""
        by_machine: dict[str, list[File]] = {}
        for each in self.read or []:
            by_machine.setdefault(each.machine, []).append(each)
        for machine, files in by_machine.items():
            name = name_of("files", machine)
            if self._old[name].files.keys() == {each.digest for each in files}:
                continue
            number = {shape: place for place, shape in enumerate(dict.fromkeys(each.shape for each in files))}
            known = {each.digest: _File(each.head, number[each.shape], each.rows) for each in files}
            self.packs.save(name, _Pack(list(number), known))


def _taken(result: Any) -> tuple[tuple[Any, ...], bytes, bytes]:
    rows: Rows = {}
    for name, values in result._results.items():
        stats = result._stats[name]
        if stats is not None:
            stats = [{key: each[key] for key in ("ci_99_a", "ci_99_b") if key in each} for each in stats]
        rows[name] = values, result._benchmark_params[name], result._benchmark_version[name], stats
    head = (result.params, result._requirements, result.commit_hash, result.date, result._python)
    shape = {name: version for name, (_, _, version, _) in rows.items()}
    return (*head, result._env_name, result.env_vars), spelled(shape), spelled(rows)


def decoded(content: bytes) -> Any:
    """What `packs.spelled` made of a dictionary."""
    # JSON's objects begin with "{", which msgpack has for the number 123.
    return json.loads(content) if content.startswith(b"{") else msgspec.msgpack.decode(content)
