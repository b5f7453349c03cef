"""The reliability of this site's verdicts: the back-test of the Records from which its pages are
made."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from hpml_plugins.analysis.backtest import BackTest, ClassResult, MeasuredPoint
from hpml_plugins.report.kept import (
    EVIDENCE,
    keep,
    kept_file,
    package_digest,
    read_kept,
)
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.component_strips import draw_components
from hpml_plugins.report.site.components import (
    MOST_CARDS,
    CardReading,
    Drift,
    cover_types,
    draw_lots,
)
from hpml_plugins.report.site.nodes import ENOUGH_PASSES, MOST_NAMED, Gaps, NodeCoverage

#: msgpack, unlike JSON, has infinite numbers.
_DECODER: Final = msgspec.msgpack.Decoder(list[ClassResult])


def fill_evidence(
    machines: Sequence[NodeCoverage] = (),
    gaps: Sequence[Gaps] = (),
    evidence: Sequence[ClassResult] = (),
    cards: Sequence[CardReading] = (),
    warnings: Sequence[tuple[str, int, int]] = (),
    drifts: Sequence[Drift] = (),
) -> dict[str, Any]:
    """The variables for the template of the page of evidence, by name.

    evidence: see `find_evidence`.  warnings: the text of a kind, and its numbers of Records and
    machines.
    """
    return {
        "machines": machines,
        "gaps": gaps,
        "enough_passes": ENOUGH_PASSES,
        "evidence": evidence,
        "cards": cards,
        "lots": draw_lots(cards),
        "drifts": drifts,
        "strips": draw_components(cards),
        "most_cards": MOST_CARDS,
        "most_named": MOST_NAMED,
        "types": cover_types(machines),
        "warnings": warnings,
    }


def find_evidence(history: History, *, keeps: bool = False) -> list[ClassResult]:
    """The result of each class in which at least two cards of a type measured values with equal
    code.

    keeps: take the results from the user's cache if all inputs are the same. For this repository's
    results the back-test takes 8 s of one CPU.
    """
    if not keeps:
        return _back_test(history)
    inputs = hashlib.sha256(package_digest())
    inputs.update(repr(history.references).encode())
    for benchmark in history.benchmarks:
        for place in benchmark.index:
            inputs.update(repr((benchmark.name, place)).encode())
            inputs.update(benchmark.digest(place))
    file = kept_file(inputs.hexdigest(), EVIDENCE)
    if made := read_kept(file):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            return _DECODER.decode(made)
    results = _back_test(history)
    keep(file, msgspec.msgpack.encode(results))
    return results


def _back_test(history: History) -> list[ClassResult]:
    measured = itertools.chain.from_iterable(_measured_points(history))
    return [*BackTest(measured, history.references).results.values()]


def _measured_points(history: History) -> Iterator[list[MeasuredPoint]]:
    """What was measured at each place, including commits outside the line, because the variation of
    equal code does not depend on it."""
    for benchmark in history.benchmarks:
        for place in benchmark.index:
            label, machine = place
            yield [
                MeasuredPoint(machine, benchmark.name, label, outcome.readings)
                for outcome in benchmark.index.stored(place)
            ]
