from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from records import a_record

from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.rounds import combine, join_rounds, retract, schedule
from hpml_plugins.model.samples import mean_interval
from hpml_plugins.model.serialization import decode, encode, shorten


def test_every_point_has_its_rounds_and_no_round_begins_before_the_one_before_has_ended() -> (
    None
):
    rounds = {"counted": 1, "short": 3, "other": 3, "two": 2}
    order = list(schedule(list(rounds), rounds.__getitem__, "seed"))
    assert Counter(order) == rounds
    assert set(order[:4]) == set(rounds)
    assert set(order[4:7]) == {"short", "other", "two"}


def test_the_order_is_random_but_the_same_for_the_same_seed() -> None:
    points = list(range(50))
    first = list(schedule(points, lambda point: 2, "a"))
    assert first == list(schedule(points, lambda point: 2, "a"))
    assert first != list(schedule(points, lambda point: 2, "b"))
    assert first[:50] != points
    assert first[:50] != first[50:]
    assert list(schedule([], lambda point: 3, "a")) == []


def one(samples: list[float], boost: list[float] | None = None, **changes: Any) -> Record:
    metric = MetricSamples(
        "s",
        "lower",
        samples,
        {"timer": "cuda events", "batch": len(samples)},
        boost=boost or [],
    )
    return a_record(
        **{
            "benchmark": "b",
            "plugin": "p",
            "version": "1",
            "params": {"n": 1},
            "status": "ok",
            "metrics": {"time": metric},
            "duration": 2.0,
            "energy": 10.0,
            "started": 100.0,
            "checks": ["right"],
            **changes,
        }
    )


def test_rounds_are_kept_apart_and_the_value_is_the_median_of_their_medians() -> None:
    record = combine([one([1.0, 2.0, 9.0]), one([3.0], started=105.0), one([100.0, 102.0])])
    metric = record.metrics["time"]
    assert metric.samples == [1.0, 2.0, 9.0, 3.0, 100.0, 102.0]
    assert metric.rounds == [3, 1, 2]
    assert metric.round_values == [2.0, 3.0, 101.0]
    assert record.value("time") == metric.estimate.value == 3.0
    assert (record.duration, record.energy, record.started) == (6.0, 30.0, 100.0)
    assert record.checks == ["right"]
    assert metric.info == {"timer": "cuda events", "batch": 2}  # the median of 3, 1 and 2
    assert decode(encode(record)) == record


def test_at_settled_clocks_a_round_is_worth_the_mean_of_its_samples() -> None:
    # two fast samples for each that the regulator slows down: in the long run a step takes 4/3 s
    swinging = [1.0, 1.0, 2.0] * 4
    for boost, value in ((None, 1.0), ([0.9], 4 / 3)):
        metric = combine([one(swinging, boost), one(swinging, boost)]).metrics["time"]
        assert metric.round_values == pytest.approx([value, value])
        found = metric.estimate
        assert found.value == metric.value == pytest.approx(value)
        assert found.low is not None and found.high is not None
        assert found.low <= found.value <= found.high
    steps = MetricSamples("1/s", "higher", [1 / each for each in swinging], settled=True)
    assert steps.value == pytest.approx(3 / 4)
    assert MetricSamples("1/s", "higher", [0.0, 1.0], settled=True).value == 0.5


def test_the_interval_of_a_mean_is_that_of_normal_values() -> None:
    values = [1.0, 3.0] * 50
    half = 1.959964 * statistics.stdev(values) / math.sqrt(100)
    assert mean_interval(values, 2.0) == pytest.approx((2 - half, 2 + half), rel=1e-6)
    assert mean_interval([1.0, 2.0, 6.0], 3.0) == (1.0, 6.0)


def test_conditions_are_the_worst_of_all_rounds() -> None:
    quiet, busy = (
        {"load": 0.1, "other_processes": 0.0},
        {"load": 1.5, "other_processes": 2.0, "other_gpus": 1.0},
    )
    joined = combine(
        [one([1.0], conditions=quiet), one([1.0], conditions=busy), one([1.0])]
    )
    assert joined.conditions == {"load": 1.5, "other_processes": 2.0, "other_gpus": 1.0}


def test_of_a_warning_of_several_rounds_that_of_the_worst_is_kept() -> None:
    texts = [
        f"h2d: the median is known to ±{share}%, not ±0.9%, after {n} samples"
        for share, n in ((2.7, 90), (160.1, 9))
    ]
    assert combine([one([1.0], warnings=[text]) for text in texts]).warnings == texts[1:]
    assert combine([one([1.0], noise=[text]) for text in texts]).noise == texts[1:]


def test_boost_of_the_rounds_that_have_one() -> None:
    metric = combine([one([2.0], [1.0, 1.1]), one([2.0]), one([2.2], [1.5])]).metrics[
        "time"
    ]
    assert (metric.boost, metric.boost_rounds) == ([1.0, 1.1, 1.5], [2, 1])
    assert metric.boost_median == pytest.approx((1.05 + 1.5) / 2)
    assert one([1.0]).metrics["time"].boost_median is None


@pytest.mark.parametrize(
    ("boosts", "standing", "regime", "throttled"),
    [
        ([[1.0], None, None], [2, 3], "", ""),
        ([None, [1.0], [1.0]], [2, 3], "sustained", "power cap"),
        ([None, [1.0]], [2], "sustained", "power cap"),
        ([[1.0], [1.0]], [1, 2], "sustained", "power cap"),
    ],
)
def test_rounds_in_another_regime_than_most_are_left_out_with_their_throttling(
    boosts: list[list[float] | None], standing: list[int], regime: str, throttled: str
) -> None:
    rounds = [
        one([float(number)], boost, throttled="power cap" if boost else "")
        for number, boost in enumerate(boosts, 1)
    ]
    joined = combine(rounds)
    metric = joined.metrics["time"]
    assert metric.samples == standing
    assert (metric.regime, joined.throttled) == (regime, throttled)
    assert metric.unlike_rounds == len(boosts) - len(standing)
    assert bool(joined.warnings) == (metric.unlike_rounds > 0)


@pytest.mark.parametrize("place", range(3))
def test_rounds_that_throttled_without_regimes_stand_only_where_no_round_has_regimes(
    place: int,
) -> None:
    mixed = [one([number], throttled="power cap") for number in (1.0, 2.0)]
    assert combine(mixed).metrics["time"].samples == [1.0, 2.0]
    rounds = [*mixed[:place], one([3.0], [0.5]), *mixed[place:]]
    joined = combine(rounds)
    metric = joined.metrics["time"]
    assert (metric.samples, metric.regime, metric.unlike_rounds) == ([3.0], "sustained", 2)
    assert joined.throttled == ""


def test_texts_that_differ_between_rounds_are_joined() -> None:
    slow = one([1.0])
    metric = slow.metrics["time"]
    told = {**metric.info, "cache": "cold", "only": 1.0}
    cold = replace(slow, metrics={"time": replace(metric, info=told)})
    hot = {**metric.info, "cache": "hot"}
    warm = replace(slow, metrics={"time": replace(metric, info=hot)})
    assert combine([warm, cold]).metrics["time"].info == {**told, "cache": "hot; cold"}


WALL_CLOCK = {"timer": "perf_counter with device synchronisation", "launch": "visible"}


def visible(samples: list[float]) -> Record:
    """A round whose launches could not be hidden."""
    record = one(samples)
    (metric,) = record.metrics.values()
    shown = MetricSamples(metric.unit, metric.direction, samples, WALL_CLOCK)
    return replace(record, metrics={"time": shown})


def with_regimes(samples: list[float]) -> Record:
    """Such a round at settled clocks."""
    record = visible(samples)
    info = {**WALL_CLOCK, "regime": "sustained"}
    shown = replace(record.metrics["time"], info=info, settled=True)
    return replace(record, metrics={"time": shown})


@pytest.mark.parametrize("place", range(3))
def test_a_round_that_was_timed_in_another_way_is_left_out_and_counted(place: int) -> None:
    rounds = [one([180.0]), one([181.0])]
    rounds.insert(place, visible([231.0]))
    joined = combine([replace(each, planned_rounds=3) for each in rounds])
    metric = joined.metrics["time"]
    assert (metric.samples, metric.rounds, metric.unlike_rounds) == (
        [180.0, 181.0],
        [1, 1],
        1,
    )
    assert not metric.launch_visible and metric.info["timer"] == "cuda events"
    assert joined.is_complete and joined.measured_rounds == 3
    assert joined.warnings == [
        "time: 1 of 3 rounds left out: timed in another way or regime than the others"
    ]
    assert decode(encode(joined)) == joined


def test_of_two_ways_those_with_hidden_launches_stand_and_most_rounds_decide() -> None:
    one_each = combine([visible([231.0]), one([180.0])]).metrics["time"]
    assert (one_each.samples, one_each.launch_visible) == ([180.0], False)
    most = combine([visible([231.0]), one([180.0]), visible([230.0])]).metrics["time"]
    assert (most.samples, most.launch_visible) == ([231.0, 230.0], True)
    regimes = combine([visible([231.0]), one([180.0], [170.0]), with_regimes([230.0])])
    assert regimes.metrics["time"].samples == [230.0]
    assert combine([visible([1.0]), visible([2.0])]).metrics["time"].unlike_rounds == 0


def test_rounds_that_are_joined_in_two_steps_are_joined_the_same() -> None:
    rounds = [one([180.0]), visible([231.0]), one([181.0])]
    in_steps = combine([combine(rounds[:2]), rounds[2]])
    assert in_steps.metrics == combine(rounds).metrics


def test_a_round_that_failed_makes_the_point_fail_and_says_which() -> None:
    failed = one(
        [1.0], status="failed", reason="check failed: wrong", metrics={}, duration=1.0
    )
    record = combine([one([1.0]), failed])
    assert (record.status, record.metrics) == ("failed", {})
    assert record.reason == "round 2 of 2: check failed: wrong"
    assert record.duration == 3.0
    assert combine([failed]).reason == "check failed: wrong"


def test_a_point_measured_twice_in_one_run_is_two_records() -> None:
    rounds = [
        one([float(number)], started=100.0 + number, run="r", planned_rounds=3)
        for number in range(1, 8)
    ]
    assert [record.value("time") for record in join_rounds(rounds)] == [2.0, 5.0, 7.0]
    assert [record.measured_rounds for record in join_rounds(rounds)] == [3, 3, 1]
    # a line that comes twice belongs to where it was
    assert join_rounds([*rounds, *rounds]) == join_rounds(rounds)


def test_a_retraction_takes_back_the_measurement_that_it_names() -> None:
    rounds = [
        one([float(number)], started=100.0 + number, run="r", planned_rounds=3)
        for number in range(1, 7)
    ]
    first, second = join_rounds(rounds)
    for taken, statuses in ((first, ["retracted", "ok"]), (second, ["ok", "retracted"])):
        joined = join_rounds([*rounds, retract(taken, "wrong")])
        assert [record.status for record in joined] == statuses


def test_rounds_from_before_there_were_plans_are_one_record() -> None:
    rounds = [
        one([float(number)], started=100.0 + number, run="r") for number in range(1, 4)
    ]
    (joined,) = join_rounds(rounds)
    assert joined.measured_rounds == 3


def test_one_round_is_the_record_as_it_was_before_there_were_rounds() -> None:
    record = one([1.0, 2.0])
    assert combine([record]) == record
    assert b"rounds" not in encode(record)
    assert record.metrics["time"].round_values == [1.5]


@pytest.mark.parametrize("rounds", [[2], [1, 1, 2], [3, 0]])
def test_rounds_that_do_not_add_up_are_refused(rounds: list[int]) -> None:
    with pytest.raises(ValueError, match="do not add up to 3"):
        MetricSamples("s", "lower", [1.0, 2.0, 3.0], rounds=rounds)


def test_records_of_one_run_and_point_are_its_rounds_and_no_others() -> None:
    rounds = [
        one([1.0], run="r", machine="m"),
        one([3.0], run="r", machine="m", started=105.0),
    ]
    others = [
        one([5.0], run="s", machine="m"),
        one([5.0], run="r", machine="n"),
        one([5.0], run="r", machine="m", commit="c"),
        one([5.0], run="r", machine="m", environment="e"),
        one([5.0], run="r", machine="m", params={"n": 2}),
        one([5.0]),
        one([5.0], started=105.0),
    ]
    joined = join_rounds(
        [rounds[0], *others, rounds[1], rounds[0]]
    )  # one line twice is one round
    assert joined == [combine(rounds), *others]
    assert join_rounds(joined) == joined


def test_a_retraction_takes_the_numbers_of_all_rounds_away_wherever_it_stands_and_gives_the_reason() -> (  # noqa: E501
    None
):
    rounds = [one([1.0], run="r", node={"cpu": "EPYC"}), one([3.0], run="r", started=105.0)]
    other = one([5.0], run="s")
    line = retract(combine(rounds), "the timer fell back")
    assert (line.point, line.run, line.started, line.metrics) == (
        rounds[0].point,
        "r",
        100.0,
        {},
    )
    assert decode(encode(line)) == line
    for order in itertools.permutations([*rounds, line, line]):
        retracted, stands = join_rounds([*order, other])
        assert (retracted.status, retracted.reason) == ("retracted", "the timer fell back")
        assert (
            retracted.metrics,
            retracted.series,
            retracted.checks,
            retracted.duration,
        ) == (
            {},
            {},
            [],
            4.0,
        )
        assert retracted.is_complete
        assert stands == other
    assert join_rounds([*rounds, line])[0].node == {"cpu": "EPYC"}
    assert join_rounds([line]) == [line]


def test_a_round_with_and_without_the_digits_that_are_not_stored_is_one() -> None:
    stored = one([0.0004368379999988292, 0.0004236129999952709], started=7.0)
    assert shorten(stored) != stored
    assert join_rounds([stored, shorten(stored)]) == [stored]
    edited = one([0.000436839, 0.000423613], started=7.0)
    assert [each.status for each in join_rounds([stored, edited])] == ["retracted"]
