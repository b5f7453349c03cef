from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hpml_plugins import clocks
from hpml_plugins.measure.gpu_timer import (
    LOADS,
    LONGEST_SLEEP,
    STREAM_CHECKED_FOR,
    GpuTimer,
    time_on_gpu,
)
from hpml_plugins.measure.regimes import Regulator
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


def loaded(*answers: bool) -> tuple[GpuTimer, list[str]]:
    """A timer whose groups have hidden launches or not, and what it does."""
    made, did = timer([(1.0, True)]), []
    made._cycles, made._ahead = 1e9, []
    made.torch = SimpleNamespace(cuda=SimpleNamespace(_sleep=lambda _: did.append("sleep")))
    numbers, hidden = itertools.count(), iter([*answers, *[True] * 99])

    def submit(count: int) -> list[Any]:
        did.append(f"submit {(number := next(numbers))}")
        return [number] * count

    def results(marks: list[Any]) -> list[tuple[float, bool]]:
        did.append(f"wait {marks[0]}")
        return [(1.0, next(hidden))]

    made._submit, made._results = submit, results  # type: ignore[assignment]
    return made, did


def test_under_continuous_load_a_group_is_enqueued_while_the_one_before_runs() -> None:
    made, did = loaded()
    load = made.load(3)
    assert [next(load) for _ in range(2)] == 2 * [[(1.0, True)]]
    assert did == ["sleep", "submit 0", "submit 1", "wait 0", "submit 2", "wait 1"]
    assert made.continuous
    next(made.load(3))  # what the first has left is not its own
    assert did[6:] == ["sleep", "submit 3", "submit 4", "wait 3"]


def test_a_load_whose_launches_show_begins_again_and_in_the_end_rests() -> None:
    made, did = loaded(True, False)
    load = made.load(1)
    assert [next(load) for _ in range(2)] == 2 * [[(1.0, True)]]
    assert did.count("sleep") == 2 and made.continuous
    made, did = loaded(*[False] * LOADS)
    assert next(made.load(1)) == [(1.0, True)]
    assert did.count("sleep") == LOADS and not made.continuous


def test_visible_launches_are_timed_one_group_after_the_other() -> None:
    made, did = loaded()
    made._sleep = 0.0
    assert next(made.load(3)) == [(1.0, True)]
    assert not did and not made.continuous


class Event:
    """An event of a GPU that runs each sample in 1.5 ms, behind the sleep."""

    def __init__(self, enable_timing: bool) -> None:
        pass

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        return 1.5  # ms


@pytest.mark.parametrize(("launching", "said"), [(0.002, True), (0.0, False)])
def test_a_step_that_takes_longer_to_launch_than_to_run_is_warned_of(
    launching: float, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimpleNamespace(Event=Event, _sleep=lambda _: None, synchronize=lambda: None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    made = GpuTimer(lambda: time.sleep(launching), "hot", "hidden", Regulator(None))
    made.first_call()
    samples = made.measure(SamplingPlan(budget=0.1, warm_up=0.1))
    assert samples.info["launch"] == "hidden"
    assert samples.value == pytest.approx(1.5e-3)
    if said:
        (text,) = remarks(samples, "step")
        assert text.startswith("step: the CPU takes 0.002")
        assert "to launch a call that the GPU runs in 0.0015 s" in text
        settled = samples.note(regime="sustained", stopped="settled")
        assert len(remarks(settled, "step")) == 1
    else:
        assert not remarks(samples, "step")


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
