"""Classes of physics, from fields of Records."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import a_record

from hpml_plugins.analysis.physics import (
    Physics,
    compared_metrics,
    depends_on_host,
    physics_of,
    signature,
    timing_of,
    uses_tensor_cores,
)
from hpml_plugins.analysis.variability import Variability
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.rounds import combine, retract
from hpml_plugins.model.work import DeclaredWork

Info = dict[str, str | float]
EVENTS: Info = {"timer": "cuda events", "launch": "hidden"}
#: B/s and FLOP/s (bfloat16, dense) that NVIDIA publishes of an H200.
BANDWIDTH, BFLOAT16 = 4.8e12, 989e12


def record(seconds: float = 1e-3, info: Info = EVENTS, **changes: Any) -> Record:
    metric = MetricSamples("s", "lower", [seconds, 1.001 * seconds, 1.002 * seconds], info)
    return a_record("b", **{"metrics": {"time": metric}, "gpu": "NVIDIA H200", **changes})


def with_rate(made: Record, unit: str, work: float) -> Record:
    """With a rate of the same timing, which has no declared work."""
    time = made.metrics["time"]
    rate = MetricSamples(unit, "higher", [work / each for each in time.samples], time.info)
    return replace(made, metrics={**made.metrics, "rate": rate})


def working(
    flop: float,
    nbytes: float,
    seconds: float = 1e-3,
    dtype: str = "bfloat16",
    **changes: Any,
) -> Record:
    work = {"time": DeclaredWork(flop=flop, bytes=nbytes, dtype=dtype, gpus=1)}
    return record(seconds, work=work, **changes)


MILLISECOND = 1e-3


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (working(0, 0.9 * BANDWIDTH * MILLISECOND), Physics.STREAMING),
        (with_rate(record(), "B/s", 0.9 * BANDWIDTH * MILLISECOND), Physics.STREAMING),
        (
            working(0, 0.9 * BANDWIDTH * MILLISECOND, throttled="power cap"),
            Physics.STREAMING,
        ),
        (working(0, 0.6 * BANDWIDTH * MILLISECOND), Physics.MEMORY_BOUND),
        (
            working(4 * 0.9 * BANDWIDTH * MILLISECOND, 0.9 * BANDWIDTH * MILLISECOND),
            Physics.MEMORY_BOUND,
        ),
        (working(0, 7 * BANDWIDTH * MILLISECOND), Physics.NEVER_THROTTLED),  # of a cache
        (
            working(0.7 * BFLOAT16 * MILLISECOND, 0.5 * BANDWIDTH * MILLISECOND),
            Physics.NEVER_THROTTLED,
        ),
        (working(0, 0.1 * BANDWIDTH * MILLISECOND), Physics.NEVER_THROTTLED),
        (record(), Physics.NEVER_THROTTLED),
        (record(19e-6), Physics.LATENCY),
        (with_rate(record(5e-6), "B/s", 1e6), Physics.LATENCY),
        (record(throttled="power cap"), Physics.THROTTLED),
        (working(1e9, 0, throttled="power cap"), Physics.THROTTLED),
        (working(1e9, 0, dtype="float32", throttled="power cap"), Physics.NEVER_THROTTLED),
        (record(params={"dtype": "fp32"}, throttled="power cap"), Physics.NEVER_THROTTLED),
        (record(info={**EVENTS, "regime": "sustained"}), Physics.SUSTAINED),
        (record(info={**EVENTS, "cpus": "0-7"}), Physics.HOST_LINK),
        (record(info={**EVENTS, "launch": "visible"}), Physics.HOST_CLOCK),
        (
            record(
                info={**EVENTS, "launch": "hidden; visible: the step waits for the GPU"}
            ),
            Physics.HOST_CLOCK,
        ),
        (
            record(info={"timer": "perf_counter with device synchronisation"}),
            Physics.HOST_CLOCK,
        ),
        (record(info={"timer": "perf_counter"}, node={"cpu": "a CPU"}), Physics.CPU),
        (record(info={}), Physics.DERIVED),
    ],
)
def test_the_class_follows_from_the_timer_the_regime_the_length_and_the_work(
    made: Record, expected: Physics
) -> None:
    assert {physics_of(made, name) for name in made.metrics} == {expected}


STEP: Info = {"timer": "cuda events", "launch": "visible"}


def timed(unit: str, seconds: float, info: Info = STEP) -> MetricSamples:
    return MetricSamples(unit, "lower", [seconds, 1.1 * seconds], info)


@pytest.mark.parametrize(
    ("step", "beside", "expected"),
    [
        (0.02, {}, Physics.LAUNCHED),
        (0.011, {}, Physics.HOST_CLOCK),
        (0.02, {"loading": timed("s", 0.01, {"timer": "perf_counter"})}, Physics.LAUNCHED),
        (
            0.02,
            {"loading": timed("s", 0.03, {"timer": "perf_counter"})},
            Physics.HOST_CLOCK,
        ),
        (0.02, {"shorter": timed("s", 0.001)}, Physics.HOST_CLOCK),
        (0.02, {"kernel": timed("s", 0.001, EVENTS)}, Physics.LAUNCHED),
    ],
)
def test_launches_are_hidden_behind_a_long_step_that_waits_for_nothing(
    step: float, beside: dict[str, MetricSamples], expected: Physics
) -> None:
    metrics = {
        "step": timed("s", step),
        "epoch": timed("s", 80 * step),
        "speedup": timed("1", 1.9),
        **beside,
    }
    made = record(metrics=metrics)
    found = {physics_of(made, name) for name in ("step", "epoch", "speedup")}
    assert found == {expected}


def test_a_copy_that_waits_for_the_host_is_no_step_of_the_gpu() -> None:
    assert physics_of(record(0.5, {**STEP, "cpus": "0-7"}), "time") is Physics.HOST_CLOCK


def test_two_gpus_share_the_bytes() -> None:
    gpus = [{"name": "NVIDIA H200", "uuid": f"GPU-{n}"} for n in "ab"]
    made = working(0, 0.9 * BANDWIDTH * MILLISECOND, node={"gpus": gpus})
    assert physics_of(made, "time") is Physics.MEMORY_BOUND
    unpublished = working(
        0, 0.9 * BANDWIDTH * MILLISECOND, node={"gpus": [{"name": "nobody's card"}]}
    )
    assert physics_of(unpublished, "time") is Physics.NEVER_THROTTLED


def test_the_highest_sample_of_a_timing_is_no_metric_to_compare_by() -> None:
    info: Info = {**EVENTS, "variation": 0.004}
    best = MetricSamples("FLOP/s", "higher", [3e12, 3.1e12], info, rounds=[1, 1])
    timed = MetricSamples("FLOP/s", "higher", [3e12, 2e12], EVENTS)
    made = record(metrics={"best": best, "rate": timed})
    assert physics_of(made, "best") is Physics.EXTREME
    assert compared_metrics(made) == list(Variability([made]).values(made)) == ["rate"]
    counted = MetricSamples("1", None, [4096.0] * 2, {}, rounds=[1, 1])
    assert physics_of(record(metrics={"size": counted}), "size") is Physics.COUNTED
    single = MetricSamples("s", "lower", [3.0], {**EVENTS, "variation": 0.0})
    assert physics_of(record(metrics={"step": single}), "step") is not Physics.EXTREME


def test_metrics_of_one_timing_have_one_signature_and_others_another() -> None:
    made = with_rate(record(), "FLOP/s", 1e9)
    other = MetricSamples("s", "lower", [1.0, 1.1, 1.3], EVENTS)
    made = replace(made, metrics={**made.metrics, "other": other})
    time, rate = (signature(made.metrics[name]) for name in ("time", "rate"))
    assert (
        time == pytest.approx(rate)
        and time is not None
        and signature(other) not in (time, rate)
    )
    assert [timing_of(made, name) for name in made.metrics] == ["time", "time", "other"]
    assert signature(MetricSamples("s", "lower", [1.0])) is None
    assert signature(MetricSamples("1", "lower", [0.0, 1.0])) is None


@pytest.mark.parametrize(
    ("made", "uses"),
    [
        (working(1e9, 0), True),
        (working(1e9, 0, dtype="float64"), False),
        (working(0, 1e9), False),
        (record(), True),
    ],
)
def test_what_throttling_may_have_cost_follows_from_the_precision(
    made: Record, uses: bool
) -> None:
    assert uses_tensor_cores(made, "time") == uses


def test_rounds_that_throttled_make_a_record_that_did() -> None:
    rounds = [
        record(started=1.0),
        record(started=2.0, throttled="power cap"),
        record(started=3.0, throttled="heat"),
    ]
    joined = combine(rounds)
    assert joined.throttled == "power cap; heat"
    assert combine([*rounds, retract(rounds[0], "wrong")]).throttled == ""


def test_other_programs_of_the_host_change_its_times_and_no_kernels_or_counts() -> None:
    ratio = MetricSamples("1", "higher", [0.5])
    on_gpu = record(metrics={"time": record().metrics["time"], "ratio": ratio})
    assert not depends_on_host(on_gpu, "time") and not depends_on_host(on_gpu, "ratio")
    clock = record(info={"timer": "perf_counter"})
    assert depends_on_host(clock, "time")
    on_cpu = replace(on_gpu, node={"gpus": []})
    assert depends_on_host(on_cpu, "time") and depends_on_host(on_cpu, "ratio")
    counted = record(metrics={"bytes": MetricSamples("B", "lower", [4.0])})
    assert not depends_on_host(replace(counted, node={"gpus": []}), "bytes")
