"""How small a slow-down a history shows, and how often it shows one that is none: tried on the
Records in results/.

    python tests/backtest_levels.py

The times of GPU kernels are tried, of the points that were measured often enough on the line of
main, by class of physics. *As measured*: each history is the runs of one point in their order.
*Resampled*: a history of COMMITS commits is made of the real cards of a point in random order, each
for as many commits in turn as real visits to a card had, with the real deviations of runs of one
code from their card's mean. A slow-down is planted at a commit by making it and all later readings
slower, and is looked for after it and each of the next SOON - 1 commits; a regression counts as
found where its range holds the commit. Without a planted one, every change that the page would list
is false.

As on the page, a p-value is corrected for all series of the site: here by multiplying it by their
number, which is stricter than the page is. `make docs` writes the table into
benchmarks/pages/measuring.md.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from hpml_plugins.analysis.levels import ENOUGH_WITH_INTERVAL, Readings
from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.physics import ON_GPU, Physics
from hpml_plugins.analysis.verdicts import ERROR_RATE
from hpml_plugins.asv.configuration import find_history
from hpml_plugins.model.figure import Table
from hpml_plugins.report.reading import (
    Hardware,
    History,
    Machine,
    TrackedBenchmark,
    TrackedMetric,
    read_history,
)
from hpml_plugins.report.site.changes import Change, MeasuredSeries, ask
from hpml_plugins.report.tables import as_markdown
from hpml_plugins.store import Index, commit_order

ROOT = Path(__file__).resolve().parent.parent
#: The planted slow-downs.
PLANTED = (0.03,)
#: Commits after which it has to be found, the first one with it.
SOON = 4
#: Of a resampled history; histories of each class, and how many of them without a slow-down.
COMMITS, HISTORIES, EQUAL = 20, 100, 50
#: Runs of a point from which it is tried as measured, and on how many cards from which it is
#: resampled.
ENOUGH_RUNS, ENOUGH_CARDS = 8, 3
METRIC = TrackedMetric(
    "b.track_time", TrackedBenchmark("b", "p", "b", "1", Index({})), "time", "s", "lower"
)
SERIES = MeasuredSeries(METRIC, "", Machine(Hardware(0, "GPU", "1"), "m"))

#: The runs of one point, in the order of their commits.
Runs = Sequence[MeasuredValue]


@dataclass
class Score:
    """The result of a class.

    points: tried.  found: slow-down → whether each planted one was found.  false: changes that
    were none, of so many readings.
    """

    points: int = 0
    found: dict[float, list[bool]] = field(
        default_factory=lambda: {size: [] for size in PLANTED}
    )
    false: int = 0
    readings: int = 0


def read(root: Path, results: Path) -> History:
    """The line of main, without loading plugins: benchmarks.json declares what they measured."""
    repository, branches = find_history(root)
    declared = json.loads((results / "benchmarks.json").read_text())
    entries = {name: entry for name, entry in declared.items() if isinstance(entry, dict)}
    return read_history(
        results, None, entries, commit_order(repository, results, branches), {}, print
    )


def runs_by_class(history: History) -> dict[Physics, list[Runs]]:
    """Class → the runs of each point whose time was measured on a GPU: those of the class of the
    newest."""
    found: dict[Physics, list[Runs]] = defaultdict(list)
    for metric in history.measured:
        if (metric.metric, metric.unit, metric.direction) != ("time", "s", "lower"):
            continue
        index = metric.benchmark.index
        for place in index:
            stored = [
                each
                for each in index.on_line(place)
                if each.revision >= 0 and metric.metric in each.readings
            ]
            stored.sort(key=lambda outcome: (outcome.revision, outcome.started))
            runs = [each.readings[metric.metric] for each in stored]
            if not runs or runs[-1].physics not in ON_GPU:
                continue
            alike = [each for each in runs if each.physics is runs[-1].physics]
            found[runs[-1].physics].append(alike)
            boosted = [each.boosted for each in alike if each.boosted]
            if boosted:
                found[Physics.BOOST].append(boosted)
    return found


def listed(runs: Runs, series: int) -> list[Change]:
    """The changes that the page lists of these readings, of which it has so many series."""
    readings = Readings.of(list(enumerate(runs)))
    if len(readings.readings) < 2 * ENOUGH_WITH_INTERVAL:
        return []
    told, asked = ask(SERIES, readings)
    answers = {question: series * each.p < ERROR_RATE for question, each in asked.items()}
    known = dataclasses.replace(told, answers=answers)
    return [*known.open, *known.changes]


def slowed(runs: Runs, at: int, size: float) -> Runs:
    """The same with all from a place on slower by a share."""
    return [
        replace(each, value=each.value * (1 + size)) if place >= at else each
        for place, each in enumerate(runs)
    ]


def is_found(runs: Runs, at: int, size: float, series: int) -> bool:
    """Whether a planted slow-down is listed soon."""
    planted = slowed(runs, at, size)
    for count in range(at + 1, min(at + SOON, len(runs)) + 1):
        if any(
            each.last < at <= each.first and each.verdict == "worse"
            for each in listed(planted[:count], series)
        ):
            return True
    return False


def false_changes(runs: Runs, series: int) -> int:
    """How many changes are listed after any of the commits, each counted once."""
    shown = {
        change.first
        for count in range(1, len(runs) + 1)
        for change in listed(runs[:count], series)
    }
    return len(shown)


def of_one_code(runs: Runs) -> Runs:
    """Those of the code that most of them had: others may have differed in speed."""
    most = Counter(each.code for each in runs).most_common(1)[0][0]
    return [each for each in runs if each.code == most]


def visits(points: Iterable[Runs]) -> list[int]:
    """How many runs in turn were on one card, of each visit to one."""
    cards = ([each.card for each in runs] for runs in points)
    return [len(list(visit)) for each in cards for _, visit in itertools.groupby(each)]


def resample(runs: Runs, lengths: Sequence[int], dice: random.Random) -> Runs:
    """A history of COMMITS commits; see the module.  lengths: of real visits."""
    by_card: dict[str, list[float]] = defaultdict(list)
    for each in runs:
        by_card[each.card].append(math.log(each.value))
    means = {card: statistics.fmean(values) for card, values in by_card.items()}
    deviations = [
        (value - means[card]) * math.sqrt(len(values) / (len(values) - 1))
        for card, values in by_card.items()
        for value in values
        if len(values) > 1
    ] or [0.0]
    made: list[MeasuredValue] = []
    while len(made) < COMMITS:
        card = dice.choice(list(means))
        for _ in range(dice.choice(lengths)):
            value = math.exp(means[card] + dice.choice(deviations))
            made.append(replace(runs[-1], value=value, card=card))
    return made[:COMMITS]


def try_class(
    points: Sequence[Runs], lengths: Sequence[int], series: int
) -> Iterator[tuple[str, Score]]:
    """(How, score) of a class: as measured, then resampled.  lengths: of real visits.  series: of
    the site."""
    measured = Score()
    for runs in points:
        if len(runs) >= ENOUGH_RUNS:
            measured.points += 1
            measured.readings += len(runs)
            measured.false += false_changes(runs, series)
            for at in range(SOON, len(runs) - SOON + 1):
                for size in PLANTED:
                    measured.found[size].append(is_found(runs, at, size, series))
    yield "as measured", measured
    alike = map(of_one_code, points)
    several = [
        runs
        for runs in alike
        if len(runs) > len({each.card for each in runs}) >= ENOUGH_CARDS
    ]
    resampled, dice = Score(points=len(several)), random.Random(0)
    for number in range(HISTORIES if several else 0):
        runs = resample(dice.choice(several), lengths, dice)
        if number < EQUAL:
            resampled.readings += len(runs)
            resampled.false += false_changes(runs, series)
        for size in PLANTED:
            resampled.found[size].append(
                is_found(runs, dice.randrange(COMMITS // 2, COMMITS - SOON), size, series)
            )
    yield "resampled", resampled


def backtest(root: Path, results: Path) -> str:
    """The table, as Markdown."""
    history = read(root, results)
    lines = (
        line
        for metric in history.measured
        for line in metric.benchmark.index.lines().values()
    )
    series = sum(len(line) >= 2 * ENOUGH_WITH_INTERVAL for line in lines)
    points = runs_by_class(history)
    lengths = visits(
        runs for found in points.values() for runs in found if len(runs) >= ENOUGH_RUNS
    )
    rows: list[dict[str, str | float | None]] = []
    for name in ON_GPU:
        for how, score in try_class(points[name], lengths, series):
            row: dict[str, str | float | None] = {
                "class": str(name),
                "histories": how,
                "points": score.points,
            }
            for size, found in score.found.items():
                row[f"+{100 * size:g} % found within {SOON} commits"] = (
                    f"{sum(found)} of {len(found)}"
                )
            row["false changes"] = f"{score.false} in {score.readings} point-commits"
            rows.append(row)
    return f"Of {series:,} series of the site:\n\n{as_markdown(Table.of(rows))}"


if __name__ == "__main__":
    sys.stdout.write(backtest(ROOT, ROOT / "results") + "\n")
