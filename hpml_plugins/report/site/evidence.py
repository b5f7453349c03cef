"""The reliability of this site's verdicts: the back-test of the Records from which its pages are
made."""

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
    """The variables for the template of the page of evidence, by name.

    evidence: see `find_evidence`.  warnings: the text of a kind, and its numbers of Records and
    machines.
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
    """The result of each class in which at least two cards of a type measured values with equal
    code."""
    return [*BackTest(_measured_points(history), history.references).results.values()]


def _measured_points(history: History) -> Iterator[MeasuredPoint]:
    """What was measured, including commits outside the line, because the variation of equal code
    does not depend on it."""
    for benchmark in history.benchmarks:
        for label, machine in benchmark.index:
            for outcome in benchmark.index.stored((label, machine)):
                yield MeasuredPoint(machine, benchmark.name, label, outcome.readings)
