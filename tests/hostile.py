"""Records of a third party that are not to be believed, made by a generator: each differs in one
thing from a good one.

`variants()` are refused by `decode`, `odd_but_right()` are not. Both are the same in every run.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

COMMIT, MACHINE = "a" * 40, "m1"
#: 2023-11-14.
STARTED = 1.7e9

GOOD: dict[str, Any] = {
    "schema": 1,
    "benchmark": "toy",
    "plugin": "toy",
    "version": "1",
    "params": {"n": 1},
    "status": "ok",
    "metrics": {"time": {"unit": "s", "direction": "lower", "samples": [1.0, 1.1, 1.2]}},
    "started": STARTED,
    "duration": 3.0,
    "machine": MACHINE,
    "commit": COMMIT,
    "environment": "existing-py3.11",
    "run": "r" * 32,
    "node": {"cpu": "EPYC", "gpus": []},
}

#: What would lead out of a folder, or to another file in it.
PATHS = (
    "../../../ESCAPED",
    "/../../../ESCAPED",
    "x/../../../../ESCAPED",
    "/tmp/ESCAPED",
    "a/b",
    "./x",
    "..",
    ".",
    ".hidden",
    "../ours/machine",
    "/../../registry",
    "/../../benchmarks",
    "\\..\\..\\ESCAPED",
    "C:\\ESCAPED",
    "a\\b",
    "//host/share",
)
#: What no name holds.
TEXTS = (
    "a\0b",
    "\0",
    "a\nb",
    "a\r\nhpml: forged",
    "\x1b[31mred",
    "\u202eright to left",
    "\u2066x",
    "\ufeff",
    "\u2028",
    "\x7f",
    "\x85",
)
LONG = ("a" * 201, "é" * 130, "a" * 5000, "🚀" * 64)
OPTIONS = ("--help", "-rf", "--upload-pack=x")
COMMITS = (
    "g" * 40,
    "A" * 40,
    "a" * 39,
    "a" * 41,
    "a" * 7,
    "main",
    "HEAD",
    "HEAD~1",
    "uncommitted",
    " " + "a" * 39,
    "a" * 40 + "\n",
)
NUMBERS = (-1.0, -1e-9, 1e308, -1e308, 1e101)
TIMES = (-1.0, -1e308, 1e308, 1e18, 253402300800.0, 4.1e9, 1e10)
#: For whatever has another type in a good Record.
TYPES = (None, True, 1, -1.5, "x", [], {}, [[]], {"a": 1})

Place = tuple[str, ...]


def variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """(what is wrong with it, a Record), each to be refused."""
    yield from _identities()
    yield from _times()
    yield from _metrics()
    yield from _sizes()
    yield from _types()


def odd_but_right() -> Iterator[tuple[str, dict[str, Any]]]:
    """(what is odd about it, a Record), each to be taken."""
    yield from _with(("commit",), ("", "0" * 40, "b" * 64))
    yield from _with(("machine",), ("other-lab.h200-x1", "Ünï", "a b", "n|2", "<b>"))
    yield from _with(
        ("environment",), ("", "virtualenv-py3.12-numpy1.26", "a" * 200, "env+x=1", "ünï")
    )
    yield from _with(("plugin",), ("", "my-plugin", "a.b"))
    yield from _with(("run",), ("", "r1"))
    yield from _with(("started",), (0.0, 1.0, STARTED))
    yield from _with(("params",), ({}, {"n": "x" * 10_000}, {"n": -(2**63)}, {"größe": 1}))
    yield from _with(("metrics", "time", "direction"), (None,))
    yield from _with(("metrics", "time", "samples"), ([1e-30], [0.0, 1.0], [1e99]))
    yield from _with(("metrics", "time", "info"), ({"core_rate": "text", "n": 1e50},))
    yield (
        "fewer FLOP",
        _changed(
            {("metrics", "time"): {"unit": "FLOP", "direction": "lower", "samples": [-1.0]}}
        ),
    )
    yield (
        "a difference below 0",
        _changed(
            {("metrics", "time"): {"unit": "s", "direction": None, "samples": [-1.0]}}
        ),
    )
    yield "a field of a later version", _changed({("later",): {"a": [1]}})


def line_of(record: dict[str, Any]) -> bytes:
    """As it stands in a file of Records."""
    return json.dumps(record).encode() + b"\n"


def _identities() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _with(("commit",), (*PATHS, *TEXTS, *OPTIONS, *LONG, *COMMITS))
    yield from _with(("environment",), (*PATHS, *TEXTS, *LONG, *'<>:"|?*'))
    yield from _with(("machine",), (*PATHS, *TEXTS, *LONG))
    yield from _with(
        ("benchmark",), (*PATHS, *TEXTS, *LONG, *OPTIONS, "", "a b", "1a", "a-b")
    )
    yield from _with(("plugin",), (*PATHS[:4], *TEXTS, *LONG, *OPTIONS, "a b"))
    yield from _with(("run",), (*PATHS[:4], *TEXTS, *LONG))
    yield from _with(("version",), (*TEXTS, *LONG))
    for name in (*PATHS, *TEXTS, *LONG, "", "a b"):
        yield f"a parameter called {name[:40]!r}", _changed({("params",): {name: 1}})
        good = GOOD["metrics"]["time"]
        yield f"a metric called {name[:40]!r}", _changed({("metrics",): {name: good}})


def _times() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _with(("started",), TIMES)
    yield from _with(("duration",), (*NUMBERS, 1e10))
    yield from _with(("energy",), NUMBERS)
    yield from _with(("seed",), (2**65, -(2**65)))
    yield from _with(("rounds",), (0, -1, 1001, 10**12))
    yield from _with(("schema",), (0, -1, 2, 99, 10**6, "1", None, 1.5))


def _metrics() -> Iterator[tuple[str, dict[str, Any]]]:
    metric = ("metrics", "time")
    yield from _with(
        (*metric, "samples"),
        ([], [-5.0, -5.1], [1.0, -1e-12], [0.0] * 5, [1e308], [1.0, 1e101]),
    )
    yield from _with((*metric, "boost"), ([-1.0], [1e308]))
    yield from _with((*metric, "unit"), ("parsec", "", "S", "ms", "s ", "seconds"))
    yield from _with((*metric, "direction"), ("higher", "up", "", "Lower"))
    yield from _with(
        (*metric, "interval"),
        ([1.0, 1.0], [5.0, 6.0], [9.0, -9.0], [None, None], [0.0, 1e308]),
    )
    yield from _with((*metric, "rounds"), ([3, 3], [0, 3], [-1, 4], [10**18], [2]))
    yield from _with((*metric, "info"), ({"a": 1e308}, {"a": None}, {"a": [1]}))
    for unit, direction in (
        ("B/s", "lower"),
        ("FLOP/s", "lower"),
        ("OP/s", "lower"),
        ("J", "higher"),
    ):
        wrong = {"unit": unit, "direction": direction, "samples": [1.0]}
        yield f"{direction} {unit}", _changed({metric: wrong})
    for unit in ("B/s", "FLOP/s", "OP/s", "1/s", "Hz", "J", "W", "FLOP/B"):
        below = {
            "unit": unit,
            "direction": "higher" if unit.endswith("/s") else "lower",
            "samples": [-1.0, 1.0],
        }
        yield f"below 0 {unit}", _changed({metric: below})
    for name, number in (("cores", -1.0), ("other_cpus", 1e308), ("load", -0.5)):
        yield f"condition {name}={number}", _changed({("conditions",): {name: number}})
    for field, number in (("flop", -1.0), ("bytes", 1e308), ("gpus", -1), ("gpus", 10**9)):
        yield f"work {field}={number}", _changed({("work",): {"time": {field: number}}})


def _sizes() -> Iterator[tuple[str, dict[str, Any]]]:
    many = {f"k{number}": 1.0 for number in range(1001)}
    words = dict.fromkeys(many, "x")
    good = GOOD["metrics"]["time"]
    column = {"columns": {"a": [1.0, 2.0], "b": [1.0]}}
    sizes: dict[str, dict[Place, Any]] = {
        "a long reason": {("reason",): "x" * 10_001},
        "a long output": {("output",): "x" * 100_001},
        "a long warning": {("warnings",): ["x" * 10_001]},
        "many warnings": {("warnings",): ["x"] * 1001},
        "many checks": {("checks",): ["x"] * 1001},
        "many metrics": {("metrics",): dict.fromkeys(many, good)},
        "many parameters": {("params",): many},
        "a long parameter": {("params",): {"n": "x" * 10_001}},
        "a parameter of many digits": {("params",): {"n": 10**40}},
        "many packages": {("packages",): words},
        "many sources": {("source",): words},
        "many conditions": {("conditions",): many},
        "many data sets": {("data",): {name: {} for name in many}},
        "much information": {("metrics", "time", "info"): many},
        "a long text of information": {("metrics", "time", "info"): {"a": "x" * 10_001}},
        "many series": {("series",): {name: {"columns": {}} for name in many}},
        "many columns": {("series",): {"a": {"columns": {name: [1.0] for name in many}}}},
        "columns of different length": {("series",): {"a": column}},
        "an unknown unit of a column": {
            ("series",): {"a": {"columns": {"a": [1.0]}, "units": {"a": "parsec"}}}
        },
        "a long cell": {("series",): {"a": {"columns": {"a": ["x" * 10_001]}}}},
        "a huge cell": {("series",): {"a": {"columns": {"a": [1e308]}}}},
        "many facts": {("node",): {"a": list(range(10_001))}},
        "deep facts": {("node",): _nested(12)},
        "a long fact": {("node",): {"a": "x" * 10_001}},
        "a long name of a fact": {("node",): {"x" * 10_001: 1}},
    }
    for name, changes in sizes.items():
        yield name, _changed(changes)


def _types() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in GOOD.items():
        for other in TYPES:
            numbers = isinstance(value, float) and isinstance(other, int | float)
            if type(other) is not type(value) and not (
                numbers and other is not True and other is not None
            ):
                yield f"{name} is {other!r}", _changed({(name,): other})


def _nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def _with(place: Place, values: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for value in values:
        yield f"{'.'.join(place)} is {str(value)[:40]!r}", _changed({place: value})


def _changed(changes: dict[Place, Any]) -> dict[str, Any]:
    record = copy.deepcopy(GOOD)
    for place, value in changes.items():
        holder = record
        for name in place[:-1]:
            holder = holder[name]
        holder[place[-1]] = value
    return record
