"""What plugins hand over: declarations, answers of hooks, results of `measure`. Each case is Python
text."""

from __future__ import annotations

import functools
import itertools
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from fuzzing.engine import Kind
from fuzzing.grammars import PIECES, VALUES, Boom, expression, names
from fuzzing.mutating import mutate_bytes

from hpml_plugins.errors import DefinitionError, HpmlError
from hpml_plugins.model.node import Gpu, Node

NODE = Node(
    os="Linux 6",
    arch="x86_64",
    cpu="C",
    num_cpu=2,
    ram=2.0**34,
    python="3.12",
    gpus=(Gpu("NVIDIA H200", 141e9),) * 2,
)
#: A right declaration of each class, as Python spells its arguments.
RIGHT: dict[str, dict[str, str]] = {
    "Metric": {
        "name": "'time'",
        "unit": "'s'",
        "direction": "'lower'",
        "description": "''",
        "possible": "None",
    },
    "Requires": {
        "gpus": "0",
        "gpu_memory": "0",
        "data": "()",
        "modules": "()",
        "tools": "()",
        "cpu_fallback": "False",
        "also": "()",
    },
    "Benchmark": {
        "name": "'toy'",
        "measure": "measure",
        "metrics": "[Metric('time', 's', 'lower')]",
        "grid": "{'n': [1, 2]}",
        "requires": "Requires()",
        "version": "'1'",
        "timeout": "60.0",
        "description": "''",
        "rounds": "3",
        "terms": "{'n': 'size'}",
    },
    "Figure": {
        "name": "'drawn'",
        "title": "'Drawn'",
        "benchmarks": "('toy',)",
        "table": "lambda records: None",
        "chart": "None",
        "caption": "''",
        "draw": "None",
    },
    "DataSource": {
        "name": "'mine'",
        "find": "lambda root: None",
        "read": "lambda path: None",
        "looks_for": "'a file'",
        "how_to_get": "'touch it'",
        "modules": "()",
    },
}
#: What stands in the place of an argument most often: near to right.
NEAR = (
    *(
        "'gpus'",
        "'n'",
        "[1, 1]",
        "[Metric('time', 's', 'lower')] * 2",
        "[Metric('a', 's', None), Metric('b', 'B/s', 'higher')]",
    ),
    *(
        "Requires(gpus='n')",
        "Requires(gpus=2)",
        "Requires(gpu_memory='n')",
        "Requires(data='n')",
        "Requires(modules=('os',))",
    ),
    *(
        "Requires(also=(needs,))",
        "Requires(also=(lambda node, point: 1 / 0,))",
        "Requires(also=(lambda node, point: node,))",
    ),
    *(
        "Requires(also=(lambda node, point: '\\x1b[2J\\nhpml: forged',))",
        "Requires(tools=('no-such-tool', '\\n'))",
    ),
    *(
        "{'n': ['\\x1b[2J', '\\nhpml: forged']}",
        "{'n': [0.1, 1e308, -1]}",
        "{'n': range(10)}",
        "{}",
        "'B/s'",
        "'degC'",
        "'1'",
    ),
    *(
        "None",
        "'higher'",
        "(0, 1)",
        "(None, 5)",
        "(-1, None)",
        "'x'",
        "'A description'",
        "1e8",
        "5",
        "1000",
        "('toy', 'n')",
    ),
)


class NoCase(Exception):
    """The case's own text failed: nothing was declared."""


@functools.cache
def _names() -> dict[str, Any]:
    return names()


def _declared(random: Random, kind: str = "") -> str:
    """A declaration with a few wrong arguments."""
    kind = kind or random.choice(list(RIGHT))
    given = dict(RIGHT[kind])
    for name in random.choices(list(given), k=random.randrange(4)):
        given[name] = random.choice(NEAR) if random.randrange(2) else expression(random)
    if not random.randrange(6):
        del given[random.choice(list(given))]
    return f"{kind}({', '.join(f'{name}={value}' for name, value in given.items())})"


def _evaluated(text: str) -> Any:
    """The value of a text. Raises NoCase where the text fails and not the project."""
    try:
        return eval(compile(text, "/somewhere/mine.py", "eval"), dict(_names()))
    except HpmlError:
        raise
    except Exception as error:
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        if any(
            "/hpml_plugins/" in file and "/tests/" not in file for file in files
        ) and not isinstance(error, Boom):
            raise
        raise NoCase(type(error).__name__) from None


def _read_declaration(data: bytes, folder: Path) -> str:
    from hpml_plugins.host.declared import Declared
    from hpml_plugins.model.formatting import format_point
    from hpml_plugins.node import unmet
    from hpml_plugins.registry import PluginEntry

    try:
        value = _evaluated(data.decode("utf-8", "surrogatepass"))
    except DefinitionError as error:
        assert error.where == "/somewhere/mine.py:1", error.where
        raise
    if type(value).__name__ != "Benchmark":
        return "kept"
    declared = Declared.of(value, PluginEntry(name="mine", path="mine.py"))
    encoded = msgspec.json.encode(declared)
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=Declared)) == encoded
    for params in itertools.islice(declared.points(), 3):
        format_point(params).encode()
        declared.key(params)
        for reason in unmet(value, params, NODE):
            assert isinstance(reason, str)
            reason.encode()
    return "kept"


HOOKS = ("benchmarks", "figures", "data")
HEAD = (
    "from hpml_plugins import Benchmark, DataSource, Figure, GpuType, Metric, PublishedFigure,"
    " Requires, hookimpl\nfrom fuzzing.plugins_kinds import *\nglobals().update(NAMES())\n"
)
STATEMENTS = (
    *(
        "1 / 0",
        "raise BaseException('base')",
        "raise SystemExit('\\x1b[2J')",
        "raise SystemExit",
        "raise MemoryError",
        "def (",
    ),
    *(
        "raise RecursionError",
        "import no_such_module",
        "raise Boom('\\nhpml: forged')",
        "raise ExceptionGroup('g', [ValueError(1)])",
    ),
    *(
        "x = " + "(" * 300,
        "x = " + "-" * 3000 + "1",
        "x = 0x" + "f" * 5000,
        "raise StopIteration",
        "raise GeneratorExit",
    ),
    *(
        "'\\N{no such}'",
        "# coding: no-such",
        "import sys; sys.path.clear()",
        "import os; os.environ['COLUMNS'] = '\\n'",
    ),
    *(
        "raise Exception('\\ud800')",
        "raise Exception(10**5000)",
        "__getattr__ = 3",
        "hookimpl = None",
        "def __getattr__(n): return 1 / 0",
    ),
    *(
        "class E(Exception):\n  def __str__(self): raise ValueError\nraise E",
        "import sys; sys.stdout = None",
        "return 3",
        "yield 1",
    ),
)


def _answer(random: Random, hook: str) -> str:
    kinds = {
        "benchmarks": "Benchmark",
        "figures": "Figure",
        "data": "DataSource",
    }
    if hook not in kinds or not random.randrange(3):
        return expression(random, 3)
    return f"[{', '.join(_declared(random, kinds[hook]) for _ in range(random.randint(1, 3)))}]"


def _write_plugin(random: Random) -> bytes:
    """A plugin's file: hooks with their answers, now and then a statement that fails."""
    lines = [HEAD]
    for hook in random.sample(HOOKS, random.randint(1, 3)):
        name = (
            f"hpml_{hook}"
            if random.randrange(16)
            else f"hpml_{random.choice(('x', 'benchmark', 'é'))}"
        )
        arguments = (
            ""
            if random.randrange(16)
            else random.choice(("node", "*, a", "a=1", "*a", "**k"))
        )
        body = (
            random.choice(STATEMENTS)
            if not random.randrange(12)
            else f"return {_answer(random, hook)}"
        )
        prefix = "" if random.randrange(20) else "async "
        indented = body.replace("\n", "\n    ")
        lines.append(f"@hookimpl\n{prefix}def {name}({arguments}):\n    {indented}\n")
    if not random.randrange(8):
        lines.insert(random.randrange(len(lines) + 1), random.choice(STATEMENTS) + "\n")
    if not random.randrange(40):
        lines.append(random.choice(PIECES))
    return "".join(lines).encode("utf-8", "surrogatepass")


NAMES = _names


def _read_plugin(data: bytes, folder: Path) -> str:
    from hpml_plugins.host.declared import Declared
    from hpml_plugins.host.loading import apply_registry, load_plugin, restored
    from hpml_plugins.host.offers import ask_for_offers, merge_offers
    from hpml_plugins.registry import read_registry

    (folder / "mine.py").write_bytes(data)
    path = folder / "registry.yaml"
    if not path.exists():
        path.write_text(
            "version: 1\nplugins:\n  - {name: mine, path: mine.py, timeout: 5}\n"
        )
    registry = _registry(read_registry, path)
    (entry,) = registry.plugins
    with restored():
        plugin = apply_registry(
            load_plugin(entry, registry.folder, registry.at("mine")), entry, registry, {}
        )
        offers = ask_for_offers(plugin)
    merged = merge_offers([offers, offers])
    for problem in (*merged.problems, *([str(plugin.error)] if plugin.error else [])):
        assert problem.isprintable(), problem
        assert len(problem) < 20_000, len(problem)
    msgspec.msgpack.decode(
        msgspec.msgpack.encode([Declared.of(each, entry) for each in plugin.benchmarks]),
        type=list[Declared],
    )
    msgspec.msgpack.encode(offers)
    if plugin.error:
        raise plugin.error
    return "named" if offers.problems else "loaded"


@functools.cache
def _registry(read: Any, path: Path) -> Any:
    return read(path)


#: What `measure` may do with its Bench; VALUE is replaced.
ACTS = (
    *(
        "b.warn(VALUE)",
        "b.check(VALUE, VALUE)",
        "b.check(True, VALUE)",
        "b.skip(VALUE)",
        "b.progress(VALUE, VALUE)",
        "b.progress('x', VALUE)",
    ),
    *(
        "b.series('s', VALUE)",
        "b.series('s', {'a': VALUE})",
        "b.series(VALUE, {'a': [1, 2]}, VALUE)",
        "b.series('s', {'a': [VALUE, 1.0]})",
    ),
    *(
        "b.series('s', {'loss': [1.0, VALUE]}, {'loss': VALUE})",
        "b.work(flop=VALUE)",
        "b.work(bytes=VALUE, of=VALUE)",
        "b.work(flop=1e9, dtype=VALUE)",
    ),
    *(
        "b.data(VALUE)",
        "b.import_module(VALUE)",
        "b.time(None)",
        "b.collected.warnings.append(VALUE)",
        "b.collected.checks.append(VALUE)",
    ),
    *(
        "b.collected.data.update({'d': VALUE})",
        "b.collected.series.update(s=VALUE)",
        "setattr(b.collected, 'warnings', VALUE)",
        "b.no_such(VALUE)",
    ),
    *(
        "setattr(b, 'collected', VALUE)",
        "b.params.update(n=VALUE)",
        "Samples(VALUE, VALUE)",
        "Samples.of(VALUE, VALUE)",
        "Samples((1.0,), 's') + VALUE",
    ),
    *(
        "VALUE / Samples((1.0, 2.0), 's')",
        "Samples.of([1.0], 's').note(how=VALUE)",
        "Samples.of([VALUE, 1.0], 's')",
        "b.remaining",
        "b.peaks",
    ),
)
RETURNED = (
    "VALUE",
    "{'time': VALUE}",
    "{'time': VALUE, 'ratio': VALUE}",
    "{'time': 1.0, 'ratio': 0.5}",
    "{'time': 1.0, 'ratio': VALUE}",
    "{'time': Samples(VALUE, 's'), 'ratio': 0.5}",
    "{'time': Samples.of([1.0, VALUE], 's'), 'ratio': 1}",
    "{'time': Samples((1.0, 2.0), 's', boost=VALUE), 'ratio': None}",
    "{'time': Samples.of([1.0], 's', how=VALUE), 'ratio': 0.5}",
    "{'time': Samples.of([1.0], VALUE), 'ratio': 0.5}",
    "{'time': 1.0, 'ratio': 0.5, VALUE: 1.0}",
)


def _write_measure(random: Random) -> bytes:
    """What `measure` does, a line each, and what it returns."""
    lines = [
        *(random.choice(ACTS) for _ in range(random.choice((0, 0, 1, 1, 2)))),
        random.choice(RETURNED),
    ]
    filled = [
        "".join(
            part if not number else expression(random) + part
            for number, part in enumerate(line.split("VALUE"))
        )
        for line in lines
    ]
    return "\n".join(filled).encode("utf-8", "surrogatepass")


def _read_measure(data: bytes, folder: Path) -> str:
    from hpml_plugins import Benchmark, Metric
    from hpml_plugins.measure import Context, point
    from hpml_plugins.model.serialization import decode, encode
    from hpml_plugins.report.points import describe_points
    from hpml_plugins.report.shares import Roof

    # `measure` that never ends is ended by the point's time limit, with what it filled meanwhile.
    if any(word in data for word in (b"count()", b"repeat(1", b"10**12")):
        raise NoCase
    lines = data.decode("utf-8", "surrogatepass").split("\n")

    def measure(bench: Any) -> Any:
        return [eval(line, {**_names(), "b": bench}) for line in lines][-1]

    benchmark = Benchmark(
        "toy",
        measure,
        [Metric("time", "s", "lower"), Metric("ratio", "1", "higher", possible=(0, 1))],
    )
    context = Context(NODE, watch=False)
    sent: list[bytes] = []
    blank = point.unmeasured("toy", "1", {}, context)
    # The child's half of `measure_point`: a process for each case would take most of the time.
    point._measure_here(
        benchmark, {}, context, blank, sent.append, time.monotonic() + 60, None
    )  # type: ignore[arg-type]
    for message in sent[:-1]:
        assert isinstance(point._DECODER.decode(message), tuple)
    record = decode(sent[-1])
    assert encode(decode(encode(record))) == encode(record)
    assert record.reason.isprintable(), record.reason
    assert (record.status == "ok") == bool(record.metrics)
    for line in describe_points([record], 100, Roof([record])):
        assert all(each.isprintable() for each in line.split("\n")), line
    return record.status


def _nothing() -> Sequence[bytes]:
    return [b"{'time': 1.0, 'ratio': 0.5}"]


def _toy() -> Sequence[bytes]:
    return [
        HEAD.encode()
        + b"@hookimpl\ndef hpml_benchmarks(): return [Benchmark('toy', measure, [Metric('time',"
        b" 's', 'lower')])]\n"
    ]


def _right() -> Sequence[bytes]:
    return [
        f"{kind}({', '.join(f'{name}={value}' for name, value in given.items())})".encode()
        for kind, given in RIGHT.items()
    ]


def _mutate_text(random: Random, data: bytes) -> bytes:
    """One value instead of another. libFuzzer's changes before this one may have left no text."""
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return mutate_bytes(random, data)
    old = [each for each in VALUES if len(each) > 2 and each in text]
    if not old or not random.randrange(8):
        return mutate_bytes(random, data)
    return text.replace(random.choice(old), expression(random), 1).encode(
        "utf-8", "surrogatepass"
    )


KINDS = (
    Kind(
        "declaration",
        _right,
        _mutate_text,
        _read_declaration,
        (HpmlError, NoCase, Boom, UnicodeDecodeError),
        grammar=lambda r: _declared(r).encode("utf-8", "surrogatepass"),
    ),
    Kind("plugin file", _toy, _mutate_text, _read_plugin, grammar=_write_plugin),
    Kind(
        "result of measure",
        _nothing,
        _mutate_text,
        _read_measure,
        (UnicodeDecodeError, NoCase),
        grammar=_write_measure,
    ),
)
