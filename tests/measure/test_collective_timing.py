"""Timing together on a GPU, without one: what is ordered, and how the ranks' answers become
samples."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hpml_plugins.measure.gpu_timer import LONGEST_SLEEP, GpuTimer
from hpml_plugins.measure.ranks.collective_timing import _COMBINE, _CollectiveGpuTimer


def timer(over: Any, others: list[float], told: list[list[float]]) -> _CollectiveGpuTimer:
    """Rank 0's timer, beside one other rank that answers so; what is told to all is put into
    `told`."""
    made = object.__new__(_CollectiveGpuTimer)
    made._combine, made.batch, made._sleep = _COMBINE[over], 8, 1e-4
    made._batches, made.launch = True, "hidden"
    made._rank = SimpleNamespace(  # type: ignore[assignment]
        share_numbers=lambda order: told.append(order) or order,
        gather_numbers=lambda own: [own, others[: len(own)]],
    )
    return made


@pytest.fixture
def own_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0's own GPU answers 2 s, launch hidden, for each sample."""
    monkeypatch.setattr(
        GpuTimer,
        "enqueue",
        lambda self, count, wait=True: [(2.0, True)] * count if wait else [],
    )


@pytest.mark.parametrize(
    ("over", "seconds"), [("mean", 3.0), ("max", 4.0)]
)  # of 2 s and 4 s
def test_a_sample_is_the_mean_over_ranks_or_the_slowest_one(
    over: str, seconds: float, own_answers: None
) -> None:
    told: list[list[float]] = []
    assert timer(over, [4.0, 1.0, 4.0, 1.0], told).enqueue(2) == [(seconds, True)] * 2
    assert told == [
        [1.0, 8.0, 1e-4, 2.0, 1.0]
    ]  # batch 8, the sleep, two samples, waited for


def test_a_launch_that_showed_on_one_rank_showed(own_answers: None) -> None:
    assert timer("mean", [4.0, 0.0], []).enqueue(1) == [(3.0, False)]


def test_a_sample_whose_launch_showed_anywhere_is_taken_again_behind_a_longer_sleep_everywhere(
    own_answers: None,
) -> None:
    told: list[list[float]] = []
    made = timer("mean", [4.0, 0.0], told)
    assert list(made.take()) == [3.0]
    sleeps = [order[2] for order in told]
    assert sleeps == sorted(set(sleeps))
    assert len(sleeps) == 5
    assert sleeps[-1] <= LONGEST_SLEEP
    assert made.launch.startswith("visible in part")


def test_what_is_not_waited_for_is_not_gathered(own_answers: None) -> None:
    made = timer("mean", [], [])
    made._rank.gather_numbers = None  # type: ignore[assignment,method-assign]
    assert made.enqueue(1, wait=False) == []


def test_others_take_batch_and_sleep_from_the_order(own_answers: None) -> None:
    made = timer("mean", [2.0, 1.0], [])
    made.carry_out([1.0, 50.0, 0.02, 1.0, 1.0])
    assert (made.batch, made._sleep) == (50, 0.02)


def test_under_continuous_load_all_ranks_enqueue_a_group_while_the_one_before_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[list[float]] = []
    made = timer("mean", [4.0, 1.0], told)
    did: list[Any] = []
    made._cycles, made._ahead = 1e9, [("another load's",)]  # type: ignore[list-item]
    made.torch = SimpleNamespace(
        cuda=SimpleNamespace(_sleep=lambda cycles: did.append("sleep"))
    )
    made._submit = lambda count: did.append("submit") or [count]  # type: ignore
    made._results = lambda marks: did.append("wait") or [(2.0, True)]  # type: ignore
    load = made.load(1)
    assert [next(load) for _ in range(2)] == 2 * [[(3.0, True)]]
    assert did == ["sleep", "submit", "submit", "wait", "submit", "wait"]
    assert told == [[2.0, 8.0, sleep, 1.0, 1.0] for sleep in (1e-4, 0.0, 0.0)]
    assert made._sleep == 1e-4
