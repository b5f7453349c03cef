from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support import PATIENCE

from hpml_plugins import Bench, Benchmark, Metric, Node, Record, Requires, Samples
from hpml_plugins.errors import DefinitionError, Failure
from hpml_plugins.measure import Context, measure_point
from hpml_plugins.model.serialization import decode, encode

TIME = Metric("time", "s", "lower")


def point(
    measure: Callable[..., Any], node: Node, timeout: float = PATIENCE, **requires: Any
) -> Record:
    benchmark = Benchmark(
        "toy", measure, [TIME], requires=Requires(**requires), timeout=timeout
    )
    return measure_point(benchmark, {}, Context(node))


def ok(bench: Bench) -> dict[str, Any]:
    bench.check(1 + 1 == 2, "sum differs")
    bench.warn("take care")
    bench.series("loss", {"epoch": [1, 2], "loss": [0.5, 0.25]}, {"loss": "1"})
    bench.series("layers", {"layer": ["features.0", "fc"], "parameters": [10, 20]})
    return {"time": Samples.of([1.0, 2.0, 3.0], "s", timer="none")}


def draws(bench: Bench) -> dict[str, Any]:
    drawn = bench.once("drawn", lambda: {"number": time.perf_counter_ns(), "text": "µ"})
    assert drawn["text"] == "µ"
    return {"time": float(drawn["number"])}


def test_the_rounds_of_a_point_share_what_is_computed_once(
    node: Node, tmp_path: Path
) -> None:
    def drawn(size: int, **context: Any) -> float:
        benchmark = Benchmark(
            "toy", lambda bench, size: draws(bench), [TIME], grid={"size": [1, 2]}
        )
        record = measure_point(benchmark, {"size": size}, Context(node, **context))
        assert record.status == "ok", record.reason
        return record.metrics["time"].value

    shared = {"scratch": tmp_path, "rounds": 3}
    assert drawn(1, **shared) == drawn(1, **shared)
    assert drawn(2, **shared) != drawn(1, **shared)
    assert drawn(1, scratch=tmp_path, rounds=1) != drawn(
        1, **shared
    )  # one round shares nothing
    assert drawn(1) != drawn(1)


def test_a_point_gives_a_record_with_samples_checks_series_and_facts(node: Node) -> None:
    record = point(ok, node)
    assert record.status == "ok"
    assert record.metrics["time"].samples == [1.0, 2.0, 3.0]
    assert (record.metrics["time"].unit, record.metrics["time"].direction) == ("s", "lower")
    assert (record.checks, record.warnings) == (["sum differs"], ["take care"])
    assert record.series["loss"].columns == {"epoch": [1.0, 2.0], "loss": [0.5, 0.25]}
    assert record.series["layers"].columns == {
        "layer": ["features.0", "fc"],
        "parameters": [10.0, 20.0],
    }
    assert record.node["cpu"] == "Test CPU"
    assert "hpml-plugins" in record.packages
    assert 0 < record.duration < PATIENCE
    assert abs(record.started - time.time()) < PATIENCE


def test_a_column_is_all_text_or_all_numbers(node: Node) -> None:
    with pytest.raises(
        DefinitionError, match="series 'mixed': column 'layer' mixes text and numbers"
    ):
        Bench(node, {}).series("mixed", {"layer": ["conv", 1.0]})


def line_of(function: Callable[..., Any], number: int = 1) -> str:
    """`file:line` of the function's line of this number, the one with `def` being 0."""
    return f"{Path(__file__).name}:{function.__code__.co_firstlineno + number}"


def raises(bench: Bench) -> None:
    raise ValueError("no\nsuch thing")


def segfaults(bench: Bench) -> None:
    ctypes.string_at(0)


def exits(bench: Bench) -> None:
    os._exit(3)


def exits_politely(bench: Bench) -> None:
    sys.exit("enough")


def exits_without_a_word(bench: Bench) -> None:
    sys.exit()


def kills_itself(bench: Bench) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def is_wrong(bench: Bench) -> None:
    bench.check(False, "sum differs from NumPy")


def swallows_a_failed_check(bench: Bench) -> dict[str, Any]:
    with contextlib.suppress(Exception):
        bench.check(False, "sum differs from NumPy")
    return {"time": 1.0}


def checks_in_a_thread(bench: Bench) -> dict[str, Any]:
    checking = threading.Thread(target=is_wrong, args=[bench])
    checking.start()
    checking.join()
    return {"time": 1.0}


def is_not_finite(bench: Bench) -> dict[str, Any]:
    return {"time": float("nan")}


def returns_nothing(bench: Bench) -> None:
    return None


def returns_another_metric(bench: Bench) -> dict[str, Any]:
    return {"tiem": 1.0}


def leaves_one_out(bench: Bench) -> dict[str, Any]:
    return {}


def returns_text(bench: Bench) -> dict[str, Any]:
    return {"time": "fast"}


def returns_bytes(bench: Bench) -> dict[str, Any]:
    return {"time": Samples.of([1.0], "B")}


@pytest.mark.parametrize(
    ("measure", "kind", "reason"),
    [
        (
            raises,
            Failure.ERROR,
            f'ValueError: no such thing ({line_of(raises)}: raise ValueError("no\\nsuch thing"))',
        ),
        (exits, Failure.EXIT, "ended with exit status 3 before it reported"),
        (
            exits_without_a_word,
            Failure.EXIT,
            "ended with exit status 0 before it reported",
        ),
        (
            exits_politely,
            Failure.ERROR,
            f'exited: enough ({line_of(exits_politely)}: sys.exit("enough"))',
        ),
        (
            kills_itself,
            Failure.SIGNAL,
            "died of SIGKILL (killed, perhaps for want of memory)",
        ),
        (is_wrong, Failure.CHECK, "check failed: sum differs from NumPy"),
        (swallows_a_failed_check, Failure.CHECK, "check failed: sum differs from NumPy"),
        (checks_in_a_thread, Failure.CHECK, "check failed: sum differs from NumPy"),
        (is_not_finite, Failure.RESULT, "metric 'time' is not finite: nan"),
        (
            returns_nothing,
            Failure.RESULT,
            "measure returned NoneType, not a mapping of metric names to samples",
        ),
        (
            returns_another_metric,
            Failure.RESULT,
            "measure returned tiem, which is not a metric of 'toy'; did you mean 'time'?",
        ),
        (leaves_one_out, Failure.RESULT, "measure returned no value for time"),
        (returns_text, Failure.RESULT, "metric 'time' is a str, not Samples or a number"),
        (
            returns_bytes,
            Failure.RESULT,
            "metric 'time' was measured in B instead of s",
        ),
    ],
)
def test_whatever_a_benchmark_does_ends_in_a_failed_record_with_its_reason(
    measure: Callable[..., Any], kind: Failure, reason: str, node: Node
) -> None:
    record = point(measure, node)
    if kind is Failure.RESULT:  # no line raised it: that of `measure` is named
        reason += f" (test_point.py:{measure.__code__.co_firstlineno})"
    assert (record.status, record.failure, record.reason) == ("failed", kind, reason)
    assert record.metrics == {}
    before_there_were_kinds = encode(msgspec.structs.replace(record, failure=Failure.NONE))
    assert decode(before_there_were_kinds).failure is kind


WORK_METRICS = [
    TIME,
    Metric("rate", "FLOP/s", "higher"),
    Metric("bandwidth", "B/s", "higher"),
    Metric("copied", "B/s", "higher"),
    Metric("energy", "J", "lower"),
]


def declares_work(bench: Bench, *, of: str) -> dict[str, Any]:
    bench.work(flop=6.0, bytes=12.0, dtype="torch.float16", of=of)
    return {"time": Samples.of([2.0, 3.0], "s"), "copied": 1.0, "energy": None}


def test_rates_follow_from_the_declared_work_and_what_is_not_known_is_left_out(
    node: Node,
) -> None:
    benchmark = Benchmark("toy", declares_work, WORK_METRICS, grid={"of": ["time", "rate"]})
    record = measure_point(benchmark, {"of": "time"}, Context(node))
    assert record.status == "ok", record.reason
    assert {name: found.samples for name, found in record.metrics.items()} == {
        "time": [2.0, 3.0],
        "rate": [3.0, 2.0],
        "bandwidth": [6.0, 4.0],
        "copied": [1.0],
    }
    assert (
        record.work["time"].dtype,
        record.work["time"].intensity,
        record.work["time"].gpus,
    ) == (
        "float16",
        0.5,
        0,
    )
    failed = measure_point(benchmark, {"of": "rate"}, Context(node))
    assert failed.reason.startswith(
        "work is declared of 'rate', which measure did not return"
    )


def test_a_point_of_which_nothing_is_known_is_no_result(node: Node) -> None:
    record = point(lambda bench: {"time": None}, node)
    assert record.reason.startswith("measure returned None for every metric")


def hangs(bench: Bench) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def test_a_benchmark_that_outlives_its_timeout_is_ended_even_if_it_ignores_sigterm(
    node: Node,
) -> None:
    started = time.monotonic()
    record = point(hangs, node, timeout=3)
    assert (record.status, record.reason) == (
        "failed",
        f"timed out after 3 s in hangs ({line_of(hangs, 2)})",
    )
    assert f"in {hangs.__name__}\n" in record.output  # with the whole stack
    assert time.monotonic() - started < PATIENCE


def leaves_a_process(bench: Bench) -> dict[str, Any]:
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    return {"time": 1.0}


def test_processes_left_behind_are_ended_and_said(node: Node) -> None:
    record = point(leaves_a_process, node)
    assert record.status == "ok"
    assert record.warnings == ["the benchmark left processes behind; they were ended"]


def test_a_crash_is_named_with_its_line(node: Node) -> None:
    record = point(segfaults, node)
    reason = record.reason
    assert record.failure is Failure.SIGNAL
    assert reason.startswith(
        "died of SIGSEGV (segmentation fault) in string_at (__init__.py:"
    )
    assert reason.endswith(f" of segfaults ({line_of(segfaults)})")


def prints(bench: Bench) -> None:
    print("from Python")
    os.write(2, b"from C\n")
    raise RuntimeError("over")


def test_what_a_failed_benchmark_printed_is_in_its_record(node: Node) -> None:
    output = point(prints, node).output
    assert "from Python" in output
    assert "from C" in output
    assert "RuntimeError: over" in output


def crashes_after_heavy_imports(bench: Bench) -> dict[str, Any]:
    import matplotlib.ft2font
    import numpy.random
    import torch  # together they have extension modules for several kilobytes

    assert matplotlib and numpy and torch
    os.kill(os.getpid(), signal.SIGSEGV)
    return {"time": 1.0}


def test_the_stack_of_a_crash_is_in_its_record(node: Node) -> None:
    record = point(crashes_after_heavy_imports, node)
    crashed = f"crashes_after_heavy_imports ({line_of(crashes_after_heavy_imports, 6)})"
    assert record.reason == f"died of SIGSEGV (segmentation fault) in {crashed}"
    assert "in crashes_after_heavy_imports" in record.output
    assert "Extension modules" not in record.output


def spoils_its_process(bench: Bench) -> dict[str, Any]:
    os.chdir("/")
    os.environ["SPOILT"] = "yes"
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    sys.modules["json"] = None  # type: ignore[assignment]
    return {"time": 1.0}


def test_a_benchmark_cannot_spoil_the_process_that_asked(node: Node) -> None:
    before = Path.cwd()
    assert point(spoils_its_process, node).status == "ok"
    assert (Path.cwd(), "SPOILT" in os.environ, sys.modules["json"] is not None) == (
        before,
        False,
        True,
    )


def skips(bench: Bench) -> None:
    bench.skip("no such data set here")


def test_a_skip_is_recorded_with_its_reason(node: Node) -> None:
    record = point(skips, node)
    assert (record.status, record.reason) == ("skipped", "no such data set here")


@pytest.mark.parametrize(
    ("requires", "reason"),
    [
        ({"gpus": 1}, "needs 1 GPU, this node has no GPU"),
        (
            {"modules": ("no_such_module",)},
            "needs module no_such_module (pip install no_such_module)",
        ),
        ({"tools": ("no-such-tool",)}, "needs program no-such-tool on the PATH"),
    ],
)
def test_an_unmet_requirement_skips_without_running_anything(
    requires: Any, reason: str, node: Node
) -> None:
    record = point(kills_itself, node, **requires)
    assert (record.status, record.reason) == ("skipped", reason)


def scaled(bench: Bench, *, ranks: int) -> dict[str, Any]:
    return {"time": 1.0}


def test_the_gpus_needed_may_be_a_parameter(gpu_node: Node) -> None:
    benchmark = Benchmark(
        "toy", scaled, [TIME], grid={"ranks": [1, 4]}, requires=Requires(gpus="ranks")
    )
    assert measure_point(benchmark, {"ranks": 1}, Context(gpu_node)).status == "ok"
    record = measure_point(benchmark, {"ranks": 4}, Context(gpu_node))
    assert (record.status, record.reason) == ("skipped", "needs 4 GPUs, this node has 2")


def tells_its_device(bench: Bench) -> dict[str, Any]:
    bench.check(bench.device == "cpu", f"device is {bench.device}")
    return {"time": 1.0}


def test_a_benchmark_that_may_fall_back_is_measured_on_a_cpu(node: Node) -> None:
    assert point(tells_its_device, node, gpus=1, cpu_fallback=True).status == "ok"


def test_too_little_gpu_memory_skips_with_both_figures(gpu_node: Node) -> None:
    assert point(ok, gpu_node, gpus=1, gpu_memory=200 * 2**30).reason == (
        "needs 200.0 GiB of GPU memory, the card has 131.3"
    )


def reports(bench: Bench) -> dict[str, Any]:
    bench.progress("epoch 1", 0.5)
    return {"time": 1.0}


def test_progress_reaches_the_one_who_asked(node: Node) -> None:
    said: list[tuple[str, float | None]] = []
    benchmark = Benchmark("toy", reports, [TIME])
    measure_point(
        benchmark,
        {},
        Context(node),
        progress=lambda text, share: said.append((text, share)),
    )
    assert said == [("epoch 1", 0.5)]


def times(bench: Bench) -> dict[str, Any]:
    return {"time": bench.time(lambda: time.sleep(0.002))}


def test_a_step_of_two_milliseconds_is_timed_as_such_and_says_why_it_stopped(
    node: Node,
) -> None:
    metric = point(times, node).metrics["time"]
    assert len(metric.samples) >= 10
    assert min(metric.samples) >= 0.002
    assert statistics.median(metric.samples) < 0.1
    assert metric.info["stopped"] in ("converged", "budget", "most samples")
    assert metric.info["timer"] == "perf_counter"


def waits_a_second(bench: Bench) -> dict[str, Any]:
    return {"time": bench.time(lambda: time.sleep(1.0), budget=0.5)}


@pytest.mark.slow
def test_a_step_of_a_second_gets_three_samples_past_its_budget(node: Node) -> None:
    assert len(point(waits_a_second, node).metrics["time"].samples) == 3


def compile_something(bench: Bench) -> dict[str, Any]:
    pool = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    sys.modules["torch._inductor.async_compile"] = SimpleNamespace(  # type: ignore[assignment]
        shutdown_compile_workers=lambda: (pool.kill(), pool.wait())
    )
    return {"time": Samples.of([1.0], "s")}


def test_the_processes_of_torch_s_compiler_end_with_the_point(node: Node) -> None:
    record = point(compile_something, node)
    assert (record.status, record.warnings) == ("ok", [])
