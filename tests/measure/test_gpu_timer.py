from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hpml_plugins import clocks
from hpml_plugins.measure.gpu_timer import (
    LONGEST_SLEEP,
    STREAM_CHECKED_FOR,
    GpuTimer,
    time_on_gpu,
)
from hpml_plugins.measure.sampling import SamplingPlan, remarks


def timer(*answers: list[tuple[float, bool]]) -> GpuTimer:
    """A timer whose GPU answers with (seconds, launch hidden); the card itself is the harness's
    business."""
    made = object.__new__(GpuTimer)
    made.launch, made._batches, made._sleep = "hidden", True, 1e-4
    left = list(answers)
    made.enqueue = lambda count, wait=True: left.pop(0) if len(left) > 1 else left[0]  # type: ignore[method-assign]
    return made


def test_a_sample_whose_launch_showed_is_taken_again_behind_a_longer_sleep() -> None:
    made = timer([(9.0, False)], [(1.0, True)])
    assert list(made.take()) == [1.0]
    assert 1e-4 < made._sleep <= LONGEST_SLEEP
    assert made.launch == "hidden"


def test_samples_whose_launch_always_shows_are_given_and_said_to_be_visible() -> None:
    made = timer([(9.0, False)])
    assert list(made.take()) == [9.0]
    assert made._sleep <= LONGEST_SLEEP
    assert made.launch.startswith("visible in part")


def test_under_continuous_load_a_group_is_enqueued_while_the_one_before_runs() -> None:
    made, did = timer([(1.0, True)]), []
    made._cycles, made._ahead, groups = 1e9, [], itertools.count()
    sleep = SimpleNamespace(_sleep=lambda cycles: did.append("sleep"))
    made.torch = SimpleNamespace(cuda=sleep)

    def submit(count: int) -> list[Any]:
        did.append(f"submit {(number := next(groups))}")
        return [number] * count

    made._submit = submit  # type: ignore[method-assign]
    made._results = lambda marks: did.append(f"wait {marks[0]}") or [(1.0, True)]  # type: ignore
    load = made.load(3)
    assert [next(load) for _ in range(2)] == 2 * [[(1.0, True)]]
    assert did == ["sleep", "submit 0", "submit 1", "wait 0", "submit 2", "wait 1"]
    made._sleep = 0.0  # visible launches are timed: one group after the other
    assert next(made.load(3)) == [(1.0, True)] and len(did) == 6


def test_a_hiccup_of_the_host_is_not_taken_for_work_on_another_stream() -> None:
    made = timer([(1.0, True)])
    ended = clocks.perf_counter() + STREAM_CHECKED_FOR / 2
    looks: Callable[[], bool]
    for looks, judged in (
        (iter([True, True, False]).__next__, False),
        (lambda: clocks.perf_counter() < ended, False),  # longer than three calls take
        (lambda: True, True),
    ):
        made.leaves_work = looks  # type: ignore[method-assign]
        assert made.uses_other_streams() is judged


def test_a_step_on_other_streams_is_timed_by_the_wall_clock_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = []

    def init(made: GpuTimer, *_: object) -> None:
        made.torch = SimpleNamespace(
            cuda=SimpleNamespace(synchronize=lambda: waited.append(1))
        )

    monkeypatch.setattr(GpuTimer, "__init__", init)
    monkeypatch.setattr(GpuTimer, "first_call", lambda made: None)
    monkeypatch.setattr(GpuTimer, "uses_other_streams", lambda made: True)
    plan = SamplingPlan(budget=0.1, precision=1.0)
    samples = time_on_gpu(lambda: sum(range(1000)), plan)
    assert len(waited) >= len(samples)
    assert samples.info["launch"] == "visible"
    (warning,) = [text for text in remarks(samples, "step") if "wall clock" in text]
    assert warning.startswith(
        "step: timed by the wall clock, which includes launching and synchronising, because "
    )
    assert "other streams than the current one" in warning
    assert warning.endswith("measure again and retract this Record (hpml retract)")
