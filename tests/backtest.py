"""Print how well intervals and verdicts hold over the Records in results/: `python
tests/backtest.py [RESULTS] [--since DAY]`.

Cards are left out and predicted by the others; see `hpml_plugins.analysis.backtest`. `make docs`
writes the same tables into benchmarks/pages/measuring.md.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from hpml_plugins.analysis.backtest import (
    FOUND,
    BackTest,
    ClassResult,
    MeasuredPoint,
    smallest_in_most,
)
from hpml_plugins.analysis.measured import MeasuredValue, card_of
from hpml_plugins.analysis.physics import ON_GPU, Physics, compared_metrics
from hpml_plugins.analysis.reference import References
from hpml_plugins.model.figure import Table
from hpml_plugins.model.record import Record
from hpml_plugins.report.tables import as_markdown
from hpml_plugins.store import read_records

Results = Mapping[Physics, ClassResult]
#: The slow-downs of which it is told how often they are found.
PLANTED = (0.05, 0.10)


def measured_points(records: Iterable[Record]) -> Iterator[MeasuredPoint]:
    """Of each Record that was measured."""
    for record in records:
        if record.status == "ok":
            names = compared_metrics(record)
            values = {name: MeasuredValue.of(record, name) for name in names}
            yield MeasuredPoint(record.machine, record.benchmark, record.point, values)


def of_cards(result: ClassResult, cards: Collection[str]) -> ClassResult:
    """Of the values that these cards measured, predicted by all cards and compared with all."""
    return ClassResult(
        result.physics,
        [each for each in result.left_out if each.card in cards],
        [each for each in result.pairs if any(card in cards for card in each.cards)],
    )


def by_the_reference(result: ClassResult) -> ClassResult:
    """Of the pairs whose factors of the cards were taken out."""
    return ClassResult(result.physics, [], [each for each in result.pairs if each.adjusted])


def with_references(result: ClassResult) -> ClassResult:
    """Of the pairs of visits that both measured the reference steps: what users get."""
    return ClassResult(
        result.physics, [], [each for each in result.pairs if each.referenced]
    )


def empirical_half_width(result: ClassResult) -> float:
    """The half width that would hold 95 % of the values that were left out."""
    return float(np.quantile([each.error for each in result.left_out], FOUND))


def coverage_table(results: Results) -> Iterator[dict[str, str]]:
    """Of each class how often its intervals hold another card's value, and how wide they are."""
    for physics, result in results.items():
        yield {
            "class": str(physics),
            "cards": str(len(result.cards)),
            "values left out": str(len(result.covered)),
            "covered": f"{statistics.fmean(result.covered):.1%}",
            "mean of cards": f"{statistics.fmean(result.covered_of_a_card):.1%}",
            "half width": f"{result.half_width:.2%}",
            "half width that would hold 95 %": f"{empirical_half_width(result):.2%}",
        }


def verdict_table(results: Results) -> Iterator[dict[str, str]]:
    """Of each class how often equal code is called different, and how often a slow-down is
    found."""
    groups: dict[str, list[ClassResult]] = {}
    for physics, result in results.items():
        groups[str(physics)] = [result]
        groups[f"{physics}, by the reference"] = [by_the_reference(result)]
    groups["all classes of a GPU"] = [
        results[physics] for physics in ON_GPU if physics in results
    ]
    groups["all classes of a GPU, both visits with the reference"] = [
        with_references(each) for each in groups["all classes of a GPU"]
    ]
    groups["all"] = list(results.values())
    for name, members in groups.items():
        if pairs := sum(len(each.pairs) for each in members):
            row = {"class": name, "pairs of cards": str(pairs)}
            row["called different, alone"] = (
                f"{sum(sum(each.called) for each in members) / pairs:.2%}"
            )
            together = sum(sum(each.called_together) for each in members)
            row["called different, corrected"] = f"{together / pairs:.2%}"
            smallest = [size for each in members for size in each.smallest]
            for planted in PLANTED:
                count = sum(size < math.log1p(planted) for size in smallest)
                row[f"{planted:.0%} found, alone"] = f"{count / pairs:.1%}"
            row[f"found in {FOUND:.0%} of pairs"] = (
                f"{math.expm1(smallest_in_most(smallest)):.1%}"
            )
            yield row


def cards_since(records: Iterable[Record], day: datetime) -> set[str]:
    """The cards of which no Record is from before a day, UTC."""
    first: dict[str, float] = {}
    for record in records:
        card = card_of(record)
        first[card] = min(record.started, first.get(card, math.inf))
    return {card for card, started in first.items() if started >= day.timestamp()}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    parser.add_argument(
        "--since",
        type=lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
        metavar="DAY",
        help="only of cards first measured since this day: a blind test of rules that are older",
    )
    given = parser.parse_args()
    records = list(read_records(given.results))
    results = BackTest(measured_points(records), References.of(records)).results
    if given.since:
        cards = cards_since(records, given.since)
        chosen = {name: of_cards(result, cards) for name, result in results.items()}
        results = {name: result for name, result in chosen.items() if result.left_out}
    for rows in (coverage_table(results), verdict_table(results)):
        print(as_markdown(Table.of(list(rows))), end="\n\n")


if __name__ == "__main__":
    main()
