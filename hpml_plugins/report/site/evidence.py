"""How well the verdicts of this site hold: the back-test of the Records that its pages are made of,
on the page of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpml_plugins.analysis.backtest import BackTest, ClassResult, MeasuredPoint
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.component_strips import draw_components
from hpml_plugins.report.site.components import (
    MOST_CARDS,
    CardReading,
    cover_types,
    draw_lots,
)
from hpml_plugins.report.site.nodes import ENOUGH_PASSES, MOST_NAMED, Gaps, NodeCoverage


def fill_evidence(
    project: str,
    machines: Sequence[NodeCoverage] = (),
    gaps: Sequence[Gaps] = (),
    evidence: Sequence[ClassResult] = (),
    cards: Sequence[CardReading] = (),
    warnings: Sequence[tuple[str, int, int]] = (),
) -> dict[str, Any]:
    """What the template of the page of evidence is filled with, by name.

    evidence: see `find_evidence`.  warnings: a kind's text, Records and machines that have it.
    """
    return {
        "project": project,
        "machines": machines,
        "gaps": gaps,
        "enough_passes": ENOUGH_PASSES,
        "evidence": evidence,
        "cards": cards,
        "lots": draw_lots(cards),
        "strips": draw_components(cards),
        "most_cards": MOST_CARDS,
        "most_named": MOST_NAMED,
        "types": cover_types(machines),
        "warnings": warnings,
    }


def find_evidence(history: History) -> list[ClassResult]:
    """Of each class of which two cards of a type or more measured values by equal code."""
    return [*BackTest(_measured_points(history), history.references).results.values()]


def _measured_points(history: History) -> Iterator[MeasuredPoint]:
    """What was measured, also outside the line: how far equal code moves does not depend on it."""
    for benchmark in history.benchmarks:
        for label, machine in benchmark.index:
            for outcome in benchmark.index.stored((label, machine)):
                yield MeasuredPoint(machine, benchmark.name, label, outcome.readings)
