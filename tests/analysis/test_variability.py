"""Intervals and verdicts from made Records, whose spread is known."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from records import a_record

from hpml_plugins.analysis.measured import EXACT, MeasuredValue, Values, card_of, code_of
from hpml_plugins.analysis.physics import Physics, physics_of
from hpml_plugins.analysis.variability import Variability
from hpml_plugins.analysis.verdicts import (
    Difference,
    ValuePair,
    common_direction,
    compare_values,
    different_problems,
    throttling_slack,
)
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.work import DeclaredWork

EVENTS = {"timer": "cuda events"}
MOMENTS = itertools.count()


def record(
    value: float, card: str = "A", run: str = "r", size: int = 1, **changes: Any
) -> Record:
    metric = MetricSamples("s", "lower", [value * 0.999, value, value * 1.001], EVENTS)
    known: dict[str, Any] = {
        "params": {"size": size},
        "run": run,
        "commit": "c" * 40,
        "source": {"sha256": "same code"},
        "started": float(next(MOMENTS)),
        "metrics": {"time": metric},
    }
    return a_record("b", gpu="NVIDIA H200", card=card, **{**known, **changes})


def history(runs: float, cards: float, seed: int = 0) -> list[Record]:
    """Of 12 sizes three runs on each of three cards. runs, cards: relative standard deviations
    between them."""
    draw = random.Random(seed)
    made = []
    for size, card in itertools.product(range(1, 13), "ABC"):
        level = size * (1 + draw.gauss(0, cards))
        made += [
            record(level * (1 + draw.gauss(0, runs)), card, f"{card}{n}", size)
            for n in range(3)
        ]
    return made


def values(of: Record) -> Values:
    return {name: MeasuredValue.of(of, name) for name in of.metrics}


def compare(
    known: Variability, pairs: Sequence[tuple[Record, Record, str]]
) -> list[Difference]:
    return compare_values(
        [
            ValuePair(number, known.values(a), known.values(b), name)
            for number, (a, b, name) in enumerate(pairs)
        ]
    )


def test_the_interval_is_for_the_next_run_on_another_card() -> None:
    made = history(0.001, 0.01)
    known = Variability(made)
    found = known.reading(made[0], "time").estimate
    within = made[0].metrics["time"].estimate
    assert found.value == within.value
    assert found.low is not None
    assert found.high is not None
    # ± t · √2 · 1 %; t for a few degrees of freedom is 2 to 3
    assert 0.02 < found.high / found.value - 1 < 0.06
    assert found.value / found.low == pytest.approx(found.high / found.value)
    others = [
        each.value("time")
        for each in made
        if each.point == made[0].point and card_of(each) != "A"
    ]
    assert sum(found.low <= value <= found.high for value in others if value) >= 5  # of six


def test_a_difference_on_one_card_is_found_that_would_be_lost_between_cards() -> None:
    made = history(0.001, 0.02)
    size = 5
    a = next(each for each in made if each.params == {"size": size})
    slower = record(a.metrics["time"].value * 1.02, "A", "new", size)
    elsewhere = record(a.metrics["time"].value * 1.02, "D", "new", size)
    (on_one_card,) = compare(Variability([*made, slower]), [(a, slower, "time")])
    assert on_one_card.verdict == "WORSE"
    assert on_one_card.ratio == pytest.approx(1.02)
    (between,) = compare(Variability([*made, elsewhere]), [(a, elsewhere, "time")])
    assert between.verdict == "BOUND"
    assert between.low is not None
    assert between.low < 1 < between.ratio  # type: ignore[operator]
    (faster,) = compare(Variability([*made, slower]), [(slower, a, "time")])
    assert faster.verdict == "BETTER"


def test_equal_code_is_seldom_called_different_however_many_are_asked_at_once() -> None:
    made = history(0.003, 0.01)
    known = Variability(made)
    pairs = [
        (a, b, "time") for a, b in itertools.combinations(made, 2) if a.point == b.point
    ]
    verdicts = [each.verdict for each in compare(known, pairs)]
    assert len(pairs) == 12 * 36
    assert sum(verdict in ("BETTER", "WORSE") for verdict in verdicts) <= 0.05 * len(pairs)


def test_close_values_that_are_well_known_are_the_same_and_badly_known_ones_have_bounds() -> (
    None
):
    for runs, verdict in ((0.001, "SAME"), (0.05, "BOUND")):
        made = history(runs, 0.0)
        a, b = made[0], made[1]
        (found,) = compare(Variability(made), [(a, b, "time")])
        assert found.verdict == verdict


def test_the_direction_decides_which_side_is_better_and_without_one_nobody_is() -> None:
    def rate(value: float, direction: Any) -> Record:
        return record(
            1.0,
            metrics={"time": MetricSamples("1/s", direction, [value, value], EVENTS)},
            run=str(value),
        )

    for direction, verdict in (("higher", "BETTER"), ("lower", "WORSE"), (None, "BOUND")):
        made = [rate(100.0 + 0.01 * n, direction) for n in range(8)]
        far = rate(150.0, direction)
        (found,) = compare(Variability([*made, record(1.0)]), [(made[0], made[0], "time")])
        assert (found.verdict, found.ratio) == ("SAME", 1.0)
        (found,) = compare(
            Variability([*made, rate(150.0, direction)]), [(made[0], far, "time")]
        )
        # the pair is of one card and one code: nothing but a far larger spread explains it
        assert found.ratio is not None
        assert found.ratio > 1.4
        other_code = record(1.0, metrics=far.metrics, run="far", source={"sha256": "other"})
        (found,) = compare(
            Variability([*made, other_code]), [(made[0], other_code, "time")]
        )
        assert found.verdict == verdict


@pytest.mark.parametrize(
    ("ratio", "direction", "times"),
    [
        (0.5, "lower", 2.0),
        (2.0, "lower", 0.5),
        (2.0, "higher", 2.0),
        (0.25, "higher", 0.25),
        (1.0, "higher", 1.0),
        (2.0, None, None),
        (None, "lower", None),
    ],
)
def test_a_ratio_above_one_is_better_whatever_the_direction(
    ratio: float | None, direction: str | None, times: float | None
) -> None:
    assert Difference("SAME", ratio, direction=direction).times == times


def counted(value: float, run: str = "r") -> Record:
    return record(1.0, metrics={"flops": MetricSamples("FLOP", "lower", [value])}, run=run)


def test_what_is_counted_has_no_interval_and_differs_by_any_difference() -> None:
    one, more = counted(1000.0), counted(1001.0)
    known = Variability([one, more])
    assert physics_of(one, "flops") is Physics.COUNTED
    assert known.reading(one, "flops").spread == EXACT
    assert (
        known.reading(one, "flops").estimate.low,
        known.reading(one, "flops").estimate.value,
    ) == (None, 1000.0)
    worse, same = compare(
        known, [(one, more, "flops"), (one, counted(1000.0, "s"), "flops")]
    )
    assert (worse.verdict, same.verdict) == ("WORSE", "SAME")


def test_what_hardware_counters_give_is_not_taken_for_exact() -> None:
    one, more = (
        record(
            1.0,
            metrics={"bytes": MetricSamples("B", "lower", [value], {"source": "ncu"})},
            run=run,
        )
        for value, run in ((1_137_000_000.0, "r"), (1_138_000_000.0, "s"))
    )
    known = Variability([one, more])
    assert known.reading(one, "bytes").estimate.low is not None
    assert [found.verdict for found in compare(known, [(one, more, "bytes")])] != ["WORSE"]


def product(size: int, rate: float, run: str, direction: Any = None) -> Record:
    """At the size that was fastest, with a share that has no direction either but was not
    counted."""
    metrics = {
        "rate": MetricSamples("FLOP/s", "higher", [rate, rate], EVENTS),
        "size": MetricSamples("1", direction, [float(size)] * 3, rounds=[1, 1, 1]),
        "share": MetricSamples("1", None, [size / 16384]),
    }
    return record(1.0, metrics=metrics, run=run)


def test_numbers_of_different_problems_get_no_ratio_and_the_reason() -> None:
    small, large, again = (
        product(4096, 7e14, "a"),
        product(12288, 8e14, "b"),
        product(4096, 7e14, "c"),
    )
    known = Variability([small, large, again])
    assert (
        different_problems(values(small), values(large))
        == "different problems: size 4096 and 12288"
    )
    assert different_problems(values(small), values(again)) == ""
    rate, share, size, same = compare(
        known,
        [
            (small, large, "rate"),
            (small, large, "share"),
            (small, large, "size"),
            (small, again, "rate"),
        ],
    )
    for each in (rate, share):
        assert (each.verdict, each.ratio, each.low, each.p) == (
            "AMBIGUOUS",
            None,
            None,
            None,
        )
        assert each.reason == "different problems: size 4096 and 12288"
    assert (size.verdict, size.reason) == (
        "BOUND",
        "",
    )  # it describes; neither size is better
    assert (same.verdict, same.reason) == ("SAME", "")
    equal_rates = compare(known, [(small, product(12288, 7e14, "d"), "rate")])
    assert [(each.verdict, each.ratio) for each in equal_rates] == [("AMBIGUOUS", None)]


def test_values_of_different_problems_are_no_repetitions() -> None:
    sizes = (4096, 12288, 12288, 4096, 4096, 12288)
    one = [product(4096, 7e14 * (1 + 1e-3 * number), str(number)) for number in range(6)]
    two = [
        product(size, 7e14 * size / 4096 * (1 + 1e-3 * number), str(number))
        for number, size in enumerate(sizes)
    ]
    half_widths = []
    for records in (one, two):
        shown = Variability(records).reading(records[-1], "rate").estimate
        assert shown.high is not None
        half_widths.append(shown.high / shown.value - 1)
    assert half_widths[1] < 2 * half_widths[0] < 0.1


@pytest.mark.parametrize(
    ("benchmark", "load", "repeats"),
    [
        ("lm_prefill", "continuous", False),
        ("lm_prefill", 0.5, True),
        ("roof_matmul", "continuous", True),
    ],
)
def test_values_under_another_load_are_no_repetitions_where_that_matters(
    benchmark: str, load: str | float, repeats: bool
) -> None:
    time = MetricSamples("s", "lower", (0.1,), info={"regime": "sustained"})
    rested, loaded = (
        a_record(
            benchmark=benchmark, metrics={"time": replace(time, info=time.info | more)}
        )
        for more in ({}, {"load": load})
    )
    assert (code_of(rested) == code_of(loaded)) == repeats


def test_a_direction_that_became_none_counts_as_none() -> None:
    old, new = product(4096, 7e14, "a", "higher"), product(12288, 8e14, "b")
    assert different_problems(values(old), values(new)) == different_problems(
        values(product(4096, 7e14, "a")), values(new)
    )
    assert common_direction(values(old)["size"], values(new)["size"]) is None
    assert common_direction(values(old)["rate"], values(new)["rate"]) == "higher"
    (size,) = compare(Variability([old, new]), [(old, new, "size")])
    assert (size.verdict, size.ratio) == ("BOUND", 3.0)
    # a result, such as the largest batch that fits, is no problem
    ranked = product(12288, 8e14, "b", "higher")
    assert different_problems(values(old), values(ranked)) == ""


def test_what_is_not_above_zero_has_neither_interval_nor_verdict() -> None:
    one, other = (
        record(
            1.0,
            metrics={"cost": MetricSamples("1", "lower", [value, value])},
            run=str(value),
        )
        for value in (0.0, -0.5)
    )
    known = Variability([one, other])
    assert known.reading(one, "cost").estimate.low is None
    (found,) = compare(known, [(one, other, "cost")])
    assert (found.verdict, found.ratio) == ("AMBIGUOUS", None)


def test_results_of_a_foreign_project_keep_the_interval_of_asv() -> None:
    metric = MetricSamples("s", "lower", [2.0], interval=(1.5, 2.5))
    foreign = record(1.0, metrics={"time": metric}, plugin="")
    assert Variability([foreign]).reading(foreign, "time").estimate == metric.estimate


def test_kinds_tell_apart_how_a_value_was_measured() -> None:
    plain = record(1.0)
    throttled = record(1.0, throttled="power cap")
    metric = MetricSamples(
        "s", "lower", [1.0, 1.0], {**EVENTS, "regime": "sustained"}, rounds=[1, 1]
    )
    both = record(1.0, metrics={"time": metric})
    wall = record(
        1.0,
        metrics={"time": MetricSamples("s", "lower", [1.0], {"timer": "perf_counter"})},
        node={},
    )
    accuracy = record(1.0, metrics={"time": MetricSamples("1", "higher", [0.5])})
    assert [
        MeasuredValue.of(each, "time").kind
        for each in (plain, throttled, both, wall, accuracy)
    ] == [
        "never throttled, one round",
        "throttled, no regime, one round",
        "sustained, rounds",
        "CPU, one round",
        "derived, one round",
    ]


def test_what_was_timed_on_cpus_that_others_used_is_judged_with_a_wider_interval() -> None:
    wall = {
        "time": MetricSamples("s", "lower", [1.0, 1.0, 1.001], {"timer": "perf_counter"})
    }
    pairs = [
        [record(1.0, run=f"{n}", metrics=metrics) for n in range(9)]
        for metrics in (wall, record(1.0).metrics)
    ]
    busy = [
        replace(each[0], conditions={"other_cpus": 1.0, "cores": 2.0}, run="busy")
        for each in pairs
    ]
    assert MeasuredValue.of(busy[0], "time").kind == "host clock, one round, busy"
    known = Variability([*itertools.chain(*pairs), *busy])
    for factor, verdict in ((100.0, "WORSE"), (1.2, "BOUND")):
        slower = replace(
            busy[0], metrics={"time": replace(wall["time"], samples=[factor] * 3)}
        )
        (found,) = compare(known, [(pairs[0][0], slower, "time")])
        assert (found.verdict, found.ratio) == (verdict, pytest.approx(factor))
    # a kernel's time is taken on the GPU
    assert not MeasuredValue.of(busy[1], "time").is_busy


@pytest.mark.parametrize(
    ("dtype", "regimes", "slack"),
    [("bfloat16", False, 1.21), ("float32", False, 1.0), ("bfloat16", True, 1.1)],
)
def test_a_side_that_throttled_may_be_slower_once_it_has_settled_by_what_its_precision_loses(
    dtype: str, regimes: bool, slack: float
) -> None:
    """The settled time of A is up to so many times as long; that of B is known."""
    made = history(0.001, 0.001)
    info: dict[str, str | float] = {**EVENTS, "regime": "sustained"}
    seconds = made[0].metrics["time"].value
    settled = MetricSamples("s", "lower", [seconds] * 2, info, [seconds / 1.1] * 2)
    other = replace(made[0], metrics={"time": settled}) if regimes else made[0]
    work = {"time": DeclaredWork(flop=1e9, dtype=dtype, gpus=1)}
    mixed = record(seconds, run="old", throttled="power cap", work=work)
    mixed = replace(mixed, params=made[0].params)
    known = Variability([*made, mixed, other])
    (found,) = compare(known, [(mixed, other, "time")])
    assert found.low is not None and found.high is not None
    assert found.ratio == pytest.approx(1)
    sure = math.sqrt(
        found.low * found.high * slack
    )  # the middle, without the slack below it
    assert sure == pytest.approx(1, abs=0.002)
    (back,) = compare(known, [(other, mixed, "time")])
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_two_sides_that_throttled_are_compared_as_they_are() -> None:
    made = [
        record(1.0 + 0.001 * n, card, f"{n}", throttled="power cap")
        for n, card in enumerate("AABB")
    ]
    assert throttling_slack(
        *(MeasuredValue.of(each, "time") for each in (made[0], made[2]))
    ) == (
        0.0,
        0.0,
    )


def test_a_host_without_gpu_that_does_not_tell_who_it_is_is_another_in_each_run() -> None:
    assert card_of(record(1.0, node={}, run="x")) == "x"
    assert card_of(record(1.0, node={"boot": "h"}, run="x")) == "h"
    assert card_of(record(1.0, node={"gpus": [{"uuid": "b"}, {"uuid": "a"}]})) == "a,b"


def in_rounds(rng: random.Random, factors: Sequence[float]) -> Record:
    """A run whose rounds vary by 3 % of 1 s, each round times its factor."""
    samples = [factor * math.exp(rng.gauss(0, 0.03)) for factor in factors]
    return record(
        1.0,
        metrics={
            "time": MetricSamples("s", "lower", samples, EVENTS, rounds=[1] * len(samples))
        },
    )


def half_band(made: Sequence[Record]) -> float:
    """Of the newest, relative."""
    found = Variability(made).reading(made[-1], "time").estimate
    assert found.high is not None
    return found.high / found.value - 1


def test_a_few_slow_rounds_do_not_widen_the_interval_and_rounds_that_always_differ_do() -> (
    None
):
    rng = random.Random(7)
    quiet = [
        in_rounds(rng, factors)
        for factors in [(1, 1)] * 2 + [(1, 1, 1)] * 10 + [(1, 1, 1, 1, 1)] * 2
    ]
    disturbed = [*quiet[:9], *(in_rounds(rng, (1, 1, 30)) for _ in range(3)), *quiet[12:]]
    assert half_band(disturbed) < 1.3 * half_band(quiet)
    assert half_band([in_rounds(rng, (0.5, 1, 2)) for _ in range(14)]) > 3 * half_band(
        quiet
    )
