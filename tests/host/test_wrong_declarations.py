"""Whatever a plugin declares wrongly is refused where it stands, and costs that plugin alone."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest
from support import TOY

import hpml_plugins
from hpml_plugins.errors import DefinitionError
from hpml_plugins.host import Host, make_host
from hpml_plugins.measure import Context, measure_point
from hpml_plugins.model.node import Node
from hpml_plugins.node import unmet
from hpml_plugins.registry import read_registry
from hpml_plugins.suite.points import Suite, make_suite


class Size(enum.IntEnum):
    SMALL = 1


def measure(bench: object, *, n: object) -> None: ...


def needs(node: object, point: object) -> str:
    return ""


#: What a right declaration of each kind takes; one argument at a time is replaced.
RIGHT: dict[str, dict[str, Any]] = {
    "Metric": {"name": "time", "unit": "s", "direction": "lower"},
    "Requires": {},
    "Benchmark": {
        "name": "toy",
        "measure": measure,
        "metrics": [hpml_plugins.Metric("time", "s", "lower")],
        "grid": {"n": [1, 2]},
    },
    "Figure": {
        "name": "drawn",
        "title": "Drawn",
        "benchmarks": ("toy",),
        "table": lambda records: None,
    },
    "DataSource": {
        "name": "mine",
        "find": lambda root: None,
        "read": lambda path: None,
        "looks_for": "a file",
        "how_to_get": "touch it",
    },
}
HALF = "\ud800"  # half of a pair of UTF-16: no text file can hold it
NAMES = [
    None,
    3,
    "",
    "Time",
    "a-b",
    "a b",
    "é",
    "x" * 101,
    b"time",
    ["time"],
    HALF,
    "time\n",
]
TEXTS = [None, 3, b"text", ["text"], HALF]
TUPLES = [None, 3, "torch", [3], (None,), {"a": 1}, [b"a"]]
COUNTS = [None, -1, 1.5, True, [1], 10**9, math.nan]
FUNCTIONS = [None, 3, "f", []]
WRONG: dict[str, dict[str, list[Any]]] = {
    "Metric": {
        "name": NAMES,
        "unit": [None, 3, "", "ms", "sec", b"s", ["s"], HALF],
        "direction": [3, "", "down", "LOWER", True, ["lower"], b"lower"],
        "description": TEXTS,
        "possible": [
            3,
            (1,),
            (2, 1),
            (1, 1),
            ("0", 1),
            (math.nan, 1),
            (0, 1, 2),
            "01",
            {0: 1},
        ],
    },
    "Requires": {
        "gpus": [*COUNTS, "ranks"][:-1],
        "gpu_memory": [None, -1, math.nan, math.inf, True, [1e9], b"n"],
        "data": [None, 3, [3], {"a": 1}, (None,)],
        "modules": [*TUPLES, ("",), ("a b",), ("pip install torch",), ("../x",)],
        "tools": [*TUPLES, ("",)],
        "cpu_fallback": [None, 1, "yes", []],
        "also": [
            None,
            needs,
            "needs",
            ("needs",),
            (None,),
            (3,),
            (lambda: "",),
            (lambda node: "",),
        ],
    },
    "Benchmark": {
        "name": NAMES,
        "measure": [
            *FUNCTIONS,
            lambda: None,
            lambda bench: None,
            lambda bench, m: None,
            lambda *, n: None,
            dict,
        ],
        "metrics": [
            *(
                None,
                [],
                3,
                "time",
                ["time"],
                [None],
                [RIGHT["Metric"]],
                {"time": "s"},
                itertools.count,
            ),
            *(
                hpml_plugins.Metric("a", "s", None),
                [hpml_plugins.Metric("a", "s", None)] * 2,
            ),
        ],
        "grid": [
            *(
                None,
                3,
                "n",
                [1],
                {},
                {"m": [1]},
                {3: [1]},
                {"n": 1},
                {"n": None},
                {"n": "abc"},
                {"n": b"ab"},
            ),
            *(
                {"n": values}
                for values in (
                    [],
                    {1, 2},
                    {1: 2},
                    iter([1]),
                    numpy.arange(3),
                    range(10**6),
                    [1, 1],
                )
            ),
            *(
                {"n": [value]}
                for value in (
                    None,
                    [1],
                    (1,),
                    {},
                    math.nan,
                    math.inf,
                    -math.inf,
                    1j,
                    2**70,
                    HALF,
                    b"a",
                )
            ),
            *(
                {"n": [value]}
                for value in (
                    numpy.int64(1),
                    numpy.float64(1),
                    numpy.bool_(True),
                    numpy.str_("a"),
                )
            ),
            *(
                {"n": [value]}
                for value in (
                    Size.SMALL,
                    decimal.Decimal(1),
                    datetime.date.today(),
                    measure,
                    object(),
                )
            ),
            *({"n": [1], "m": [1]}, {"n": list(range(400)), "m": list(range(400))}),
        ],
        "requires": [
            *(None, {}, [], "torch", ("torch",), hpml_plugins.Requires, {"gpus": 1}),
            *(hpml_plugins.Requires(gpus=need) for need in ("ranks", "")),
        ],
        "version": [None, 2, 1.0, b"1", ["1"], HALF],
        "timeout": [
            None,
            "60",
            0,
            -1,
            math.inf,
            math.nan,
            1e300,
            True,
            [60],
            numpy.float64(60),
        ],
        "description": TEXTS,
        "rounds": [None, 0, -1, 1.5, "3", True, 10**6],
    },
    "Figure": {
        "name": NAMES,
        "title": TEXTS,
        "benchmarks": [*TUPLES, ()],
        "table": [*FUNCTIONS, lambda: None, lambda a, b: None],
        "chart": ["bar", 3, [], {"mark": object()}, {"mark": {1, 2}, 3j: 1}],
        "caption": TEXTS,
        "draw": ["draw", 3, lambda: None, lambda sheet: None],
    },
    "DataSource": {
        "name": TEXTS,
        "find": FUNCTIONS,
        "read": FUNCTIONS,
        "looks_for": TEXTS,
        "how_to_get": TEXTS,
        "modules": TUPLES,
        "download": ["get", 3],
        "unpack_to": [3, b"x", HALF],
        "extra_roots": FUNCTIONS,
    },
}
#: Requirements that name a parameter whose values do not fit.
PARAMETERS: list[tuple[str, list[Any]]] = [
    ("gpus", ["a"]),
    ("gpus", [1.5]),
    ("gpus", [-1]),
    ("gpus", [True]),
    ("gpu_memory", ["a"]),
    ("gpu_memory", [-1.0]),
    ("gpu_memory", [True]),
    ("data", [1]),
    ("data", [True]),
]


def ways() -> list[tuple[str, dict[str, Any]]]:
    """Every wrong way to declare: the class and its arguments."""
    found = [
        (kind, {**RIGHT[kind], argument: value})
        for kind, arguments in WRONG.items()
        for argument, values in arguments.items()
        for value in values
    ]
    for need, values in PARAMETERS:
        requires = hpml_plugins.Requires(**{need: "n"})
        found.append(
            (
                "Benchmark",
                {**RIGHT["Benchmark"], "grid": {"n": values}, "requires": requires},
            )
        )
    return found


def test_whatever_is_declared_wrongly_is_refused_with_the_plugins_line() -> None:
    accepted, elsewhere = [], []
    for kind, arguments in ways():
        names = {"declare": getattr(hpml_plugins, kind), "arguments": arguments}
        try:
            exec(
                compile("\nvalue = declare(**arguments)", "/somewhere/mine.py", "exec"),
                names,
            )
        except DefinitionError as error:
            if (
                error.where != "/somewhere/mine.py:2"
                or "\n" in str(error)
                or len(error.what) > 500
            ):
                elsewhere.append((kind, str(error)))
        else:
            accepted.append((kind, names["value"]))
    assert accepted == []
    assert elsewhere == []
    print(
        f"{len(ways())} wrong declarations of {len(WRONG)} kinds, each refused with the plugin's"
        " line"
    )


def test_what_is_declared_rightly_is_kept_as_it_was_declared() -> None:
    for kind, arguments in RIGHT.items():
        value = getattr(hpml_plugins, kind)(**arguments)
        for name, given in arguments.items():
            assert getattr(value, name) == given
    listed = hpml_plugins.Requires(modules=["torch"], gpu_memory=16 * 10**9)  # type: ignore[arg-type]
    assert (listed.modules, listed.gpu_memory) == (("torch",), 16e9)
    assert dataclasses.replace(listed, gpus="n").gpus == "n"
    ranged = hpml_plugins.Benchmark(**{**RIGHT["Benchmark"], "grid": {"n": range(3)}})
    assert ranged.grid == {"n": [0, 1, 2]}


HEAD = (
    "from hpml_plugins import *\nfrom hpml_plugins import hookimpl\nimport itertools, os, sys,"
    " time\n" + "def measure(bench): return {'time': 1.0}\n"
    "def one(**more): return Benchmark(__name__, measure, [Metric('time', 's', 'lower')], **more)\n"
)
#: what stands in the file, or what `hpml_benchmarks` returns → what the error says
BROKEN_FILES = {
    "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
    "1 / 0": "ZeroDivisionError: division by zero (1 / 0)",
    "def (": "SyntaxError: invalid syntax",
    "sys.exit()": "SystemExit (sys.exit())",
    "sys.exit('enough')": "SystemExit: enough",
    "raise BaseException('base')": "BaseException: base",
    "raise GeneratorExit": "GeneratorExit",
    "class E(Exception):\n  def __str__(self): raise ValueError\nraise E": (
        "its text cannot be shown"
    ),
    "raise RecursionError": "RecursionError",
    "raise MemoryError": "MemoryError",
    "raise Exception('\\ud800 \\x1b[2J \\n')": "Exception: \\ud800 \\x1b[2J",
    "x = 1": "implements no hook",
    "@hookimpl\ndef hpml_benchmark(): return []": "unknown hook",
    "@hookimpl\ndef hpml_benchmarks(node): return []": "Argument(s) {'node'}",
    "@hookimpl\nasync def hpml_benchmarks(): return []": (
        "returned coroutine, not a list of Benchmark values"
    ),
}
BROKEN_ANSWERS = {
    "None": "returned NoneType",
    "3": "returned int",
    "'toy'": "returned str",
    "b'toy'": "returned bytes",
    "{}": "returned dict",
    "{'toy': one()}": "returned dict",
    "[None]": "returned NoneType",
    "['toy']": "returned str",
    "[[one()]]": "returned list",
    "[one]": "returned function",
    "[Benchmark]": "returned type",
    "one()": "returned Benchmark",
    "[Metric('time', 's', 'lower')]": "returned Metric",
    "itertools.repeat(one())": "returned more than 10000 values",
    "[one(), one()]": "offers one benchmark name twice",
    "[one(timeout=float('inf'))]": "timeout=inf: expected `float` < 1000000000.0",
    "(1 / 0 for _ in 'a')": "ZeroDivisionError: division by zero (1 / 0)",
    "[one()] + sys.exit(0)": "SystemExit: 0 (sys.exit(0))",
    "[one(metrics='')]": "got multiple values for argument 'metrics'",
}
#: What else a plugin may offer: the hook, what it returns, and what is said; its benchmark stays.
PROBLEMS = [
    ("hpml_data", "None", "returned NoneType, not a list of LoadableData values"),
    ("hpml_data", "sys.exit(1)", "SystemExit: 1 (sys.exit(1))"),
    ("hpml_data", "['mine']", "returned str, not a list of LoadableData values"),
    (
        "hpml_data",
        "[type('S', (), dict(name=3, why_missing=1, load=1))()]",
        "a data source's name=3: expected `str`",
    ),
    (
        "hpml_data",
        "[type('S', (), dict(name=property(lambda s: 1 / 0), why_missing=1, load=1))()]",
        "(1 / 0)",
    ),
]


def write_registry(write: Callable[[str, str], Path], texts: dict[str, str]) -> Path:
    for name, text in {**texts, "toy": TOY}.items():
        write(f"{name}.py", text)
    entries = "".join(
        f"  - {{name: {name}, path: {name}.py}}\n" for name in [*texts, "toy"]
    )
    return write("registry.yaml", f"version: 1\nplugins:\n{entries}")


def hooked(hook: str, answer: str) -> str:
    return f"{HEAD}\n@hookimpl\ndef {hook}():\n    return {answer}\n"


def measured(host: Host, node: Node) -> bool:
    """Whether the suite of asv's processes can be read, and the toy in it be measured."""
    suite = msgspec.json.decode(
        msgspec.json.encode(make_suite(host, node, "here", "")), type=Suite
    )
    (toy,) = [each for each in suite.benchmarks if each.name == "toy"]
    benchmark = hpml_plugins.Benchmark(
        "toy", lambda bench, size: {"time": 1.0}, toy.metrics, toy.grid
    )
    return measure_point(benchmark, {"size": 10}, Context(node, watch=False)).status == "ok"


def test_a_plugin_that_is_wrong_is_broken_and_the_others_are_measured(
    write: Callable[[str, str], Path], node: Node
) -> None:
    texts = {f"file_{i}": f"{HEAD}\n{text}\n" for i, text in enumerate(BROKEN_FILES)}
    texts |= {
        f"answer_{i}": hooked("hpml_benchmarks", text)
        for i, text in enumerate(BROKEN_ANSWERS)
    }
    expected = dict(
        zip(texts, [*BROKEN_FILES.values(), *BROKEN_ANSWERS.values()], strict=True)
    )
    for i, (hook, answer, _) in enumerate(PROBLEMS):
        texts[f"offer_{i}"] = (
            hooked(hook, answer) + "\n@hookimpl\ndef hpml_benchmarks(): return [one()]\n"
        )
    host = make_host(read_registry(write_registry(write, texts)))
    errors = {plugin.entry.name: str(plugin.error) for plugin in host.broken}
    assert {
        name: errors.get(name)
        for name, said in expected.items()
        if said not in errors.get(name, "")
    } == {}
    assert [
        error
        for name, error in errors.items()
        if not error.startswith(str(write("x", "").parent))
    ] == []
    assert [error for error in errors.values() if not error.isprintable()] == []
    assert set(errors) == set(expected)
    problems = dict(
        zip((f"offer_{i}" for i in range(len(PROBLEMS))), PROBLEMS, strict=True)
    )
    said = {
        name: [each for each in host.offers.problems if f"plugin '{name}':" in each]
        for name in problems
    }
    assert {
        name: said[name]
        for name, (_, _, words) in problems.items()
        if words not in "".join(said[name])
    } == {}
    assert {benchmark.plugin.name for benchmark in host.benchmarks()} == {"toy", *problems}
    assert measured(host, node)
    print(
        f"{len(texts)} plugins with a wrong file, hook or offer: {len(errors)} broken,"
        f" {len(problems)} named"
    )


#: Requirements of a plugin's own → the reason that the point is skipped with.
SKIPPED = {
    "sys.exit(0)": "requirement needs raised SystemExit: 0",
    "1 / 0": "requirement needs raised ZeroDivisionError: division by zero",
    "3": "requirement needs returned int, not why the point cannot be measured or ''",
    "True": "requirement needs returned bool, not why the point cannot be measured or ''",
    "'two\\nlines \\x1b[2J'": "two lines \\x1b[2J",
    "'half \\ud800'": "half \\ud800",
}
#: What ends or blocks the process in which plugins are loaded → what the error says.
FATAL = {
    "os._exit(0)": "ended with exit status 0 before it reported",
    "os._exit(7)": "ended with exit status 7",
    "time.sleep(99)": (
        "was not done after 3 s (HPML_IMPORT_LIMIT gives it longer) in needs (hang_2.py:"
    ),
}


def test_requirements_that_exit_hang_or_raise_cost_their_plugin_alone(
    write: Callable[[str, str], Path], node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPML_IMPORT_LIMIT", "3")
    text = (
        HEAD
        + "\ndef needs(node, point): return {}\n@hookimpl\ndef hpml_benchmarks(): return"
        " [one(requires=NEED)]\n"
    )
    needing = text.replace("NEED", "Requires(also=(needs,))")
    texts = {f"skip_{i}": needing.replace("{}", body) for i, body in enumerate(SKIPPED)}
    texts |= {f"hang_{i}": needing.replace("{}", body) for i, body in enumerate(FATAL)}
    source = "type('S', (), dict(name='slow', load=1, why_missing=lambda self: time.sleep(99)))()"
    texts["data"] = hooked("hpml_data", f"[{source}]")
    texts["user"] = text.replace("NEED", "Requires(data=('slow',))")
    registry = read_registry(write_registry(write, texts))
    host = make_host(
        registry, unmet=lambda benchmark, params: unmet(benchmark, params, node)
    )
    found = {plugin.entry.name: str(plugin.error) for plugin in host.broken}
    assert set(found) == {"hang_0", "hang_1", "hang_2", "data"}
    assert {
        name: found[name]
        for name, said in zip(found, FATAL.values(), strict=False)
        if said not in found[name]
    } == {}
    assert "in <lambda> (data.py:" in found["data"]  # not the plugin that needs it
    reasons = {each.plugin.name: list(each.unmet.values()) for each in host.benchmarks()}
    assert [reasons[f"skip_{i}"] for i in range(len(SKIPPED))] == [
        [reason] for reason in SKIPPED.values()
    ]
    assert reasons["user"][0].startswith("no data set 'slow'")
    assert measured(host, node)
