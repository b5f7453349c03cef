"""Whatever `measure` returns or hands to its Bench ends in a Record: failed with its reason, or
stored as it is."""

from __future__ import annotations

import decimal
import fractions
import functools
import inspect
import math
import os
import sys
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy
import pytest
from support import PATIENCE

from hpml_plugins import Bench, Benchmark, Metric, Record, Requires, Samples
from hpml_plugins.errors import ResultError
from hpml_plugins.measure import Context, measure_point, point
from hpml_plugins.measure.libraries import describe_failure
from hpml_plugins.measure.metrics import impossible_rates
from hpml_plugins.model.node import Gpu, Node
from hpml_plugins.model.serialization import decode, encode

METRICS = [Metric("time", "s", "lower"), Metric("ratio", "1", "higher", possible=(0, 1))]
GOOD = {"time": 1.0, "ratio": 0.5}
HALF = "\ud800"


class Odd(Mapping[str, object]):
    """A mapping that fails when it is looked into."""

    def __getitem__(self, key: str) -> object:
        raise OSError("no disk")

    def __iter__(self) -> Any:
        return iter(["time", "ratio"])

    def __len__(self) -> int:
        return 2


class Broken(Exception):
    def __str__(self) -> str:
        raise ValueError


def times(*values: Any, **more: Any) -> dict[str, Any]:
    return {**GOOD, "time": Samples(values, "s", **more)}


NO_NUMBERS = [
    *(
        "1.5",
        "fast",
        "nan",
        "",
        HALF,
        b"1",
        bytearray(b"1"),
        memoryview(b"1"),
        numpy.str_("1"),
        numpy.bytes_(b"1"),
    ),
    *(
        True,
        False,
        numpy.bool_(True),
        numpy.array(True),
        1j,
        numpy.complex128(1),
        object(),
        float,
        len,
        range(1),
    ),
    *(
        [1.0],
        (1.0,),
        {},
        {1.0},
        numpy.array([1.0, 2.0]),
        numpy.array([]),
        types.SimpleNamespace(),
    ),
    *(10**400, decimal.Decimal("sNaN")),
]
NOT_FINITE = [
    *(math.nan, math.inf, -math.inf, numpy.float64("nan"), decimal.Decimal("NaN")),
    *(Samples((1.0, math.nan), "s"), Samples((1.0,), "s", boost=(math.inf,))),
]
NEGATIVE = [
    -3,
    -3.0,
    numpy.float32(-3),
    Samples((1.0, -3.0), "s"),
    Samples((1.0,), "s", boost=(-3.0,)),
]
NO_MAPPINGS = [
    None,
    1.0,
    "time",
    [],
    [("time", 1.0)],
    (1.0,),
    Samples.of([1.0], "s"),
    iter([]),
    object(),
    dict,
]
#: What `measure` returns → what the Record says.
RETURNED: list[tuple[Any, str]] = [
    *(({**GOOD, "time": value}, "not Samples or a number") for value in NO_NUMBERS),
    *(({**GOOD, "time": value}, "metric 'time' is not finite") for value in NOT_FINITE),
    *(
        ({**GOOD, "time": value}, "metric 'time' is -3 s; it must be 0 or more")
        for value in NEGATIVE
    ),
    *(
        ({**GOOD, "ratio": value}, f"metric 'ratio' is {value:g}; it must be from 0 to 1")
        for value in (4, -1, 1.01)
    ),
    ({**GOOD, "time": Samples((), "s")}, "metric 'time' has no samples"),
    ({**GOOD, "time": Samples.of([1.0], "B")}, "was measured in B instead of s"),
    ({**GOOD, "ratio": Samples.of([1.0], "s")}, "was measured in s instead of 1"),
    *(
        (value, f"measure returned {type(value).__name__}, not a mapping")
        for value in NO_MAPPINGS
    ),
    ({}, "measure returned no value for time, ratio"),
    ({"time": 1.0}, "measure returned no value for ratio"),
    ({**GOOD, "tiem": 1.0}, "which is not a metric of 'toy'; did you mean 'time'?"),
    ({**GOOD, 3: 1.0}, "measure returned 3, which is not a metric"),
    ({**GOOD, None: 1.0}, "measure returned None, which is not a metric"),
    ({**GOOD, HALF: 1.0}, "measure returned \\ud800, which is not a metric"),
    ({"time": None, "ratio": None}, "measure returned None for every metric"),
    (Odd(), "OSError: no disk"),
]
#: What `measure` does → what the Record says.
DONE: list[tuple[Callable[[Bench], object], str]] = [
    (lambda b: Samples((True,)), "a sample is a bool, not a number"),
    (lambda b: Samples(("1",)), "a sample is a str, not a number"),
    (lambda b: Samples.of(["1.5"], "s"), "a sample is a str, not a number"),
    (lambda b: Samples.of([b"1"], "s"), "a sample is a bytes, not a number"),
    (lambda b: Samples.of([None], "s"), "a sample is a NoneType, not a number"),
    (lambda b: Samples.of([10**400], "s"), "a sample is a int, not a number"),
    (lambda b: Samples.of([], "s"), "Samples need at least one value"),
    (lambda b: Samples.of([1.0], "ms"), "unit 'ms' is not known"),
    (lambda b: Samples.of([1.0], None), "unit None is not known"),
    (lambda b: Samples.of([1.0], ["s"]), "TypeError: "),
    (lambda b: Samples.of(1.0, "s"), "TypeError: 'float' object is not iterable"),
    (lambda b: Samples((1.0,), 3), "Samples need text for the unit and a dict for info"),
    (
        lambda b: Samples((1.0,), info="fast"),
        "Samples need text for the unit and a dict for info",
    ),
    (lambda b: Samples.of([1.0], "s", how=None), "info 'how' of Samples is a NoneType"),
    (lambda b: Samples.of([1.0], "s", how=[1]), "info 'how' of Samples is a list"),
    (lambda b: Samples.of([1.0], "s").note(how=b"x"), "info 'how' of Samples is a bytes"),
    (lambda b: Samples.of([1.0], "s").note(fast=True), "info 'fast' of Samples is a bool"),
    (lambda b: Samples.of([1.0], "s") + Samples.of([1.0], "B"), "cannot add s and B"),
    (lambda b: Samples.of([1.0], "s") + "1", "TypeError: "),
    (lambda b: b.time(int, cache="warm"), "cache='warm'; use one of hot, cold, dirty"),
    (lambda b: b.time(int, launch=1), "launch=1; use one of hidden, visible"),
    (lambda b: b.warn(5), "warn's text=5: expected `str`"),
    (lambda b: b.warn(None), "warn's text=None: expected `str`"),
    (lambda b: b.warn(b"x"), "warn's text=b'x': expected `str`"),
    (lambda b: b.check(True, None), "check's message=None: expected `str`"),
    (lambda b: b.check(True, 5), "check's message=5: expected `str`"),
    (lambda b: b.check(False, None), "check's message=None: expected `str`"),
    (
        lambda b: b.check(numpy.array([True, False]), "both"),
        "ValueError: The truth value of an array",
    ),
    (lambda b: b.check(False, "wrong \x1b[2J"), "check failed: wrong \\x1b[2J"),
    (lambda b: b.skip(5), "skip's reason=5: expected `str`"),
    (lambda b: b.skip(None), "skip's reason=None: expected `str`"),
    (lambda b: b.progress(5), "progress' text=5: expected `str`"),
    (lambda b: b.progress(None), "progress' text=None: expected `str`"),
    (lambda b: b.progress("x", "half"), "progress' share is a str, not a number"),
    (lambda b: b.progress("x", [0.5]), "progress' share is a list, not a number"),
    (lambda b: b.progress("x", 1j), "progress' share is a complex, not a number"),
    (lambda b: b.progress("x", True), "progress' share is a bool, not a number"),
    (
        lambda b: b.series("s", {"a": [1], "b": [1, 2]}),
        "series 's': columns have different lengths: {'a': 1, 'b': 2}",
    ),
    (
        lambda b: b.series("s", {"a": ["x", 1.0]}),
        "series 's': column 'a' mixes text and numbers",
    ),
    (
        lambda b: b.series("s", {"a": [None]}),
        "series 's': column 'a': a value is a NoneType, not a number",
    ),
    (
        lambda b: b.series("s", {"a": [b"1"]}),
        "column 'a': a value is a bytes, not a number",
    ),
    (
        lambda b: b.series("s", {"a": [[1.0]]}),
        "column 'a': a value is a list, not a number",
    ),
    (
        lambda b: b.series("s", {"a": [1j]}),
        "column 'a': a value is a complex, not a number",
    ),
    (lambda b: b.series("s", {"a": [{}]}), "column 'a': a value is a dict, not a number"),
    (lambda b: b.series("s", {"a": 1.0}), "series 's': 'float' object is not iterable"),
    (lambda b: b.series("s", {"a": None}), "series 's': 'NoneType' object is not iterable"),
    (lambda b: b.series("s", [1.0]), "series 's': 'list' object has no attribute 'items'"),
    (
        lambda b: b.series("s", None),
        "series 's': 'NoneType' object has no attribute 'items'",
    ),
    (lambda b: b.series("s", "text"), "series 's': 'str' object has no attribute 'items'"),
    (lambda b: b.series(None, {"a": [1]}), "a series' name=None: expected `str`"),
    (lambda b: b.series(3, {"a": [1]}), "a series' name=3: expected `str`"),
    (
        lambda b: b.series("s", {"a": [1]}, {"a": None}),
        "series 's': unit None is not known",
    ),
    (
        lambda b: b.series("s", {"a": [1]}, {"a": "ms"}),
        "series 's': unit 'ms' is not known",
    ),
    (
        lambda b: b.series("s", {"a": [1]}, {"a": ["s"]}),
        "series 's': unhashable type: 'list'",
    ),
    (
        lambda b: b.series("s", {"a": [1]}, "s"),
        "series 's': 'str' object is not a mapping",
    ),
    (lambda b: b.work(flop="many"), "work's flop is a str, not a number"),
    (lambda b: b.work(bytes=None), "work's bytes is a NoneType, not a number"),
    (
        lambda b: b.work(flop=-1.0),
        "work of flop=-1, bytes=0: both must be finite and not below 0",
    ),
    (lambda b: b.work(flop=math.nan), "work of flop=nan, bytes=0"),
    (lambda b: b.work(bytes=math.inf), "work of flop=0, bytes=inf"),
    (lambda b: b.work(flop=True), "work's flop is a bool, not a number"),
    (lambda b: b.work(flop=1.0, of=None), "work's of=None: expected `str`"),
    (
        lambda b: b.work(flop=1.0, of="rate"),
        "work is declared of 'rate', which measure did not return",
    ),
    (lambda b: b.time(None), "TypeError: "),
    (lambda b: b.time(lambda: 1 / 0), "ZeroDivisionError: division by zero"),
    (lambda b: b.time(lambda: None, budget="long"), "TypeError: "),
    (lambda b: b.time_alternately(None), "Error: "),
    (lambda b: b.once("x", lambda: object()), "TypeError: "),
    (lambda b: b.data("no_such_set"), ""),
    (lambda b: b.data(None), ""),
    (lambda b: b.import_module("no_such_module"), ""),
    (lambda b: b.import_module(3), "AttributeError: "),
    (lambda b: b.ranks(None, 0), "0 ranks cannot be started"),
    (lambda b: b.ranks(None, "two"), "TypeError: "),
    (
        lambda b: b.no_such_service(),
        "AttributeError: 'Bench' object has no attribute 'no_such_service'",
    ),
    (lambda b: [][1], "IndexError: list index out of range"),
    (lambda b: {}["x"], "KeyError: 'x'"),
    (lambda b: int("x" * 9999), "ValueError: invalid literal for int()"),
    (
        lambda b: (_ for _ in ()).throw(Broken()),
        "Broken: (its text cannot be shown: ValueError)",
    ),
    (lambda b: (_ for _ in ()).throw(Exception(HALF)), "Exception: \\ud800"),
    (
        lambda b: (_ for _ in ()).throw(Exception("\x1b[2J\n\0")),
        "Exception: \\x1b[2J \\x00",
    ),
    (lambda b: (_ for _ in ()).throw(StopIteration), "RuntimeError: "),
    (lambda b: (_ for _ in ()).throw(MemoryError), "MemoryError"),
    (lambda b: (_ for _ in ()).throw(RecursionError), "RecursionError"),
    (
        lambda b: (_ for _ in ()).throw(ExceptionGroup("two", [ValueError(1)])),
        "ExceptionGroup: two (1 sub-exception)",
    ),
    # what a plugin puts beside the methods
    (lambda b: b.collected.warnings.append(5), "its result cannot be stored: "),
    (lambda b: b.collected.checks.append(None), "its result cannot be stored: "),
    (lambda b: b.collected.warnings.append(HALF), "its result cannot be stored: "),
    (lambda b: b.collected.series.update(s=5), "its result cannot be stored: "),
    (lambda b: b.collected.data.update(s={"n": None}), "its result cannot be stored: "),
    (lambda b: b.collected.data.update(s={"n": object()}), "its result cannot be stored: "),
    (lambda b: setattr(b.collected, "warnings", None), "Error: "),
    (lambda b: setattr(b.collected, "checks", {1, 2}), "its result cannot be stored: "),
    (lambda b: setattr(b.collected, "series", []), "its result cannot be stored: "),
    (lambda b: b.series("s", {HALF: [1]}), "its result cannot be stored: "),
    (lambda b: b.series("s", {"a": [HALF]}), "its result cannot be stored: "),
    (lambda b: b.warn(HALF), "warn's text cannot be stored: "),
    (lambda b: b.check(True, HALF), "check's message cannot be stored: "),
]
NUMBERS = [
    *(
        0,
        0.0,
        1,
        10**15,
        1e-300,
        numpy.float32(1),
        numpy.int64(1),
        numpy.array(1.0),
        decimal.Decimal("1.5"),
    ),
    *(
        fractions.Fraction(1, 3),
        Samples([1, 2], "s"),
        Samples.of(numpy.array([1.0, 2.0]), "s"),
    ),  # type: ignore
    *(Samples.of([1.0], "s", loss=math.nan, steps=3, how="µ"), None),
]
#: What may look wrong and is a result.
FINE: list[Callable[[Bench], object]] = [
    *(lambda b, value=value: {**GOOD, "time": value} for value in NUMBERS),
    lambda b: {**GOOD, "ratio": 1},
    lambda b: types.MappingProxyType(GOOD),
    lambda b: b.series("s", {}),
    lambda b: b.series("s", {"a": []}),
    lambda b: b.series(
        "s",
        {"a": (1, 2), "b": numpy.arange(2), "c": ["x", "y"], "d": [True, False]},
        {"a": "s"},
    ),
    lambda b: b.series("s", {"loss": [1.0, math.nan, math.inf, -math.inf]}),
    lambda b: b.series(
        "s", {"loss": [numpy.float32("nan")], "layer": ["a"]}, {"loss": "1"}
    ),
    lambda b: b.progress("x", math.nan),
    lambda b: b.progress("x", 50),
    lambda b: b.progress("x", -1),
    lambda b: b.progress("x\x1b[2J\n", 1),
    lambda b: b.progress("", numpy.float64(0.5)),
    lambda b: b.warn(""),
    lambda b: b.warn("x" * 100_000),
    lambda b: b.check(1, "one"),
    lambda b: b.check(numpy.bool_(True), "true"),
    lambda b: b.work(flop=numpy.int64(10), bytes=0),
    lambda b: b.work(flop=10, dtype=object()),
]


def measured(act: Callable[[Bench], object], node: Node) -> Record:
    """The Record as `measure_point`'s child sends it, in this process: a fork for each way would
    take seconds."""
    sent: list[bytes] = []
    benchmark = Benchmark("toy", lambda bench: act(bench), METRICS)
    context = Context(node)
    record = point.unmeasured("toy", "1", {}, context)
    point._measure_here(
        benchmark, {}, context, record, sent.append, time.monotonic() + 60, None
    )  # type: ignore[arg-type]
    for message in sent[:-1]:
        assert isinstance(point._DECODER.decode(message), tuple)
    return decode(sent[-1])


def test_whatever_measure_returns_or_does_wrongly_is_a_failed_record_with_its_reason(
    node: Node,
) -> None:
    ways = [(lambda bench, value=value: value, reason) for value, reason in RETURNED]
    ways += [(lambda bench, act=act: (act(bench), GOOD)[1], reason) for act, reason in DONE]
    wrong = []
    for number, (act, reason) in enumerate(ways):
        record = measured(act, node)
        expected = ("failed" if reason else "skipped", True, {})
        if (
            record.status,
            reason in record.reason,
            record.metrics,
        ) != expected or not record.reason.isprintable():
            wrong.append((number, reason, record.status, record.reason))
    assert wrong == []
    print(
        f"{len(ways)} wrong results: {len(ways)} Records with the reason; {len(FINE)} odd ones that"
        " are results"
    )


def test_what_looks_odd_and_is_a_result_is_stored(node: Node) -> None:
    for act in FINE:
        record = measured(lambda bench, act=act: act(bench) or GOOD, node)
        assert (record.status, record.reason) == ("ok", ""), (
            inspect.getsource(act),
            record.reason,
        )
        assert decode(encode(record)) == record


def test_a_diverged_loss_is_stored_as_what_it_is(node: Node) -> None:
    def diverges(bench: Bench) -> dict[str, Any]:
        bench.series(
            "epochs", {"epoch": [1, 2, 3], "loss": [2.5, math.inf, math.nan]}, {"loss": "1"}
        )
        return {**GOOD, "time": Samples.of([1.0], "s", loss=math.nan, peak=math.inf)}

    record = measure_point(
        Benchmark("toy", diverges, METRICS), {}, Context(node, watch=False)
    )
    assert record.status == "ok", record.reason
    series = record.series["epochs"]
    assert series.columns == {"epoch": [1.0, 2.0, 3.0], "loss": [2.5, None, None]}
    assert [math.isnan(value) for value in series.numbers("loss")] == [False, True, True]
    assert record.metrics["time"].info == {"loss": "nan", "peak": "inf"}


def sends_garbage(bench: Bench) -> dict[str, Any]:
    send = inspect.getclosurevars(bench._report).nonlocals["send"]
    send(b"[1,2]")
    os._exit(0)


def asks_and_exits(node: Node, params: object) -> str:
    os._exit(4)


def asks_and_hangs(node: Node, params: object) -> str:
    time.sleep(60)
    return ""


def prints_a_stack(bench: Bench) -> None:
    print(
        'Current thread 0x1 (most recent call first):\n  File "a\x1b[2J.py", line 1 in f\x1b',
        flush=True,
    )
    os.abort()


@pytest.mark.parametrize(
    ("requires", "measure", "reason"),
    [
        (Requires(), sends_garbage, "it sent what cannot be read: "),
        (
            Requires(also=(asks_and_exits,)),
            sends_garbage,
            "ended with exit status 4 before it reported",
        ),
        (
            Requires(also=(asks_and_hangs,)),
            sends_garbage,
            "timed out after 3 s in asks_and_hangs (test_wrong_results",
        ),
        (
            Requires(),
            lambda bench: sys.exit(0),
            "ended with exit status 0 before it reported",
        ),
        (
            Requires(),
            prints_a_stack,
            "died of SIGABRT (aborted) in prints_a_stack (test_wrong_results.py:",
        ),
    ],
)
def test_the_process_that_asked_gets_a_record(
    requires: Requires, measure: Callable[..., Any], reason: str, node: Node
) -> None:
    timeout = 3 if reason.startswith("timed out after 3 s") else PATIENCE
    benchmark = Benchmark("toy", measure, METRICS, requires=requires, timeout=timeout)
    record = measure_point(benchmark, {}, Context(node, watch=False))
    assert (record.status, record.reason[: len(reason)], record.reason.isprintable()) == (
        "failed",
        reason,
        True,
    )


def nested(bench: Bench) -> dict[str, Any]:
    sizes = {"a": 3}
    return {"time": bench.time(lambda: sizes["a"] + sizes["b"]), "ratio": 1}


def test_an_error_names_the_line_and_the_expression_and_the_record_has_the_traceback(
    node: Node,
) -> None:
    record = measure_point(
        Benchmark("toy", nested, METRICS), {}, Context(node, watch=False)
    )
    line = nested.__code__.co_firstlineno + 2
    assert record.reason == f"KeyError: 'b' (test_wrong_results.py:{line}: sizes[\"b\"])"
    assert f'test_wrong_results.py", line {line}, in nested' in record.output
    assert record.output.startswith("Traceback (most recent call last):")
    assert record.output.endswith("KeyError: 'b'")


H200 = Gpu(name="NVIDIA H200", memory=141e9)  # float32: 67 TFLOP/s; 4.8 TB/s


@pytest.mark.parametrize(
    ("work", "warning"),
    [
        ({"flop": 70e12}, ""),
        ({"flop": 140e12}, "time: the work is 2.09 times what H200 SXM can do: work or"),
        ({"flop": 140e12, "dtype": "bfloat16"}, ""),
        (
            {"bytes": 9.6e12},
            "time: the work is 2 times what H200 SXM can do: the data stay in a cache, or work or",
        ),
        ({"bytes": 4.8e12}, ""),
    ],
)
def test_a_rate_above_the_published_peak_is_warned_of(
    work: dict[str, Any], warning: str, node: Node
) -> None:
    bench = Bench(Node(**{**_fields(node), "gpus": (H200,)}), {}, gpus=1)
    bench.work(**work)
    metrics = point.to_metrics(
        Benchmark("toy", lambda bench: {}, METRICS), GOOD, bench.collected.work
    )
    assert list(impossible_rates(bench, metrics)) == (
        [f"{warning} time is wrong"] if warning else []
    )


def test_a_rate_without_declared_work_is_held_against_the_highest_peak(node: Node) -> None:
    bench = Bench(Node(**{**_fields(node), "gpus": (H200, H200)}), {}, gpus=2)
    benchmark = Benchmark("toy", lambda bench: {}, [Metric("rate", "FLOP/s", "higher")])
    for rate, count in ((3e15, 0), (9e15, 1)):
        metrics = point.to_metrics(benchmark, {"rate": rate})
        found = list(impossible_rates(bench, metrics))
        assert len(found) == count
        assert all("times the highest published peak of H200 SXM" in text for text in found)


def test_negative_values_are_possible_where_the_metric_says_so() -> None:
    signed = Metric("gain", "s", None, possible=(None, None))
    for metric, value in (
        (signed, -3.0),
        (Metric("error", "1", None), -4.0),
        (Metric("cold", "degC", None), -40.0),
    ):
        found = point.to_metrics(
            Benchmark("toy", lambda bench: {}, [metric]), {metric.name: value}
        )
        assert found[metric.name].samples == [value]


def _fields(node: Node) -> dict[str, Any]:
    return {name: getattr(node, name) for name in node.__struct_fields__}


def test_a_failure_in_a_package_names_the_package() -> None:
    found: dict[str, Any] = {}
    code = compile("def measure(bench): ...", "/somewhere/hpml_sums/__init__.py", "exec")
    exec(code, found)
    said = describe_failure(ResultError("no time"), found["measure"])
    assert said == "no time (hpml_sums/__init__.py:1)"
    # `hpml check` wraps a measure to observe it
    wrapped = functools.wraps(found["measure"])(lambda bench: {})
    assert describe_failure(ResultError("no time"), wrapped) == said
