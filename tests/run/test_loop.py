"""The loop: interleaved without a limit, whole points in their order within one, the reference
first in either."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from records import a_record

from hpml_plugins import clocks
from hpml_plugins.host import Declared
from hpml_plugins.model.benchmark import REFERENCE, Metric
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.registry import PluginSource
from hpml_plugins.run import (
    Follower,
    OutOfTime,
    PastRound,
    Round,
    RoundTimes,
    Task,
    TimeLimit,
    measure_rounds,
)

RUN = "this run"


class Clock:
    """A clock that moves by what is measured alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(clocks, "monotonic", lambda: self.now)


class Attentive(Follower):
    """Keeps what it is told."""

    def __init__(self, times: RoundTimes) -> None:
        super().__init__(times)
        self.finished: list[Round] = []
        self.left_out: list[tuple[str, int]] = []

    def finish_round(self, this: Round) -> None:
        self.finished.append(this)

    def leave_out(self, task: Task, measured_rounds: int) -> None:
        self.left_out.append((task[0].benchmark, measured_rounds))


def task(name: str, rounds: int = 3) -> Task:
    metrics = [Metric("time", "s", "lower")]
    plugin = PluginSource("p", path="p.py")
    return Declared(plugin, name, "1", {}, 60.0, metrics, rounds=rounds), {}


def record(name: str, seconds: float, rounds: int, status: str = "ok") -> Record:
    metrics = {"time": MetricSamples("s", "lower", [1.0])} if status == "ok" else {}
    return a_record(
        name,
        status=status,
        metrics=metrics,
        duration=seconds,
        run=RUN,
        planned_rounds=rounds,
    )


def past(name: str, *seconds: float) -> list[PastRound]:
    """The rounds of an earlier run of this machine."""
    return [
        PastRound(name, "1", {}, "ok", float(number), each, "here", "", "before")
        for number, each in enumerate(seconds)
    ]


def measurer(
    clock: Clock, tasks: list[Task], seconds: dict[str, float], order: list[str]
) -> Callable[[int], Record]:
    def measure(number: int) -> Record:
        declared = tasks[number][0]
        order.append(declared.benchmark)
        clock.now += seconds[declared.benchmark]
        return record(declared.benchmark, seconds[declared.benchmark], declared.rounds)

    return measure


def run(
    monkeypatch: pytest.MonkeyPatch,
    seconds: dict[str, float],
    limit: float | None,
    known: list[PastRound],
) -> tuple[list[str], Attentive, list[Record | None]]:
    """The order in which rounds were measured, what was told, and the Records."""
    clock = Clock(monkeypatch)
    tasks = [task(name, rounds=1 if name == REFERENCE else 3) for name in seconds]
    follower, order = Attentive(RoundTimes(known, "here")), list[str]()
    found = measure_rounds(
        tasks,
        RUN,
        measurer(clock, tasks, seconds, order),
        follower,
        TimeLimit(limit, started=clock.now) if limit else None,
    )
    return order, follower, found


def test_without_a_limit_rounds_are_interleaved_after_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order, follower, found = run(
        monkeypatch, {"a": 1, "b": 1, REFERENCE: 1, "c": 1}, None, []
    )
    assert order[0] == REFERENCE
    passes = [order[1 + 3 * number : 4 + 3 * number] for number in range(3)]
    assert [sorted(each) for each in passes] == [["a", "b", "c"]] * 3
    assert len(follower.finished) == 10 and not follower.left_out
    assert [each.measured_rounds for each in found if each] == [3, 3, 1, 3]


def test_within_a_limit_points_are_whole_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = [
        *past("a", 10, 10),
        *past("b", 10, 10),
        *past("c", 10, 10),
        *past(REFERENCE, 5),
    ]
    order, follower, found = run(
        monkeypatch, {"a": 10, "b": 10, REFERENCE: 5, "c": 10}, 80, known
    )
    assert order == [REFERENCE, "a", "a", "a", "b", "b", "b"]
    assert follower.left_out == [("c", 0)]
    assert [each and each.is_complete for each in found] == [True, True, True, None]


def test_a_point_that_does_not_fit_makes_way_for_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = [*past("large", 100, 100), *past("small", 5, 5)]
    order, follower, _ = run(monkeypatch, {"large": 100, "small": 5}, 60, known)
    assert order == ["small"] * 3
    assert follower.left_out == [("large", 0)]


def test_an_unknown_point_that_is_too_long_says_how_many_rounds_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order, follower, (found,) = run(monkeypatch, {"new": 50}, 60, [])
    assert order == ["new"]
    assert follower.left_out == [("new", 1)]
    assert found is not None and not found.is_complete and found.measured_rounds == 1
    assert [this.number for this in follower.finished] == [0, 1, 2]


def test_a_round_that_the_limit_ended_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    tasks = [task("long"), task("next")]
    follower = Attentive(RoundTimes())

    def measure(number: int) -> Record:
        if number == 0:
            clock.now += 3
            raise OutOfTime
        return record("next", 1, 3)

    limit = TimeLimit(60.0, started=clock.now)
    found = measure_rounds(tasks, RUN, measure, follower, limit)
    assert follower.left_out == [("long", 0)]
    assert found[0] is None and found[1] is not None and found[1].is_complete
    assert len(follower.finished) == 6


def test_a_point_that_failed_has_no_further_round(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    follower = Attentive(RoundTimes())
    measured: list[int] = []

    def fail(number: int) -> Record:
        measured.append(number)
        return record("a", 1, 3, status="failed")

    found = measure_rounds([task("a")], RUN, fail, follower)
    assert measured == [0] and found[0] is not None and found[0].status == "failed"
    assert len(follower.finished) == 3


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_rounds_that_a_point_does_not_need_are_told_at_once(
    status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would count in the time left until their turn comes."""
    Clock(monkeypatch)
    tasks = [task("a"), task("b")]
    follower = Attentive(RoundTimes())
    known: list[int] = []

    def measure(number: int) -> Record:
        known.append(sum(each.benchmark == "a" for each in follower.finished))
        name = tasks[number][0].benchmark
        return record(name, 1, 3, status=status if name == "a" else "ok")

    measure_rounds(tasks, RUN, measure, follower)
    assert len(known) == 4 and known[-2:] == [3, 3]
    assert sorted(each.benchmark for each in follower.finished) == [*"aaabbb"]


def test_what_the_node_lacks_something_for_is_recorded_whatever_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    declared, params = task("two_gpus")
    tasks = [
        task("a"),
        (msgspec.structs.replace(declared, unmet={0: "needs 2 GPUs"}), params),
    ]
    follower = Attentive(RoundTimes(past("a", 10, 10), "here"))
    found = measure_rounds(
        tasks,
        RUN,
        lambda number: record(tasks[number][0].benchmark, 0.0, 3, status="skipped"),
        follower,
        TimeLimit(1.0, started=clock.now),
    )
    assert follower.left_out == [("a", 0)]
    assert found[0] is None and found[1] is not None and found[1].status == "skipped"


def test_what_an_earlier_run_measured_is_given_whatever_the_limit_and_takes_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    known = [*past("a", 10, 10), *past("b", 10, 10)]
    tasks = [task("a"), task("b")]
    follower = Attentive(RoundTimes(known, "here"))
    asked: list[int] = []

    def measure(number: int) -> Record:
        asked.append(number)
        return msgspec.structs.replace(record("b", 1, 3), run="earlier")

    limit = TimeLimit(5.0, started=clock.now)
    found = measure_rounds(tasks, RUN, measure, follower, limit, stored={1})
    assert asked == [1] and follower.left_out == [("a", 0)]
    assert found[0] is None and found[1] is not None and found[1].run == "earlier"
    assert [this.benchmark for this in follower.finished] == [*"bbb", *"aaa"]
