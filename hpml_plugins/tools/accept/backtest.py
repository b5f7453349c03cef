"""How often `hpml accept` fails a sound card and detects a slow one, from Records: each card is
judged against the others, from one round of its measurements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from hpml_plugins.analysis import card_of, hardware_of
from hpml_plugins.model import Record
from hpml_plugins.tools.accept.bands import Bands, Component
from hpml_plugins.tools.accept.export import make_bands, usable
from hpml_plugins.tools.accept.judging import CardVerdict, judge_card

#: Faults that are injected into a card's measurements: title → component and factor of its times.
PLANTED: Mapping[str, tuple[Component, float]] = {
    "memory 5 % slower, found": ("memory", 1 / 0.95),
    "clocks 10 % slower, found": ("clocks", 1 / 0.9),
    "link halved, found": ("link", 2.0),
}


#: By type: card and round → its Records.
Visits = dict[tuple[str, int], list[Record]]


def back_test(records: Iterable[Record]) -> Iterator[dict[str, str]]:
    """One row per type: how many visits pass and fail, and how many injected faults are found."""
    used = list(usable(records))
    bands = make_bands(used)
    visits = _visits(used)
    judged = [
        each.hardware
        for each in bands.populations
        if any(band.component != "link" for band in each.bands)  # not of several cards
    ]
    for hardware in dict.fromkeys(judged):
        yield _row(hardware, visits[hardware], bands)


def _visits(used: Iterable[Record]) -> dict[str, Visits]:
    """By type, the measurements of each card in each round, the newest of each point. A value with
    fewer rounds is repeated in the others."""
    newest: dict[tuple[str, str], dict[str, Record]] = defaultdict(dict)
    for record in sorted(used, key=lambda each: each.started):
        newest[hardware_of(record), card_of(record)][record.point] = record
    visits: dict[str, Visits] = defaultdict(dict)
    for (hardware, card), points in newest.items():
        for number in range(max(each.measured_rounds for each in points.values())):
            of_round = [one_round(each, number) for each in points.values()]
            visits[hardware][card, number] = of_round
    return visits


def _row(hardware: str, visits: Visits, bands: Bands) -> dict[str, str]:
    found = {
        visit: _judge(visit[0], hardware, records, bands)
        for visit, records in visits.items()
    }
    cards = {card for card, _ in visits}
    row = {"type": hardware, "cards": str(len(cards)), "rounds": str(len(visits))}
    for verdict in ("fail", "pass", "cannot say"):
        row[verdict] = str(sum(each.verdict == verdict for each in found.values()))
    for title, (component, factor) in PLANTED.items():
        row[title] = _found(found, visits, bands, component, factor)
    return row


def _found(
    found: Mapping[tuple[str, int], CardVerdict],
    visits: Visits,
    bands: Bands,
    component: Component,
    factor: float,
) -> str:
    """`7 of 8`: of the visits that measured the component and passed without the fault."""
    results = []
    for visit, before in found.items():
        points = {
            (each.benchmark, str(each.params), each.metric): factor
            for each in before.values
            if each.component == component
        }
        if points and before.verdict != "fail":
            records = [_slowed(record, points) for record in visits[visit]]
            after = _judge(before.card, before.hardware, records, bands)
            results.append(after.verdict == "fail")
    return f"{sum(results)} of {len(results)}" if results else "–"


def _judge(card: str, hardware: str, records: list[Record], bands: Bands) -> CardVerdict:
    return judge_card(card, hardware, records, bands, ("pass", ""))


def one_round(record: Record, number: int = 0) -> Record:
    """The values of one round; of the last one, if there are fewer."""
    metrics = {name: each.of_round(number) for name, each in record.metrics.items()}
    return msgspec.structs.replace(record, metrics=metrics)


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
