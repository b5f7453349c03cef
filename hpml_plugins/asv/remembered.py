"""`hpml publish`: what reading and step detection came to last time, taken again where their input is the same.

Each entry is known by a digest of all that it was made from: a result file's bytes, a series' numbers, and the code
that read them. So none can be out of date, whatever was added, removed or rewritten meanwhile, and everything else of
`asv publish` is done anew.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import inspect
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from asv import graph, results, step_detect, util
from asv.commands import publish
from asv.console import log
from asv.results import Results

from hpml_plugins.asv import steps
from hpml_plugins.records.whole import write_whole

#: Names the file in which `asv publish` is to remember; set by `hpml publish`.
VARIABLE = "HPML_PUBLISH_REMEMBERED"

#: One piece of asv's: see `site.changes.Step`.
Steps = list[tuple[int, int, float, float, float]]


class Read(msgspec.Struct, array_like=True):
    """What `asv publish` uses of a result file. rows: benchmark → (values, params, version, stats).

    stats: of each point asv's 99 % interval, as far as it has one; None where the benchmark has no stats.
    """

    head: tuple[Any, ...]
    rows: dict[str, tuple[Any, Any, Any, list[dict[str, Any]] | None]]


class Content(msgspec.Struct):
    """The file. Both by digest."""

    files: dict[bytes, Read] = {}
    steps: dict[bytes, Steps] = {}


def remember(path: Path) -> None:
    """Let `asv publish` take what it can from this file, and leave there what this time was used."""
    made_by = _made_by()
    memory = _Memory(_load(path, made_by))
    Results.load = classmethod(memory.loading(Results.load.__func__))
    graph.Graph.detect_steps = memory.detecting(graph.Graph.detect_steps)
    run = publish.Publish.run.__func__

    @functools.wraps(run)
    def running(cls: Any, *arguments: Any, **named: Any) -> Any:
        status = run(cls, *arguments, **named)
        try:
            _save(path, memory.used(), made_by)
        except OSError as error:
            log.warning(f"{path}: {error.strerror}; the next `hpml publish` will take as long as this one")
        return status

    publish.Publish.run = classmethod(running)


class _Memory:
    def __init__(self, known: Content) -> None:
        self.known = known
        self.files: dict[bytes, Read] = {}
        self.detected: list[tuple[bytes, Any, int]] = []

    def loading(self, load: Callable[..., Any]) -> Callable[..., Any]:
        """`Results.load`, which reads a file only when its bytes are new."""

        @functools.wraps(load)
        def loading(cls: Any, path: str, machine_name: str | None = None) -> Any:
            try:
                content = Path(path).read_bytes()
            except OSError:
                return load(cls, path, machine_name=machine_name)
            digest = _digest(f"{machine_name}\0{Path(path).name}\0".encode() + content)
            read = self.files.get(digest) or self.known.files.get(digest)
            if read is None:
                result = load(cls, path, machine_name=machine_name)
                if Path(path).read_bytes() != content:  # rewritten meanwhile
                    return result
                read = _taken(result)
            self.files[digest] = read
            return _result(cls, read)

        return loading

    def detecting(self, detect: Callable[..., Any]) -> Callable[..., Any]:
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
            of._steps = []
            for place in range(count):
                series = data if of.scalar_series else [(at, values[place], many[place]) for at, values, many in data]
                digest = _digest(msgspec.msgpack.encode(series))
                known = self.known.steps.get(digest)
                of._steps.append(
                    pool.apply_async(graph._compute_graph_steps, (series,)) if known is None else list(known)
                )
                self.detected.append((digest, of, place))

        return detecting

    def used(self) -> Content:
        """What this publish used, for the next."""
        return Content(self.files, {digest: of._steps[place] for digest, of, place in self.detected})


def _taken(result: Any) -> Read:
    head = (result.params, result._requirements, result.commit_hash, result.date, result._python)
    rows = {}
    for name, values in result._results.items():
        stats = result._stats[name]
        if stats is not None:
            stats = [{key: each[key] for key in ("ci_99_a", "ci_99_b") if key in each} for each in stats]
        rows[name] = values, result._benchmark_params[name], result._benchmark_version[name], stats
    return Read((*head, result._env_name, result.env_vars), rows)


def _result(cls: Any, read: Read) -> Any:
    result = cls(*read.head)
    for name, (values, params, version, stats) in read.rows.items():
        result._results[name], result._benchmark_params[name] = values, params
        result._benchmark_version[name], result._stats[name] = version, stats
    return result


def _made_by() -> bytes:
    """A digest of the code that reads results and detects steps: of other asv, NumPy or plugin code nothing counts."""
    import numpy as np

    from hpml_plugins.asv import publishing

    sources = [inspect.getfile(each) for each in (steps, publishing, results, step_detect, graph, util)]
    said = [platform.python_version(), np.__version__, platform.machine()]
    extension = getattr(step_detect, "_rangemedian", None)
    sources += [str(extension.__file__)] if extension is not None else []
    sources.append(__file__)
    return _digest("\0".join(said).encode() + b"".join(_digest(Path(each).read_bytes()) for each in sources))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _load(path: Path, made_by: bytes) -> Content:
    """What is in the file; nothing where it is damaged, or made by other code."""
    was_on = gc.isenabled()
    try:
        whole = path.read_bytes()
        size = len(made_by)
        if whole[:size] != made_by or whole[size : 2 * size] != _digest(whole[2 * size :]):
            return Content()
        gc.disable()  # millions of numbers, all alive
        return msgspec.msgpack.decode(whole[2 * size :], type=Content)
    except (OSError, msgspec.DecodeError):
        return Content()
    finally:
        if was_on:
            gc.enable()


def _save(path: Path, content: Content, made_by: bytes) -> None:
    body = msgspec.msgpack.encode(content)
    write_whole(path, made_by + _digest(body) + body)
