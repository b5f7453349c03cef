"""Rates, shares and intensity that follow from declared work."""

from __future__ import annotations

from typing import Any

import pytest
from records import a_record

from hpml_plugins import Record
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.model.work import DeclaredWork, Limit
from hpml_plugins.report.points import point_tables
from hpml_plugins.report.shares import Roof, describe_shares, share_of_peak, shares

H200 = {"gpus": [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}]}


def record(work: DeclaredWork, seconds: float, **metrics: MetricSamples) -> Record:
    time = MetricSamples("s", "lower", [seconds])
    facts: dict[str, Any] = {"node": H200, "work": {"time": work}, "params": {"n": 1}}
    return a_record(
        benchmark="b",
        plugin="p",
        version="1",
        status="ok",
        metrics={"time": time} | metrics,
        **facts,
    )


def test_the_share_is_that_of_the_nearer_limit() -> None:
    limit = Limit(100.0, 10.0)
    assert DeclaredWork(flop=50.0, bytes=1.0).share(1.0, limit) == 0.5
    assert DeclaredWork(flop=50.0, bytes=8.0).share(1.0, limit) == 0.8  # memory binds
    assert DeclaredWork(flop=50.0).share(2.0, limit) == 0.25
    assert DeclaredWork(flop=100.0, gpus=2).share(1.0, limit) == 0.5  # each does half
    assert DeclaredWork(flop=50.0).share(1.0, Limit(None, 10.0)) is None
    both = DeclaredWork(flop=50.0, bytes=8.0)  # either may be what binds
    assert both.share(1.0, Limit(None, 10.0)) is both.share(1.0, Limit(100.0, None)) is None
    assert DeclaredWork().intensity is None
    assert DeclaredWork(flop=50.0, bytes=8.0).intensity == 6.25


def test_the_roof_is_the_highest_of_steps_that_look_for_it_on_the_same_kind_of_device() -> (
    None
):
    roof = Roof(
        [
            record(DeclaredWork(flop=80.0, dtype="bfloat16", gpus=1, roof=True), 1.0),
            record(DeclaredWork(flop=90.0, dtype="bfloat16", gpus=1, roof=True), 1.0),
            record(DeclaredWork(bytes=14.0, gpus=2, roof=True), 1.0),
            record(DeclaredWork(flop=500.0, dtype="bfloat16", gpus=1), 1.0),  # no roof
            record(DeclaredWork(flop=2.0, roof=True), 1.0),
        ]
    )
    assert roof.limit(DeclaredWork(dtype="bfloat16", gpus=1)) == Limit(90.0, 7.0)
    assert roof.limit(DeclaredWork(dtype="float16", gpus=1)).flop is None
    assert roof.limit(DeclaredWork()) == Limit(2.0, None)


def test_a_record_tells_its_shares_of_peak_and_roof() -> None:
    """bf16 on an H200: 989 TFLOP/s are published."""
    work = DeclaredWork(
        flop=2 * 8192.0**3, bytes=3 * 2 * 8192.0**2, dtype="bfloat16", gpus=1
    )
    seconds = work.flop / 494.75e12
    # the bandwidth is not measured: by the published peaks it does not bind
    roof = Roof(
        [record(DeclaredWork(flop=700e12, dtype="bfloat16", gpus=1, roof=True), 1.0)]
    )
    rate = MetricSamples("FLOP/s", "higher", [494.75e12], {"work": "time"})
    copied = MetricSamples("B/s", "higher", [1e12])  # of something else
    found = record(work, seconds, rate=rate, copied=copied)
    assert shares(found, roof) == {
        "intensity": "2\u202f731 FLOP/B",
        "of published peak": "50 %",
        "of measured roof": "70.7 %",
    }
    wording = "2\u202f731 FLOP/B, 50 % of the published peak, 70.7 % of the measured roof"
    assert (
        describe_shares(found, roof, "time")
        == describe_shares(found, roof, "rate")
        == wording
    )
    assert describe_shares(found, roof, "copied") == ""
    for numbers, known in (([8.0, 4.0], True), ([8.0, 4.1], False), ([8.0], False)):
        times = MetricSamples("s", "lower", [seconds, 2 * seconds])
        tokens = MetricSamples("1/s", "higher", numbers)
        trained = record(work, seconds, time=times, tokens=tokens)
        found_share = share_of_peak(trained, "tokens", 6.0)
        assert found_share == (pytest.approx(1 / 3, rel=1e-3) if known else None)
    assert share_of_peak(found, "rate", 494.75e12) == pytest.approx(0.5, rel=1e-3)
    assert share_of_peak(found, "missing", 494.75e12) is None
    assert shares(
        record(DeclaredWork(flop=1e15, dtype="bfloat16", gpus=1, roof=True), 2.0), roof
    ) == {
        "of published peak": "50.6 %"  # and not of itself
    }
    copying = Roof([record(DeclaredWork(bytes=3e12, gpus=1, roof=True), 1.0)])
    assert "of measured roof" not in shares(found, copying)  # arithmetic binds, unmeasured
    streaming = DeclaredWork(flop=1e9, bytes=1e9, dtype="bfloat16", gpus=1)
    assert shares(record(streaming, 1e-3), copying)["of measured roof"] == "33.3 %"
    on_cpu = record(DeclaredWork(flop=1e9), 1.0)
    assert (
        shares(on_cpu, roof) == {}
    )  # a CPU has no published peak, and its roof was not measured


def test_more_than_the_memory_can_give_came_from_the_cache() -> None:
    roof = Roof([record(DeclaredWork(bytes=10.0, roof=True), 1.0)])
    for rate, text in ((10.5, "105 %"), (57.2, "fits in the cache")):
        found = record(DeclaredWork(bytes=rate), 1.0)
        assert shares(found, roof) == {"of measured roof": text}
    assert describe_shares(found, roof, "time") == "fits in the cache"
    on_gpu = record(DeclaredWork(bytes=48e12, flop=1.0, gpus=1), 1.0)  # an H200: 4.8 TB/s
    assert shares(on_gpu, Roof([]))["of published peak"] == "fits in the cache"
    fast = Roof([record(DeclaredWork(flop=10.0, roof=True), 1.0)])
    too_fast = record(DeclaredWork(flop=57.2), 1.0)  # operations do not come from a cache
    assert shares(too_fast, fast) == {"of measured roof": "572 %"}


def test_the_terminal_shows_shares_behind_the_metrics() -> None:
    work = DeclaredWork(bytes=4.8e12, gpus=1)
    with_work, without = record(work, 2.0), record(DeclaredWork(), 1.0)
    _, head, first, second = point_tables([with_work, without], 100, Roof([]))
    assert head.split() == ["time", "of", "published", "peak"]
    assert first.split()[-2:] == ["50", "%"]
    assert second.split()[-1] == "–"
