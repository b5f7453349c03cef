"""What the page of nodes says of how well the verdicts hold, from made Records."""

from __future__ import annotations

import math
import random
import re
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from backtest import measured_points
from msgspec.structs import replace
from records import a_record
from site_history import read

from hpml_plugins.analysis.backtest import BackTest, MeasuredPoint
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.reference import References
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.report.site import evidence as evidence_module
from hpml_plugins.report.site.component_strips import draw_components
from hpml_plugins.report.site.components import (
    CardReading,
    draw_lots,
    find_drifts,
    find_hosts,
    most_unusual_first,
    read_cards,
)
from hpml_plugins.report.site.evidence import fill_evidence, find_evidence
from hpml_plugins.report.site.matrix import Costs, build
from hpml_plugins.report.site.page import fill
from hpml_plugins.report.site.workloads import find_workloads
from hpml_plugins.store import append_record, read_records, record_file

COMMIT = "c" * 40
DECLARED = {
    "product.track_time": {
        "name": "product.track_time",
        "benchmark": "product",
        "metric": "time",
        "plugin": "p",
        "version": "1",
        "si_unit": "s",
        "direction": "lower",
        "type": "track",
        "unit": "s",
        "param_names": ["size"],
        "params": [["1", "2"]],
    }
}


def measure(results: Path, cards: int) -> None:
    """Two sizes on each card, in two runs; cards differ by 0.5 %."""
    draw = random.Random(4)
    for card in range(cards):
        factor = 1 + draw.gauss(0, 0.005)
        for run in range(2):
            for size in (1, 2):
                seconds = 1e-3 * size * factor * (1 + draw.gauss(0, 0.0005))
                time = MetricSamples("s", "lower", [seconds] * 3, {"timer": "cuda events"})
                made = a_record(
                    "product",
                    {"time": time},
                    gpu="NVIDIA H200",
                    card=f"GPU-{card}",
                    params={"size": size},
                    run=f"{card} {run}",
                    commit=COMMIT,
                    started=float(10 * card + run),
                    source={"sha256": "code"},
                )
                append_record(record_file(results, made.machine, COMMIT), made)


def page_of(results: Path) -> str:
    """The page, as words."""
    evidence = find_evidence(read(results, DECLARED, {COMMIT: 0.0}))
    page = fill("evidence.html", project="p", **fill_evidence(evidence=evidence))
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_the_page_has_the_figures_of_the_back_test_with_how_many_they_are_of(
    tmp_path: Path,
) -> None:
    measure(tmp_path / "results", cards=6)
    (told,) = find_evidence(read(tmp_path / "results", DECLARED, {COMMIT: 0.0}))
    (result,) = BackTest(
        measured_points(read_records(tmp_path / "results"))
    ).results.values()
    assert told.physics == result.physics == Physics.NEVER_THROTTLED
    assert (len(told.cards), len(told.covered), len(told.pairs)) == (6, 12, 60)
    assert told.smallest_found == pytest.approx(result.smallest_found)
    assert (told.covered, told.called) == (result.covered, result.called)
    held, called = 100 * sum(result.covered) / 12, 100 * sum(result.called) / 60
    of_a_card = 100 * sum(result.covered_of_a_card) / 6
    shown = f"never throttled 6 {held:.1f} % of 12 {of_a_card:.1f} % {called:.1f} % of 60"
    assert shown in page_of(tmp_path / "results")


def test_the_back_test_is_kept_until_one_of_its_inputs_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made: list[int] = []

    def counted(measured: Iterable[MeasuredPoint], references: References) -> BackTest:
        result = BackTest(measured, references)
        made.append(len(result.results))
        return result

    monkeypatch.setattr(evidence_module, "BackTest", counted)
    results = tmp_path / "results"

    def found() -> str:
        history = read(results, DECLARED, {COMMIT: 0.0})
        return repr(find_evidence(history, keeps=True))

    measure(results, cards=3)
    first = found()
    assert found() == first
    assert len(made) == 1
    (kept,) = (tmp_path / "cache" / "hpml" / "evidence").iterdir()
    kept.write_bytes(kept.read_bytes()[:-3])  # a damaged entry
    assert found() == first
    assert len(made) == 2
    reference = a_record(
        "reference", {"float32": 1e-3}, gpu="NVIDIA H200", card="GPU-0", commit=COMMIT
    )
    append_record(record_file(results, reference.machine, COMMIT), reference)
    found()
    assert len(made) == 3, "a reference"
    measure(results, cards=4)  # another card
    assert found() != first
    assert len(made) == 4, "a Record"
    monkeypatch.setattr(evidence_module, "package_digest", lambda: b"another version")
    found()
    assert len(made) == 5, "the package"


def test_one_card_alone_tells_nothing_and_the_page_says_so(tmp_path: Path) -> None:
    measure(tmp_path / "results", cards=1)
    assert "no two cards of one type have measured the same point" in page_of(
        tmp_path / "results"
    )


def test_the_lottery_of_a_type_is_the_deviation_between_its_cards() -> None:
    levels = [-0.02, -0.01, 0.0, 0.01, 0.02]
    readings = []
    for card, level in enumerate(levels):
        apart = level - statistics.fmean(each for each in levels if each != level)
        readings.append(CardReading("H200", f"card {card}", "boost", math.exp(apart), 5, 4))
    few = [CardReading("H100", "card", "boost", 1.1, 5, 1)] * 2
    readings += few
    (lot,) = draw_lots(readings)
    assert lot.deviation == pytest.approx(statistics.stdev(levels))
    assert (lot.hardware, lot.component, lot.cards) == ("H200", "boost", 5)
    assert math.log(lot.slowest) == pytest.approx(-0.025)
    page = fill("evidence.html", project="p", **fill_evidence(cards=readings))
    words = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert "H200 boost 5 1.58 % 0.975× 1.025×" in words


def test_the_lottery_of_pairs_is_the_deviation_between_two_cards() -> None:
    levels = [(-0.02, 0.01), (0.0, 0.02), (0.03, 0.0)]
    readings = [
        CardReading("H200", f"card {number}", "boost", math.exp(apart), 5, 1)
        for number, (one, other) in enumerate(levels)
        for apart in (one - other, other - one)
    ]
    (lot,) = draw_lots(readings)
    variances = [statistics.variance(pair) for pair in levels]
    assert lot.deviation == pytest.approx(math.sqrt(statistics.fmean(variances)))


def reading(card: str, times: float, component: str = "boost") -> CardReading:
    return CardReading("NVIDIA H200", card, component, times, 5, 4, "look1")


def test_cards_are_ranked_by_how_unusual_they_are_for_their_class() -> None:
    noisy = [
        reading(f"host {number}", 1.2 + 0.01 * number, "host clock") for number in range(4)
    ]
    quiet = [reading(f"card {number}", 1.001) for number in range(4)]
    slow = reading("slow", 0.98)
    pair = reading("one of two", 0.5)._replace(others=1)
    ranked = most_unusual_first([*noisy, *quiet, pair, slow])
    assert (ranked[0].card, ranked[-1].card) == ("slow", "one of two")
    assert ranked[0].unlike == pytest.approx(math.log(0.98) / -math.log(1.001))
    equal = [reading(f"card {number}", 1.0) for number in range(3)]
    assert [each.unlike for each in most_unusual_first(equal)] == [0.0] * 3


def of_product(
    card: int, size: int, metrics: dict[str, MetricSamples], **facts: Any
) -> Record:
    """A Record of one of several H200s."""
    return a_record(
        "product",
        metrics,
        gpu="NVIDIA H200",
        card=f"GPU-card{card}",
        params={"size": size},
        run=str(card),
        commit=COMMIT,
        started=float(card),
        **facts,
    )


def test_where_the_host_takes_part_a_row_is_a_host_and_elsewhere_a_card(
    tmp_path: Path,
) -> None:
    """Four hosts of two cards each, of which the third launches at two thirds of the rate; the
    Records of the fourth do not tell which it was."""
    results = tmp_path / "results"
    timers = {"time": "cuda events", "launch": "wall clock"}
    declared = {
        f"product.track_{name}": {
            **DECLARED["product.track_time"],
            "name": f"product.track_{name}",
            "metric": name,
            "params": [["1", "2", "3"]],
        }
        for name in timers
    }
    for card in range(8):
        boot = f"boot{card // 2}"
        factor = {"time": 1 + 0.001 * card, "launch": 1.5 if boot == "boot2" else 1.0}
        for size in (1, 2, 3):
            metrics = {
                name: MetricSamples(
                    "s", "lower", [1e-3 * factor[name]] * 3, {"timer": timer}
                )
                for name, timer in timers.items()
            }
            made = of_product(card, size, metrics)
            node = made.node if boot == "boot3" else {**made.node, "boot": boot}
            file = record_file(results, made.machine, COMMIT)
            append_record(file, replace(made, node=node))
    history = read(results, declared, {COMMIT: 0.0})
    matrix = build(history, Costs({}))
    workloads = find_workloads(history, matrix, [])
    readings = read_cards(workloads, find_hosts(history))
    hosts = {each.card: each for each in readings if each.component == "host clock"}
    assert {name: each.kind for name, each in hosts.items()} == {
        "boot0": "host",
        "boot1": "host",
        "boot2": "host",
        "card6": "host of card",
        "card7": "host of card",
    }
    assert hosts["boot2"].times == pytest.approx(1 / 1.5) and hosts["boot2"].others == 4
    cards = [each for each in readings if each.component == "never throttled"]
    assert len(cards) == 8 and {each.kind for each in cards} == {"card"}
    page = fill("evidence.html", project="p", **fill_evidence(cards=readings))
    words = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert "host boot2 NVIDIA H200 ×1 host clock 0.667×" in words
    assert "4 other hosts" in words and "7 other cards" in words


def test_the_metrics_of_one_timing_are_one_value_of_a_card(tmp_path: Path) -> None:
    """Time and rate of two points are two values, too few for a card's row; of three they are
    three."""
    results = tmp_path / "results"
    declared = {
        f"product.track_{name}": {
            **DECLARED["product.track_time"],
            "name": f"product.track_{name}",
            "metric": name,
            "direction": direction,
            "si_unit": unit,
            "params": [["1", "2", "3"]],
        }
        for name, direction, unit in (("time", "lower", "s"), ("rate", "higher", "B/s"))
    }
    rows = []
    for size in (1, 2, 3):
        for card in range(3):
            seconds = [1e-3 * (1 + 0.01 * card) * (1 + 0.001 * each) for each in range(3)]
            info: dict[str, str | float] = {"timer": "cuda events"}
            rates = [1e6 / each for each in seconds]
            metrics = {
                "time": MetricSamples("s", "lower", seconds, info),
                "rate": MetricSamples("B/s", "higher", rates, info),
            }
            made = of_product(card, size, metrics, source={"sha256": "code"})
            append_record(record_file(results, made.machine, COMMIT), made)
        history = read(results, declared, {COMMIT: 0.0})
        workloads = find_workloads(history, build(history, Costs({})), [])
        rows.append([each.values for each in read_cards(workloads, {})])
    assert rows == [[], [], [3, 3, 3]]


def test_each_card_is_a_dot_of_its_class_and_one_unlike_all_others_is_named() -> None:
    usual = [reading(f"card {number}", 1 + 0.001 * number) for number in range(-4, 5)]
    slow = reading("card slow", 0.97)
    alone = reading("card x", 1.0, "sustained")
    of_host = [reading(f"card {number}", 2.0 + number, "host clock") for number in range(5)]
    drawn = draw_components([*usual, slow, alone, *of_host])
    names = re.findall(r'class="name"[^>]*>([^<]*)<', drawn)
    assert names == ["card slow"]
    assert drawn.count("<circle") == len(usual) + 1  # one card of a class tells nothing
    assert "boost, H200" in drawn and "sustained" not in drawn
    assert "card slow: 0.970× of 5 values" in drawn
    pair = [
        reading(name, times)._replace(others=1)
        for name, times in (("a", 0.97), ("b", 1.03))
    ]
    assert 'class="name"' not in draw_components([*usual, *pair])  # which of the two?
    assert drawn in fill(
        "evidence.html", project="p", **fill_evidence(cards=[*usual, slow])
    )


def test_a_card_that_changed_from_one_day_to_another_is_shown(tmp_path: Path) -> None:
    """Card 1 is 4 % slower after three days, card 0 as fast, card 2 ran other code; card 3 came
    back after an hour."""
    results = tmp_path / "results"
    factors = [1.0, 1.04, 1.5, 2.0]
    for card, factor in enumerate(factors):
        for visit in (0, 1):
            for size in (1, 2, 3):
                seconds = 1e-3 * size * factor**visit
                made = a_record(
                    "product",
                    {
                        "time": MetricSamples(
                            "s", "lower", [seconds] * 3, {"timer": "cuda events"}
                        )
                    },
                    gpu="NVIDIA H200",
                    card=f"GPU-card{card}",
                    params={"size": size},
                    run=f"{card} {visit}",
                    commit=COMMIT,
                    started=visit * (3600.0 if card == 3 else 3 * 86400.0),
                    source={"sha256": f"code{visit if card == 2 else 0}"},
                )
                append_record(record_file(results, made.machine, COMMIT), made)
    history = read(results, DECLARED, {COMMIT: 0.0})
    drifts = find_drifts(history)
    assert [(each.card, each.days, each.values) for each in drifts] == [
        ("card1", 3.0, 3),
        ("card0", 3.0, 3),
    ]
    assert drifts[0].times == pytest.approx(1 / 1.04)
    page = fill("evidence.html", project="p", **fill_evidence(drifts=drifts))
    words = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert "card1 NVIDIA H200 never throttled 3 0.962× 3 values" in words
    assert "no card was measured on two days" in page_of(tmp_path / "nothing")


@pytest.mark.parametrize("cards", [0, 1, 2])
def test_too_few_cards_are_no_picture(cards: int) -> None:
    assert draw_components([reading(f"card {each}", 1.0) for each in range(cards)]) == ""
