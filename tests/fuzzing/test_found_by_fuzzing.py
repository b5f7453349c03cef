"""What fuzzing found, each in its smallest form: a fault of an earlier day that must not come
back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from fuzzing.engine import Counts, Trial, fuzz, show
from fuzzing.kinds import KINDS


def _json(kind: str, change: Callable[[Any], Any]) -> bytes:
    tree = json.loads(KINDS[kind].seeds()[0])
    return json.dumps(change(tree) or tree).encode()


def _yaml(kind: str, change: Callable[[Any], Any]) -> bytes:
    tree = yaml.safe_load(KINDS[kind].seeds()[0])
    change(tree)
    return yaml.safe_dump(tree).encode()


def _rows(column: str, value: Any) -> Callable[[Any], None]:
    """Give each row of a result file this value in a column."""

    def change(tree: Any) -> None:
        at = tree["result_columns"].index(column)
        for row in tree["results"].values():
            row[:] = [*row, *[None] * (at + 1 - len(row))]
            row[at] = value

    return change


def _first(key: str, value: Any) -> Callable[[Any], None]:
    return lambda tree: next(
        each for each in tree.values() if isinstance(each, dict)
    ).update({key: value})


def _plugin(body: str) -> bytes:
    """A plugin's file, one of whose hooks goes wrong."""
    return (
        KINDS["plugin file"].seeds()[0]
        + f"@hookimpl\ndef hpml_data():\n    {body}\n".encode()
    )


#: kind → what it is → the file, and what must come of it.
FOUND: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "half a character in a registry": (
        "registry",
        lambda: b'version: 1\nplugins:\n- "\\ud800"\n',
        "refused",
    ),
    "a timeout without end": (
        "registry",
        lambda: _yaml("registry", lambda t: t["plugins"][0].update(timeout=float("inf"))),
        "refused",
    ),
    "a job without end": (
        "cluster file",
        lambda: _yaml("cluster file", lambda t: t["targets"][0].update(hours=float("inf"))),
        "refused",
    ),
    "a job of no time": (
        "cluster file",
        lambda: _yaml("cluster file", lambda t: t["targets"][0].update(hours=float("nan"))),
        "refused",
    ),
    "a record nested deep": ("record line", lambda: b'{"a":' * 20_000, "stepped over"),
    "a metric without samples": (
        "record line",
        lambda: _json(
            "record line",
            lambda t: {
                **t,
                "metrics": {"time": {"unit": "s", "direction": "lower", "samples": []}},
            },
        ),
        "stepped over",
    ),
    "GPUs that are a number": (
        "pages of a record",
        lambda: _json("record line", lambda t: t.update(node={"gpus": 8})),
        "read",
    ),
    "GPUs that are words": (
        "pages of a record",
        lambda: _json("record line", lambda t: t.update(node={"gpus": ["H200"]})),
        "read",
    ),
    "a moment past all calendars": (
        "pages of a record",
        lambda: _json("record line", lambda t: t.update(started=1e300)),
        "stepped over",
    ),
    "results nested deep": ("asv results", lambda: b"[" * 100_000, "stepped over"),
    "results that are a number": ("asv results", lambda: b"1.5", "stepped over"),
    "results that are no UTF-8": ("asv results", lambda: b'{"a": "\xa4"}', "stepped over"),
    "a start that is text": (
        "asv results",
        lambda: _json("asv results", _rows("started_at", "now")),
        "read",
    ),
    "values of parameters that are lists": (
        "asv results",
        lambda: _json("asv results", _rows("params", [[["a"]]])),
        "read",
    ),
    "points without number": (
        "asv results",
        lambda: _json("asv results", _rows("params", [["1"] * 100] * 5)),
        "read",
    ),
    "parameters that are nothing": (
        "asv results",
        lambda: _json("asv results", _rows("params", None)),
        "read",
    ),
    "an integer of 99 bits": (
        "asv results",
        lambda: _json("asv results", _rows("started_at", 2**99)),
        "read",
    ),
    "a version that is text": (
        "benchmarks.json",
        lambda: _json("benchmarks.json", lambda t: t.update(version="2")),
        "read",
    ),
    "a name that is a number": (
        "benchmarks.json",
        lambda: _json("benchmarks.json", _first("param_names", [1.5])),
        "read",
    ),
    "no name at all": (
        "benchmarks.json",
        lambda: _json("benchmarks.json", _first("param_names", [None])),
        "read",
    ),
    "a grid without end": (
        "benchmarks.json",
        lambda: _json(
            "benchmarks.json",
            lambda t: (
                [
                    e.update(
                        params=[["1"] * 50] * len(e["params"]) + [["1"] * 999] * 9,
                        param_names=[f"p{n}" for n in range(len(e["params"]) + 9)],
                    )
                    for e in t.values()
                    if isinstance(e, dict)
                ]
                and None
            ),
        ),
        "read",
    ),
    "brackets within brackets": (
        "benchmarks.json",
        lambda: _json("benchmarks.json", _first("params", [["(" * 300 + ")" * 300]])),
        "read",
    ),
    "declarations nested deep": ("benchmarks.json", lambda: b"[" * 100_000, "stepped over"),
    "a machine nested deep": ("machine.json", lambda: b"[" * 100_000, "stepped over"),
    "a machine that is no UTF-8": (
        "machine.json",
        lambda: b'{"machine": "\x82"}',
        "stepped over",
    ),
    "half a character in a machine": (
        "machine.json",
        lambda: b'{"machine": "\\ud800", "version": 1}',
        "stepped over",
    ),
    "half a character's bytes in a machine": (
        "machine.json",
        lambda: b'{"a\xed\xa0\x80": "2", "version": 1}',
        "stepped over",
    ),
    "a version of thousands of digits": (
        "benchmarks.json",
        lambda: _json("benchmarks.json", _first("version", "1" * 5000)),
        "read",
    ),
    "a torch of thousands of digits": (
        "node.json",
        lambda: _json("node.json", lambda t: t["packages"].update(torch="1" * 5000)),
        "read",
    ),
    "a recipe like a mapping": ("recipes", lambda: b"new: {like: {a: b}}\n", "refused"),
    "half a character in a recipe": ("recipes", lambda: b'"\\ud800"\n', "refused"),
    "recipes like each other": (
        "recipes",
        lambda: b"new: {like: old}\nold: {like: new}\n",
        "refused",
    ),
    "half a configuration": ("asv.conf.json", lambda: b'{"version": 1, ', "refused"),
    "a configuration whose branches are a number": (
        "asv.conf.json",
        lambda: b'{"version": 1, "repo": ".", "branches": 7}',
        "refused",
    ),
    "half a character in a branch": (
        "asv.conf.json",
        lambda: b'{"version": 1, "repo": ".", "branches": ["\\ud800"]}',
        "refused",
    ),
    "a count without end": (
        "ncu table",
        lambda: KINDS["ncu table"].seeds()[0].replace(b"1,035,200", b"-Infinity"),
        "refused",
    ),
    "a Python that is no version": (
        "node.json",
        lambda: _json("node.json", lambda t: t.update(python="\x00")),
        "refused",
    ),
    "a node that is no UTF-8": (
        "node.json",
        lambda: b'{"hpml_node": 1, "python": "\xff"}',
        "refused",
    ),
    "a day that is none": ("prices", lambda: b"2026-13-45\n", "refused"),
    "prices nested deep": ("prices", lambda: b"[" * 100_000, "refused"),
    "a float without digits": ("registry", lambda: b"s: !!float !", "refused"),
    "an integer without digits": ("cluster file", lambda: b's: !!int ""', "refused"),
    "a moment that is none": ("prices", lambda: b"!!timestamp x", "refused"),
    "minutes without end": (
        "recipes",
        lambda: b"!!float 1:" + b"9:" * 200 + b"5",
        "refused",
    ),
    "a job nested deep": ("job", lambda: b'{"a":' * 20_000, "stepped over"),
    "a job that is no UTF-8": ("job", lambda: b'{"target": "\x80"', "stepped over"),
    "a name of a file that is no UTF-8": (
        "command line",
        lambda: b'{"words": ["export", "\\udcf7.parquet"], "set": {}}',
        "done",
    ),
    "a side of a comparison that is no UTF-8": (
        "command line",
        lambda: b'{"words": ["compare", "\\udc8d", "x"], "set": {}}',
        "refused",
    ),
    "no command": ("command line", lambda: b'{"words": [], "set": {}}', "refused"),
    "a folder's name that is too long": (
        "command line",
        lambda: json.dumps({"words": ["merge", "9" * 300], "set": {}}).encode(),
        "refused",
    ),
    "a registry's name that is too long": (
        "command line",
        lambda: json.dumps(
            {"words": ["--registry", "9" * 300, "list"], "set": {}}
        ).encode(),
        "refused",
    ),
    "a plugin's name that is too long for a file": (
        "command line",
        lambda: json.dumps({"words": ["check", "9" * 300], "set": {}}).encode(),
        "refused",
    ),
    "a collection that a plugin replaces": (
        "result of measure",
        lambda: b"setattr(b, 'collected', 1.5)",
        "failed",
    ),
    "a hook that raises GeneratorExit": (
        "plugin file",
        lambda: _plugin("raise GeneratorExit"),
        "named",
    ),
    "a hook that raises BaseException": (
        "plugin file",
        lambda: _plugin("raise BaseException('x')"),
        "named",
    ),
    "a unit without truth value": (
        "declaration",
        lambda: b"Metric('time', numpy.array([]), 'lower')",
        "refused",
    ),
    "directions that are an array": (
        "declaration",
        lambda: b"Metric('time', 's', numpy.array([1, 0]))",
        "refused",
    ),
    "bounds of thousands of digits": (
        "declaration",
        lambda: b"Metric('time', 's', 'lower', '', 10**5000)",
        "refused",
    ),
    "a name of thousands of characters": (
        "declaration",
        lambda: b"Metric('x' * 10**5, 's', 'lower')",
        "refused",
    ),
    "a name of NumPy's": (
        "declaration",
        lambda: b"Metric(numpy.str_('time'), 's', 'lower')",
        "refused",
    ),
    "a parameter of thousands of digits": (
        "declaration",
        lambda: (
            b"Benchmark('toy', measure, [Metric('time', 's', 'lower')], {10**5000: [2]})"
        ),
        "refused",
    ),
    "a grid of a billion values": (
        "declaration",
        lambda: (
            b"Benchmark('toy', measure, [Metric('time', 's', 'lower')], {'n': range(10**12)})"
        ),
        "refused",
    ),
    "a chart that holds itself": (
        "declaration",
        lambda: b"Figure('drawn', 'Drawn', ('toy',), lambda records: None, {'a': [loop]})",
        "refused",
    ),
    "a price beyond all": (
        "prices",
        lambda: _yaml("prices", lambda t: t["prices"].update({"NVIDIA H200": 1e308})),
        "refused",
    ),
    "ten thousand samples": (
        "result of measure",
        lambda: b"{'time': Samples([1.0] * 10**4, 's'), 'ratio': 0.5}",
        "ok",
    ),
    "a lock that is a hard link to a file elsewhere": (
        "places of results",
        lambda: b'[["into/m/.lock", "hard", ""]]',
        "read",
    ),
}


@pytest.mark.parametrize("kind", sorted({each[0] for each in FOUND.values()}))
def test_what_fuzzing_found_stays_fixed(kind: str, tmp_path: Path) -> None:
    cases = {
        what: (make(), outcome) for what, (of, make, outcome) in FOUND.items() if of == kind
    }
    wrong: list[str] = []

    def run(trial: Trial) -> None:
        for what, (data, outcome) in cases.items():
            before = dict(trial.counts.outcomes)
            trial.case(data)
            got = [
                name
                for name, count in trial.counts.outcomes.items()
                if count != before.get(name, 0)
            ]
            if got != [outcome]:
                wrong.append(f"{what}: {got}, not {outcome}")
        trial.counts.outcomes = dict.fromkeys(wrong, 1)

    counts: Counts = fuzz(KINDS[kind], run, tmp_path, 300)
    assert not counts.faults, show(counts.faults)
    assert not counts.outcomes
    assert counts.cases == len(cases)
