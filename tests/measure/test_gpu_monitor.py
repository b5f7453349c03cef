"""The sampler over a simulated NVML: no machine that tests has a card to throttle."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import PATIENCE, wait_for

from hpml_plugins import Bench, Benchmark, Metric, Node, Requires, clocks
from hpml_plugins.measure import Context, measure_point
from hpml_plugins.measure.gpu_monitor import (
    INTERVAL,
    MOST_ROWS,
    GpuMonitor,
    Reading,
    Telemetry,
    _Sampler,
)
from hpml_plugins.model import Gpu
from hpml_plugins.model.samples import Samples

CARD = Gpu(name="NVIDIA H200", uuid="GPU-1", memory=141e9)


class NvmlError(Exception):
    """As pynvml's: the return code of NVML is its `value`."""

    def __init__(self, value: int, text: str) -> None:
        super().__init__(text)
        self.value = value


class Nvml(types.ModuleType):
    """What the sampler asks, answered by numbers that a test sets."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_VOLATILE_ECC = 0

    def __init__(self, **answers: Any) -> None:
        super().__init__("pynvml")
        self.answers = answers
        self.energy = 0.0  # not asked yet
        self.asked = [0, 0]

    def nvmlInit(self) -> None:
        if "refused" in self.answers:
            raise RuntimeError(self.answers["refused"])

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid in self.answers.get("not_found", ()):
            raise NvmlError(6, "Not Found")
        self._unless_lost()
        return uuid

    def _unless_lost(self) -> None:
        """A file says that the card is lost: the sampler asks from a process of its own."""
        if "lost_file" in self.answers and self.answers["lost_file"].exists():
            raise NvmlError(15, "GPU is lost")

    def nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, counter: int) -> int:
        assert counter == self.NVML_VOLATILE_ECC
        if "ecc" not in self.answers:
            raise NvmlError(3, "Not Supported")
        self.asked[kind] += 1
        before, after = self.answers["ecc"][kind]
        return int(before if self.asked[kind] == 1 else after)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> float:
        self.energy = 9_000.0 if self.energy else 7_000.0
        return self.energy

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        if self.answers.get("processes", ()) is None:
            raise NvmlError(3, "Not Supported")
        return self.answers.get("processes", [])

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return types.SimpleNamespace(gpu=90, memory=40)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        self._unless_lost()
        return types.SimpleNamespace(used=2**30)

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:
        return 1980 if which == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        raise RuntimeError("not supported here")

    def nvmlDeviceGetCount(self) -> int:
        return 1 + len(self.answers.get("others", ()))

    def nvmlDeviceGetHandleByIndex(self, number: int) -> str:
        return ("GPU-1", *self.answers.get("others", ()))[number]

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetViolationStatus(self, handle: str, policy: int) -> Any:
        return types.SimpleNamespace(
            violationTime=self.answers["violations"].get(policy, 0)
        )

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[int]) -> list[Any]:
        assert fields == [186]
        value = types.SimpleNamespace(uiVal=self.answers["instant_power"])
        return [types.SimpleNamespace(nvmlReturn=0, value=value)]

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 55

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        self._unless_lost()
        return int(self.answers.get("reasons", 0))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a simulated NVML in place of the real one."""
    return lambda **answers: monkeypatch.setitem(sys.modules, "pynvml", Nvml(**answers))


def test_rows_carry_si_units_and_one_missing_answer_does_not_cost_the_others(
    nvml: Callable[..., None],
) -> None:
    nvml()
    sampler = _Sampler([CARD])
    sampler.look()
    seen = sampler.finish()
    series = seen.series["gpu0"]
    assert series.columns["sm_clock"] == [1.98e9]
    assert series.columns["utilization"] == [0.9]
    assert series.columns["temperature"] == [55.0]
    assert (
        "power" not in series.columns
    )  # this card refuses to tell, and 0 W would be a claim
    assert "power" not in series.units
    assert series.units["sm_clock"] == "Hz"
    assert seen.energy == 2.0


def test_it_watches_in_a_process_of_its_own_at_its_interval(
    nvml: Callable[..., None],
) -> None:
    nvml(reasons=0x4)
    began = time.monotonic()
    with GpuMonitor([CARD]) as monitor:
        time.sleep(0.4)
        seen = monitor.finish()
    most = (time.monotonic() - began) / INTERVAL + 3
    assert 1 <= len(seen.series["gpu0"].columns["time"]) <= most
    assert seen.energy == 2.0  # 7,000 to 9,000 mJ
    assert seen.throttled == "power cap"


def test_a_watching_process_that_dies_costs_what_it_saw_and_no_more(
    nvml: Callable[..., None],
) -> None:
    nvml()
    with GpuMonitor([CARD]) as monitor:
        monitor._process.kill()
        monitor._process.join()
        seen = monitor.finish()
    assert seen.warnings == ["no GPU telemetry: the GPU monitor died"]


def test_the_process_that_measures_has_not_opened_nvml(nvml: Callable[..., None]) -> None:
    def measure(bench: Bench) -> dict[str, float]:
        return {"opened": float(opened["times"])}

    opened = {"times": 0}
    nvml()
    simulated: Any = sys.modules["pynvml"]
    simulated.nvmlInit = lambda: opened.update(times=opened["times"] + 1)
    benchmark = Benchmark(
        "b", measure, [Metric("opened", "1", "lower")], requires=Requires(gpus=1)
    )
    node = Node(
        os="Linux", arch="x86_64", cpu="c", num_cpu=1, ram=1.0, python="3.11", gpus=(CARD,)
    )
    for _ in range(2):
        record = measure_point(benchmark, {}, Context(node))
        assert record.metrics["opened"].samples == [0.0], record.reason
        assert "gpu0" in record.series


def test_a_long_run_keeps_its_series_small(
    nvml: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml()
    now = [100.0]
    monkeypatch.setattr(clocks, "monotonic", lambda: now[0])
    sampler = _Sampler([CARD])
    for _ in range(50_000):
        now[0] += 0.05
        sampler.look()
    columns = sampler.finish().series["gpu0"].columns
    assert MOST_ROWS // 2 <= len(columns["time"]) <= MOST_ROWS
    assert columns["time"][-1] > 2400


def read_after(*times: float, card: Gpu = CARD) -> list[Reading | None]:
    """The telemetry of a card after each of these waits, s."""
    sampler, telemetry = _Sampler([card]), Telemetry(1)
    readings = [telemetry.read()]
    for seconds in times:
        time.sleep(seconds)
        sampler.measure(telemetry)
        readings.append(telemetry.read())
    return readings


def test_telemetry_tells_how_long_the_card_throttled_by_its_own_counters(
    nvml: Callable[..., None],
) -> None:
    nvml(violations={0: 3_000_000_000, 1: 500_000_000}, instant_power=650_000)
    unread, reading = read_after(0.0)
    assert unread is None
    assert reading is not None
    assert (reading.throttled, reading.clock, reading.power) == (3.5, 1.98e9, 650.0)
    assert 0 <= time.monotonic() - reading.at < PATIENCE


def test_a_card_that_does_not_count_is_asked_for_its_reasons(
    nvml: Callable[..., None],
) -> None:
    nvml(reasons=0x4)
    _, first, second = read_after(0.05, 0.1)
    assert first is not None
    assert second is not None
    assert second.throttled - first.throttled == pytest.approx(second.at - first.at)
    assert second.power == 0.0  # it does not tell
    nvml(reasons=0x1)  # idle is no throttling
    last = read_after(0.05)[-1]
    assert last is not None
    assert last.throttled == 0.0


def test_a_forked_process_reads_what_the_watching_process_writes(
    nvml: Callable[..., None],
) -> None:
    nvml(violations={0: 10**9})
    with GpuMonitor([CARD]) as monitor:
        wait_for(lambda: monitor.telemetry.read() is not None, "a reading")
        child = multiprocessing.get_context("fork").Process(
            target=lambda: os._exit(0 if monitor.telemetry.read().throttled == 1.0 else 1)  # type: ignore[union-attr]
        )
        child.start()
        child.join()
    assert child.exitcode == 0
    assert monitor.telemetry.read(1) is None  # not watched


def test_telemetry_says_when_the_energy_counter_moved_and_slow_facts_at_times(
    nvml: Callable[..., None],
) -> None:
    nvml(violations={})
    sampler, telemetry = _Sampler([CARD]), Telemetry(1)
    card = sampler._cards[0]
    found = []
    for joules in (10.0, 10.0, 12.0):
        card.energy = lambda joules=joules: joules  # type: ignore[method-assign,misc]
        sampler.measure(telemetry)
        found.append(telemetry.read())
    first, same, moved = (reading for reading in found if reading)
    assert first.energy_at == same.energy_at == first.at < same.at
    assert (moved.energy, moved.energy_at) == (12.0, moved.at)
    assert (first.utilization, first.memory_utilization, first.memory_used) == (
        0.9,
        0.4,
        2.0**30,
    )


def test_telemetry_is_read_more_often_on_demand() -> None:
    telemetry = Telemetry(1)
    usual = telemetry.interval
    with telemetry.fast():
        assert telemetry.interval < usual
    assert telemetry.interval == usual


def test_throttling_seen_once_in_a_long_run_is_not_lost_when_its_row_is(
    nvml: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml()
    now = [100.0]
    monkeypatch.setattr(clocks, "monotonic", lambda: now[0])
    sampler = _Sampler([CARD])
    for look in range(5_000):
        sys.modules["pynvml"].answers["reasons"] = 0x40 if look == 7 else 0  # type: ignore[attr-defined]
        now[0] += 0.05
        sampler.look()
    seen = sampler.finish()
    assert set(seen.series["gpu0"].columns["throttle_reasons"]) == {0.0}
    assert seen.throttled == "heat (hardware)"


def test_resting_and_chosen_clocks_are_no_throttling(nvml: Callable[..., None]) -> None:
    nvml(reasons=0x1 | 0x2)
    sampler = _Sampler([CARD])
    sampler.look()
    seen = sampler.finish()
    assert (seen.throttled, seen.warnings) == ("", [])


def test_somebody_elses_process_on_the_card_is_named(nvml: Callable[..., None]) -> None:
    nvml(processes=[types.SimpleNamespace(pid=4711, usedGpuMemory=2**30)])
    seen = _Sampler([CARD]).finish()
    assert seen.warnings == [
        "process 4711 held 1024 MiB of NVIDIA H200, 90% utilised, when the point began"
    ]
    assert seen.conditions["other_processes"] == 1.0


def test_the_number_of_other_processes_is_left_out_where_the_card_does_not_tell(
    nvml: Callable[..., None],
) -> None:
    nvml()
    assert _Sampler([CARD]).finish().conditions == {"other_processes": 0.0}
    nvml(processes=None)
    assert _Sampler([CARD]).finish().conditions == {}


def measure(bench: Bench) -> dict[str, Any]:
    time.sleep(0.3)
    return {"time": Samples((1.0, 2.0), "s")}


def measure_boost(bench: Bench) -> dict[str, Any]:
    return {"time": Samples((2.0, 2.1), "s", boost=(1.0,))}


BENCHMARK = Benchmark(
    "toy", measure, [Metric("time", "s", "lower")], requires=Requires(gpus=1)
)


def on_one_card(node: Node) -> Node:
    return Node(node.os, node.arch, node.cpu, 2, 1.0, "3", (CARD,))


def test_the_record_has_series_energy_and_marks(
    nvml: Callable[..., None], node: Node
) -> None:
    nvml(reasons=0x20)
    record = measure_point(BENCHMARK, {}, Context(on_one_card(node)))
    assert record.status == "ok", record.reason
    assert len(record.series["gpu0"].columns["time"]) >= 4
    assert record.energy == 2.0
    assert record.warnings == [
        "the GPU held its clocks down while this was measured: heat (software)"
    ]


def measure_long(bench: Bench) -> dict[str, Any]:
    """A step within which the regulator acts has no boost."""
    return {"time": Samples((2.0, 2.1), "s", {"regime": "sustained"})}


@pytest.mark.parametrize(("measure", "boost"), [(measure_boost, [1.0]), (measure_long, [])])
def test_a_point_that_was_measured_at_settled_clocks_is_not_warned_of_throttling(
    nvml: Callable[..., None], node: Node, measure: Any, boost: list[float]
) -> None:
    nvml(reasons=0x4)
    benchmark = replace(BENCHMARK, measure=measure)
    record = measure_point(benchmark, {}, Context(on_one_card(node)))
    assert (record.metrics["time"].samples, record.metrics["time"].boost) == (
        [2.0, 2.1],
        boost,
    )
    assert record.warnings == []


def test_the_record_tells_what_the_machine_did_beside_the_point(
    nvml: Callable[..., None], node: Node
) -> None:
    nvml(others=("GPU-2", "GPU-3"))
    conditions = measure_point(BENCHMARK, {}, Context(on_one_card(node))).conditions
    assert (conditions["other_gpus"], conditions["other_gpus_utilization"]) == (2.0, 0.9)
    assert "other_gpus_power" not in conditions  # these cards do not tell
    assert conditions["cores"] == 2.0
    nvml()
    assert (
        "other_gpus"
        not in measure_point(BENCHMARK, {}, Context(on_one_card(node))).conditions
    )


def test_a_refusing_nvml_costs_only_the_watching_and_is_said(
    nvml: Callable[..., None], node: Node
) -> None:
    nvml(refused="Insufficient Permissions")
    record = measure_point(BENCHMARK, {}, Context(on_one_card(node)))
    assert record.status == "ok"
    assert record.warnings == [
        "measured without monitoring the GPU: Insufficient Permissions"
    ]
    assert record.series == {}


def test_no_watching_where_it_is_not_wanted(nvml: Callable[..., None], node: Node) -> None:
    nvml(refused="would be said")
    assert (
        measure_point(BENCHMARK, {}, Context(on_one_card(node), watch=False)).warnings == []
    )


LOST = "GPU 0 (NVIDIA H200) is lost: NVML says 'GPU is lost'; "


def losing(file: Path, *, then: str) -> Benchmark:
    """A benchmark that has the card lost while it runs, and then hangs, raises what CUDA would, or
    returns a number."""

    def measure(bench: Bench) -> dict[str, Any]:
        file.touch()
        if then == "hangs":
            time.sleep(900)
        if then == "raises":
            raise RuntimeError("CUDA error: unspecified launch failure")
        time.sleep(4 * INTERVAL)
        return {"time": 1.0}

    return Benchmark(
        "toy", measure, [Metric("time", "s", "lower")], requires=Requires(gpus=1)
    )


@pytest.mark.parametrize("then", ["hangs", "raises", "returns"])
def test_a_card_lost_in_mid_run_ends_the_point_with_that_reason_and_the_next_ones_too(
    then: str, nvml: Callable[..., None], node: Node, tmp_path: Path
) -> None:
    nvml(lost_file=tmp_path / "lost")
    context = Context(on_one_card(node))
    assert measure_point(BENCHMARK, {}, context).status == "ok"
    first = measure_point(losing(tmp_path / "lost", then=then), {}, context, timeout=600)
    assert (first.status, first.metrics) == ("failed", {})
    assert first.reason.startswith(LOST)
    assert first.duration < PATIENCE
    for _ in range(2):  # nothing is measured on a card that is not there
        later = measure_point(BENCHMARK, {}, context)
        assert (later.status, later.metrics) == ("failed", {})
        assert later.reason.startswith(LOST)
    (tmp_path / "lost").unlink()
    assert measure_point(BENCHMARK, {}, context).status == "ok"


def test_a_card_that_has_left_the_node_since_it_was_asked_is_lost_and_one_without_a_name_is_not(
    nvml: Callable[..., None],
) -> None:
    nvml(not_found=("GPU-1", ""))
    assert (
        "is lost: NVML says 'Not Found, though it was there" in _Sampler([CARD]).seen.fault
    )
    nameless = _Sampler([Gpu(name="NVIDIA H200")])
    assert nameless.seen.fault == ""
    assert nameless.seen.warnings == ["measured without monitoring the GPU: Not Found"]


def test_errors_that_ecc_could_not_correct_fail_the_point(
    nvml: Callable[..., None], node: Node
) -> None:
    nvml(ecc=[(5, 5), (1, 3)])  # 3 − 1 = 2 while the point was measured
    record = measure_point(BENCHMARK, {}, Context(on_one_card(node)))
    assert (record.status, record.metrics) == ("failed", {})
    assert record.reason.startswith(
        "GPU 0 (NVIDIA H200) had 2 memory errors that ECC could not correct"
    )


def test_corrected_errors_are_a_warning_and_those_of_before_are_nobodys(
    nvml: Callable[..., None], node: Node
) -> None:
    nvml(ecc=[(5, 12), (3, 3)])  # 12 − 5 = 7
    record = measure_point(BENCHMARK, {}, Context(on_one_card(node)))
    assert record.status == "ok"
    assert record.warnings == [
        "GPU 0 (NVIDIA H200) corrected 7 memory errors while this was measured"
    ]


def test_a_process_that_came_onto_the_card_meanwhile_is_named(
    nvml: Callable[..., None],
) -> None:
    nvml()
    sampler = _Sampler([CARD])
    simulated: Any = sys.modules["pynvml"]
    simulated.answers["processes"] = [types.SimpleNamespace(pid=4712, usedGpuMemory=2**30)]
    seen = sampler.finish()
    assert seen.warnings == [
        "process 4712 held 1024 MiB of NVIDIA H200, 90% utilised, when the point ended"
    ]
    assert seen.conditions["other_processes"] == 1.0
