"""The card's factor as a covariate, on made Records whose cards differ by known factors."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from backtest import (
    by_the_reference,
    coverage_table,
    measured_points,
    verdict_table,
    with_references,
)
from records import Given, a_record

from hpml_plugins.analysis.backtest import BackTest
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.reference import (
    BENCHMARK,
    Coefficient,
    References,
    fit_coefficient,
    visit_of,
)
from hpml_plugins.analysis.sides import MeasuredRun, boosted, side_values
from hpml_plugins.analysis.variability import Variability
from hpml_plugins.analysis.verdicts import Difference, ValuePair, compare_values
from hpml_plugins.model.record import MetricSamples, Record

HOUR = 3600.0
TYPES = {"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H200": "h200"}


def product(card: str, gpu: str, seconds: float, size: int, started: float) -> Record:
    """A bfloat16 product, sustained and boost."""
    info: dict[str, str | float] = {"timer": "cuda events", "regime": "sustained"}
    time = MetricSamples(
        "s", "lower", [1.2 * seconds, 1.2001 * seconds], info, [seconds, 1.0001 * seconds]
    )
    rate = MetricSamples(
        "1/s",
        "higher",
        [1 / each for each in time.samples],
        info,
        [1 / each for each in time.boost],
    )
    return visited(
        "product", {"time": time, "rate": rate}, card, gpu, started, params={"size": size}
    )


def visited(
    benchmark: str,
    metrics: Mapping[str, Given],
    card: str,
    gpu: str,
    started: float,
    /,
    **changes: Any,
) -> Record:
    """What the visit to a card measured."""
    known: dict[str, Any] = {
        "benchmark": benchmark,
        "metrics": metrics,
        "gpu": gpu,
        "card": card,
        "machine": TYPES[gpu],
        "run": f"run of {card}",
        "started": started,
        "commit": "c" * 40,
        "source": {"sha256": "code"},
    }
    return a_record(**{**known, **changes})


def reference(card: str, gpu: str, factor: float, started: float, **changes: Any) -> Record:
    info: dict[str, str | float] = {"timer": "cuda events", "regime": "sustained"}
    metrics = {
        "copy": MetricSamples("s", "lower", [2e-3], {"timer": "cuda events"}),
        "float32": MetricSamples("s", "lower", [3e-3], {"timer": "cuda events"}),
        "bfloat16": MetricSamples("s", "lower", [1.6e-3 * factor], info, [1.4e-3 * factor]),
    }
    return visited(BENCHMARK, metrics, card, gpu, started, **changes)


def measured(
    cards: int, *, referenced: bool, seed: int = 3, own: float = 0.0005
) -> list[Record]:
    """Products of four sizes on some cards of each type, whose factors differ by 1.5 %; what is
    left by `own`."""
    draw = random.Random(seed)
    made = []
    for (gpu, _), number in itertools.product(TYPES.items(), range(cards)):
        card, factor = f"GPU-{gpu[-2:]}{number}", math.exp(draw.gauss(0, 0.015))
        started = 1000 * HOUR * (number + 1)
        if referenced:
            made.append(reference(card, gpu, factor, started))
        for size in range(1, 5):
            level = size * (1.0 if gpu == "NVIDIA H200" else 1.1)
            made.append(
                product(
                    card,
                    gpu,
                    level * factor * math.exp(draw.gauss(0, own)),
                    size,
                    started + size,
                )
            )
    return made


def run_of(known: Variability, record: Record) -> MeasuredRun[str]:
    return MeasuredRun("code", (record.started,), known.values(record), record.commit)


def compare(
    made: Sequence[Record], a: Sequence[Record], b: Sequence[Record], name: str
) -> Difference:
    """Boost against boost."""
    known = Variability(made)
    of_a, of_b = (side_values([run_of(known, each) for each in side]) for side in (a, b))
    (found,) = compare_values([ValuePair("", boosted(of_a), boosted(of_b), name)])
    return found


def products(made: Sequence[Record], gpu: str, size: int = 1) -> list[Record]:
    return [
        each
        for each in made
        if each.benchmark == "product"
        and each.machine == gpu
        and each.params["size"] == size
    ]


def half_width(found: Difference) -> float:
    assert found.low is not None and found.high is not None
    return math.log(found.high / found.low) / 2


@pytest.mark.parametrize("name", ["time", "rate"])
def test_the_factors_of_two_cards_of_a_type_are_taken_out(name: str) -> None:
    made, plain = (measured(6, referenced=referenced) for referenced in (True, False))
    found = []
    for each in (made, plain):
        cards = products(each, "h200")
        found.append(compare(each, [cards[0]], [cards[1]], name))
    adjusted, raw = found
    assert adjusted.adjusted and not raw.adjusted
    assert half_width(adjusted) < half_width(raw) / 3
    assert adjusted.ratio == pytest.approx(1, abs=0.004)
    assert (
        adjusted.low is not None
        and adjusted.high is not None
        and adjusted.low < 1 < adjusted.high
    )


def test_the_further_two_references_differ_the_less_certain_is_what_is_left() -> None:
    made = measured(6, referenced=True, own=0.004)
    cards = sorted(products(made, "h200"), key=factor_of(made))
    ranked = [factor_of(made)(card) for card in cards]
    near = min(range(1, len(cards)), key=lambda rank: ranked[rank] - ranked[rank - 1])
    beside = compare(made, [cards[near - 1]], [cards[near]], "time")
    apart = compare(made, [cards[0]], [cards[-1]], "time")
    assert beside.adjusted and apart.adjusted
    assert half_width(apart) > 1.02 * half_width(beside)


def factor_of(made: Sequence[Record]) -> Callable[[Record], float]:
    """The logarithm of the reference of a Record's card."""
    of_card = {
        each.run: visit.logarithms[Physics.BOOST]
        for each in made
        if (visit := visit_of(each))
    }
    return lambda record: of_card[record.run]


def test_two_types_are_compared_by_what_their_cards_have_in_common() -> None:
    """One card of each was compared, others of both types have references: the truth is 1.1."""
    made = measured(8, referenced=True)
    a, b = products(made, "h100")[0], products(made, "h200")[0]
    left = [
        each
        for each in made
        if each.benchmark == BENCHMARK or each.params["size"] != 1 or each in (a, b)
    ]
    found = compare(left, [a], [b], "time")
    raw = compare([each for each in left if each.benchmark != BENCHMARK], [a], [b], "time")
    assert found.adjusted and half_width(found) < half_width(raw)
    assert (
        found.low is not None
        and found.high is not None
        and found.low < 1 / 1.1 < found.high
    )


def test_of_two_sides_the_one_that_has_a_reference_is_adjusted() -> None:
    """A card of another type was measured before there were references: the truth is 1.1."""
    made = measured(8, referenced=True)
    a, b = products(made, "h100")[0], products(made, "h200")[0]
    left = [
        each
        for each in made
        if (each.benchmark == BENCHMARK and each.machine == "h200")
        or (each.benchmark != BENCHMARK and (each.params["size"] != 1 or each in (a, b)))
    ]
    found, raw = (
        compare(records, [a], [b], "time")
        for records in (left, [each for each in left if each.benchmark != BENCHMARK])
    )
    assert found.adjusted and not raw.adjusted
    assert half_width(found) < half_width(raw)
    assert found.interval is not None and found.interval[0] < 1.1 < found.interval[1]


def test_a_reference_that_tells_nothing_changes_nothing() -> None:
    draw = random.Random(1)
    made = measured(6, referenced=False)
    cards = {(each.node["gpus"][0]["uuid"], each.machine): each for each in made}
    unrelated = [
        reference(
            card,
            next(gpu for gpu, name in TYPES.items() if name == machine),
            math.exp(draw.gauss(0, 0.02)),
            each.started,
        )
        for (card, machine), each in cards.items()
    ]
    pair = products(made, "h200")[:2]
    with_them = compare([*made, *unrelated], [pair[0]], [pair[1]], "time")
    without = compare(made, [pair[0]], [pair[1]], "time")
    assert half_width(with_them) >= 0.7 * half_width(without)


def test_a_record_belongs_to_the_reference_of_its_run_else_to_the_nearest_within_two_hours() -> (
    None
):
    gpu = "NVIDIA H200"
    early = reference("GPU-a", gpu, 1.0, 10 * HOUR, run="one")
    late = reference("GPU-a", gpu, 1.02, 13 * HOUR, run="two")
    other = reference("GPU-b", gpu, 1.05, 13 * HOUR, run="two")
    known = References.of([early, late, other, product("GPU-a", gpu, 1.0, 1, 10 * HOUR)])

    def run(of: str, hours: float, card: str = "GPU-a") -> str:
        visit = known.find(of, card, hours * HOUR)
        return visit.run if visit else ""

    assert (run("one", 99), run("two", 0)) == (
        "one",
        "two",
    )  # of the same run, however late
    assert (run("three", 11), run("three", 12), run("three", 14.9)) == ("one", "two", "two")
    assert (run("three", 15.1), run("three", 7.9), run("one", 10, "GPU-c")) == ("", "", "")
    found = known.find("two", "GPU-b", 0)
    assert found is not None and found.logarithms == visit_of(other).logarithms  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "2"},
        {"status": "retracted", "metrics": {}},
        {"benchmark": "b"},
        {"node": {}},
    ],
)
def test_other_records_are_no_reference(changes: dict[str, Any]) -> None:
    assert visit_of(reference("GPU-a", "NVIDIA H200", 1.0, 0.0, **changes)) is None


def fitted(
    slope: float, noise: float, cards: int, groups: int = 4, seed: int = 5
) -> Coefficient | None:
    """Of cards whose values follow their factors by this slope, and have this noise."""
    draw = random.Random(seed)
    factors = [draw.gauss(0, 0.01) for _ in range(cards)]
    rows = [
        (group, card, 10.0 * group + slope * factor + draw.gauss(0, noise), factor)
        for group in range(groups)
        for card, factor in enumerate(factors)
    ]
    of_group, of_card, values, references = np.array(rows).T
    return fit_coefficient(of_group.astype(int), of_card.astype(int), values, references)


def test_the_coefficient_is_found_shrunk_and_limited() -> None:
    full = fitted(1.0, 0.0005, cards=8)
    assert full is not None and full.narrows
    assert 0.9 < full.value <= 1.0
    assert full.after < full.before / 50
    half = fitted(0.5, 0.002, cards=8)
    assert half is not None and 0.3 < half.value < 0.55
    twice, against = (fitted(slope, 0.0005, cards=8) for slope in (2.0, -1.0))
    assert twice is not None and twice.value == 1.0
    assert against is not None and against.value == 0.0 and not against.narrows


def test_two_cards_tell_no_coefficient() -> None:
    assert fitted(1.0, 0.0, cards=2) is None
    nothing = np.array([], int)
    assert fit_coefficient(nothing, nothing, nothing, nothing) is None
    cards = np.arange(5)
    group, same = np.zeros(5, int), np.full(5, 0.1)
    assert fit_coefficient(group, cards, cards * 1.0, same) is None


def test_the_back_test_takes_the_factors_of_the_cards_out_where_references_tell_them() -> (
    None
):
    made = measured(8, referenced=True)
    plain = BackTest(measured_points(made)).results
    found = BackTest(measured_points(made), References.of(made)).results
    assert not any(by_the_reference(each).pairs for each in plain.values())
    by_reference = {name for name, each in found.items() if by_the_reference(each).pairs}
    assert by_reference == {Physics.BOOST, Physics.SUSTAINED}
    alone, adjusted = plain[Physics.BOOST], by_the_reference(found[Physics.BOOST])
    assert (
        len(adjusted.called) == len(TYPES) * 8 * 7 * 4
    )  # all but those of the reference itself
    assert adjusted.smallest_found < 0.02 < alone.smallest_found
    assert sum(adjusted.called) <= 0.03 * len(adjusted.called)
    names = [row["class"] for row in verdict_table(found)]
    assert (
        "boost, by the reference" in names
        and "never throttled, by the reference" not in names
    )
    assert "all classes of a GPU, both visits with the reference" in names
    assert with_references(found[Physics.BOOST]).pairs == adjusted.pairs
    assert "boost, by the reference" not in [row["class"] for row in coverage_table(found)]
