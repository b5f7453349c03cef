"""nccl-tests: its printed output, and `-J FILE.json`.

The JSON names one GPU of each process; if a process has several, the others are unknown. Source:
src/util.cu of NVIDIA/nccl-tests 2.19.6 (a0b82b2). With `-I 1` in JSON each iteration is a sample,
timed by CUDA events; else the mean of the iterations is the one sample, timed by the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.model import MetricSamples
from hpml_plugins.tools.importing.reading import (
    CLOCK,
    EVENTS,
    ForeignPoint,
    Source,
    metric,
    parameters,
    value_of,
)

TOOL = "nccl-tests"
_MICROSECOND = 1e-6
_GIGABYTE = 1e9
_PLACES = ("out_of_place", "in_place")
_VERSION = re.compile(r"^# nccl-tests version (\S+)", re.MULTILINE)
_PROGRAM = re.compile(r"^# Collective test starting: (\S+)", re.MULTILINE)
_DEVICE = re.compile(
    r"^#\s+Rank\s+\d+.* on\s+(\S+) device\s+\d+ \[[^\]]*\] (.+)$", re.MULTILINE
)
_HEAD = re.compile(r"^#\s+(size\s+count\s+type.*)$", re.MULTILINE)
#: The columns of a point, before those of both places; versions before 2.13 lack the last ones.
_POINT = ("size", "count", "type", "redop", "root")
_LEAST = 3
#: For those versions, which only count wrong elements of the whole run.
_OUT_OF_BOUNDS = re.compile(r"^# Out of bounds values : ([1-9]\d*) FAILED", re.MULTILINE)
#: Some of the columns of each place.
_NUMBERS = {"algbw", "busbw"}


class _Place(msgspec.Struct):
    """One result. time, cpu_time: µs.  alg_bw, bus_bw: GB/s.  Text if it is not a number."""

    alg_bw: float | str
    bus_bw: float | str
    time: float | str | None = None
    cpu_time: float | str | None = None
    nwrong: float | str | None = None


class _Iterations(msgspec.Struct):
    """skipped_iterations: those of `-K`, which the tool's own statistics exclude."""

    times_us: list[float] = []
    skipped_iterations: int = 0


class _Result(msgspec.Struct):
    size: int
    type: str
    redop: str = ""
    root: str = ""
    out_of_place: _Place | None = None
    in_place: _Place | None = None
    out_of_place_per_iter: _Iterations | None = None
    in_place_per_iter: _Iterations | None = None


class _Device(msgspec.Struct):
    hostname: str
    device_info: str
    pid: int = 0


class _Config(msgspec.Struct):
    """nthreads, ngpus: of a process, and of a thread.  devices: one of each process."""

    devices: list[_Device] = []
    nthreads: int = 1
    ngpus: int = 1

    @property
    def ranks(self) -> int:
        """How many GPUs took part; 0 if no process is listed."""
        processes = {(each.hostname, each.pid) for each in self.devices}
        return len(processes) * self.nthreads * self.ngpus


class _Cards(NamedTuple):
    """How many ranks took part, 0 if unknown; names: of the listed GPUs."""

    ranks: int
    names: tuple[str, ...]

    @property
    def gpus(self) -> tuple[str, ...] | None:
        """The GPU of each rank; None if not all are listed."""
        return self.names if self.names and len(self.names) == self.ranks else None


class _File(msgspec.Struct):
    args: list[str]
    nccl_version: int
    results: list[_Result]
    config: _Config = msgspec.field(default_factory=_Config)


def read(path: Path, text: str, found: Any) -> Source | None:
    """See `formats`."""
    if isinstance(found, dict) and {"nccl_version", "results"} <= found.keys():
        return _read_json(msgspec.convert(found, _File))
    if found is None and (head := _HEAD.search(text)) and "algbw" in head[1]:
        return _read_printed(path, text, head)
    return None


def _read_json(file: _File) -> Source:
    devices = [(each.hostname, each.device_info) for each in file.config.devices]
    name = _program(file.args[0] if file.args else "")
    cards = _Cards(file.config.ranks, tuple(gpu for _, gpu in devices))
    readings = [
        _reading(name, _point(result), place, found, iterations, cards)
        for result in file.results
        for place, found, iterations in (
            (_PLACES[0], result.out_of_place, result.out_of_place_per_iter),
            (_PLACES[1], result.in_place, result.in_place_per_iter),
        )
        if found
    ]
    return Source(TOOL, readings, machine=_host(devices))


def _point(result: _Result) -> dict[str, Any]:
    return {
        "bytes": result.size,
        "type": result.type,
        "redop": result.redop.strip(),
        "root": value_of(result.root.strip()),
    }


def _read_printed(path: Path, text: str, head: re.Match[str]) -> Source:
    devices = _DEVICE.findall(text)
    # before 2.17 only the name of the file can name the collective
    program = _PROGRAM.search(text) or re.search(r"([a-z_]+_perf)", path.stem)
    if not program:
        raise HpmlError(
            "it does not say which collective ran: `# Collective test starting` is missing;"
            " name the file after it, such as all_reduce_perf.txt"
        )
    names = tuple(name.strip() for _, name in devices)
    cards = _Cards(len(names), names)
    version = _VERSION.search(text)
    readings = [
        _reading(_program(program[1]), point, place, found, None, cards)
        for point, place, found in _rows(text, head)
    ]
    return Source(
        TOOL, readings, version=version[1] if version else "", machine=_host(devices)
    )


def _rows(text: str, head: re.Match[str]) -> Iterator[tuple[dict[str, Any], str, _Place]]:
    """The point, the place and the result of each printed row.  head: names the columns."""
    columns = head[1].split()
    wrong = _OUT_OF_BOUNDS.search(text)
    dated = columns[-1:] == ["timestamp"]
    columns = columns[:-1] if dated else columns
    known = next((n for n, name in enumerate(columns) if name not in _POINT), 0)
    point = columns[:known]
    rest = columns[known:]
    half = len(rest) // 2
    alike = rest[:half] == rest[half:] and {*rest} >= _NUMBERS
    if tuple(point) != _POINT[:known] or known < _LEAST or not alike:
        raise HpmlError(f"its columns are {' '.join(columns)[:200]!r}")
    for line in text[head.end() :].splitlines():
        cells = line.split()
        # output of NCCL or the launcher between rows does not begin with a number
        if not cells or not cells[0].isdecimal():
            continue
        cells = cells[:-2] if dated else cells
        if len(cells) != len(columns):
            raise HpmlError(f"a row has {len(cells)} columns, the head has {len(columns)}")
        printed = dict(zip(point, cells, strict=False))
        shown = {
            "bytes": int(printed["size"]),
            "type": printed["type"],
            "redop": printed.get("redop", ""),
            "root": value_of(printed.get("root", "")),
        }
        for number, place in enumerate(_PLACES):
            values = cells[known + number * half :][:half]
            found = dict(zip(rest[:half], values, strict=True))
            if wrong and "#wrong" not in found:
                raise HpmlError(
                    f"{wrong[1]} values were wrong, it does not say in which rows"
                )
            yield shown, place, _place(found)


def _place(cells: Mapping[str, str]) -> _Place:
    wrong = cells.get("#wrong", "N/A")
    return _Place(
        float(cells["algbw"]),
        float(cells["busbw"]),
        time=float(cells["time"]) if "time" in cells else None,
        cpu_time=float(cells["cputime"]) if "cputime" in cells else None,
        nwrong=None if wrong == "N/A" else float(wrong),
    )


def _reading(
    name: str,
    point: Mapping[str, Any],
    place: str,
    found: _Place,
    iterations: _Iterations | None,
    cards: _Cards,
) -> ForeignPoint:
    ranks = {"ranks": cards.ranks} if cards.ranks else {}
    params = parameters({**point, "place": place, **ranks})
    gpus: Any = {"gpus": cards.gpus, "gpu_count": cards.ranks or 1}
    if isinstance(found.nwrong, float | int) and found.nwrong > 0:
        why = f"{found.nwrong:g} wrong elements"
        return ForeignPoint(name, params, failure=why, **gpus)
    metrics = dict(_metrics(found, iterations))
    failure = "" if metrics else "no number was written"
    return ForeignPoint(name, params, metrics, failure, **gpus)


def _metrics(
    found: _Place, iterations: _Iterations | None
) -> Iterator[tuple[str, MetricSamples]]:
    if iterations and iterations.times_us:
        kept = iterations.times_us[iterations.skipped_iterations :]
        times = [each * _MICROSECOND for each in kept]
        yield "time", metric("s", "lower", times, timer=EVENTS)
    elif isinstance(found.time, float | int):
        seconds = found.time * _MICROSECOND
        yield "time", metric("s", "lower", [seconds], timer=CLOCK, statistic="mean")
    if isinstance(found.cpu_time, float | int):
        seconds = found.cpu_time * _MICROSECOND
        yield "cpu_time", metric("s", "lower", [seconds], timer=CLOCK, statistic="mean")
    rates = {"algorithm_bandwidth": found.alg_bw, "bus_bandwidth": found.bus_bw}
    for name, rate in rates.items():
        if isinstance(rate, float | int):
            yield (
                name,
                metric("B/s", "higher", [rate * _GIGABYTE], statistic="of the mean time"),
            )


def _program(argument: str) -> str:
    return Path(argument).name or "nccl_tests"


def _host(devices: list[tuple[str, str]]) -> str:
    """The host of the ranks; empty if they ran on several, which are not one machine."""
    hosts = {host for host, _ in devices}
    return hosts.pop() if len(hosts) == 1 else ""
