"""How often `hpml accept` fails a sound card, and finds a slow one, from Records: each card is
judged by the others, with one round of what it measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from hpml_plugins.analysis import card_of, hardware_of
from hpml_plugins.model import MetricSamples, Record
from hpml_plugins.tools.accept.bands import Bands, Component
from hpml_plugins.tools.accept.export import make_bands, usable
from hpml_plugins.tools.accept.judging import CardVerdict, judge_card

#: Faults that are planted into what a card measured: title → component and factor of its times.
PLANTED: Mapping[str, tuple[Component, float]] = {
    "memory 5 % slower, found": ("memory", 1 / 0.95),
    "clocks 10 % slower, found": ("clocks", 1 / 0.9),
    "link halved, found": ("link", 2.0),
}


def back_test(records: Iterable[Record]) -> Iterator[dict[str, str]]:
    """A row of each type: how many cards pass and fail, and how many planted faults are found."""
    used = list(usable(records))
    bands = make_bands(used)
    by_card: dict[tuple[str, str], dict[str, Record]] = defaultdict(dict)
    for record in sorted(used, key=lambda each: each.started):
        by_card[hardware_of(record), card_of(record)][record.point] = one_round(record)
    told = [
        each.hardware
        for each in bands.populations
        if any(band.component != "link" for band in each.bands)  # not of several cards
    ]
    for hardware in dict.fromkeys(told):
        cards = {
            card: list(points.values())
            for (of_card, card), points in by_card.items()
            if of_card == hardware
        }
        yield _row(hardware, cards, bands)


def _row(hardware: str, cards: Mapping[str, list[Record]], bands: Bands) -> dict[str, str]:
    found = [_judge(card, hardware, records, bands) for card, records in cards.items()]
    count = {each.card: each.verdict for each in found}
    row = {"type": hardware, "cards": str(len(found))}
    for verdict in ("fail", "pass", "cannot say"):
        row[verdict] = str(sum(each == verdict for each in count.values()))
    for title, (component, factor) in PLANTED.items():
        row[title] = _found(found, cards, bands, component, factor)
    return row


def _found(
    found: Iterable[CardVerdict],
    cards: Mapping[str, list[Record]],
    bands: Bands,
    component: Component,
    factor: float,
) -> str:
    """`7 of 8`: of the cards that measured the component, and did not fail before."""
    results = []
    for before in found:
        slowed = {each.benchmark for each in before.values if each.component == component}
        if not slowed or before.verdict == "fail":
            continue
        points = {
            (each.benchmark, str(each.params), each.metric): factor
            for each in before.values
            if each.component == component
        }
        records = [_slowed(record, points) for record in cards[before.card]]
        results.append(
            _judge(before.card, before.hardware, records, bands).verdict == "fail"
        )
    return f"{sum(results)} of {len(results)}" if results else "–"


def _judge(card: str, hardware: str, records: list[Record], bands: Bands) -> CardVerdict:
    return judge_card(card, hardware, records, bands, ("pass", ""))


def one_round(record: Record) -> Record:
    """What the first round alone measured."""
    metrics = {name: _first_round(metric) for name, metric in record.metrics.items()}
    return msgspec.structs.replace(record, metrics=metrics)


def _first_round(metric: MetricSamples) -> MetricSamples:
    first = metric.rounds[0] if metric.rounds else len(metric.samples)
    at_boost = metric.boost_rounds[0] if metric.boost_rounds else len(metric.boost)
    return msgspec.structs.replace(
        metric,
        samples=metric.samples[:first],
        boost=metric.boost[:at_boost],
        rounds=[],
        boost_rounds=[],
    )


def _slowed(record: Record, points: Mapping[tuple[str, str, str], float]) -> Record:
    """The Record with these metrics slower, in both regimes."""
    metrics = dict(record.metrics)
    for name, metric in record.metrics.items():
        factor = points.get((record.benchmark, str(record.params), name))
        if factor:
            metrics[name] = msgspec.structs.replace(
                metric,
                samples=[factor * each for each in metric.samples],
                boost=[factor * each for each in metric.boost],
            )
    return msgspec.structs.replace(record, metrics=metrics)
