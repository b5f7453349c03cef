"""The newest Records of each point: what its page shows of them, and their lines as they are
stored, to save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpml_plugins.analysis.measured import MeasuredValue, card_of
from hpml_plugins.model import formatting
from hpml_plugins.model.differences import spell_card, unusual_conditions
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.model.rounds import join_rounds
from hpml_plugins.model.serialization import decode, encode
from hpml_plugins.model.validation import may_need_cleaning
from hpml_plugins.report.reading import History, Machine, Outcome, TrackedBenchmark, stored_lines
from hpml_plugins.report.site.nodes import record_facts
from hpml_plugins.report.site.page import write_data

FOLDER = "records"
#: How many Records of a point are shown, and can be saved: the newest; `hpml export` has all.
MOST_RECORDS = 100

#: (benchmark, point) → the address of its newest Records, how many there are in all; skipped ones
#: do not count.
Addresses = Mapping[tuple[str, str], tuple[str, int]]


def write_records(history: History, html_dir: Path) -> Addresses:
    """Write a file for each point of which something else than skips is stored; returns where."""
    addresses: dict[tuple[str, str], tuple[str, int]] = {}
    for benchmark in history.benchmarks:
        for label in benchmark.points:
            stored = [
                (number, each)
                for number, machine in enumerate(history.machines)
                for each in benchmark.index.stored((label, machine.name))
                if each.file and each.status != "skipped"
            ]
            if stored:
                stored.sort(key=lambda placed: placed[1].started, reverse=True)
                address = f"{FOLDER}/{len(addresses)}.js"
                records = [_shown(history, *placed) for placed in stored[:MOST_RECORDS]]
                facts = _facts(history.machines, benchmark, label)
                write_data(html_dir, address, {"records": records, "facts": facts})
                addresses[benchmark.name, label] = address, len(stored)
    return addresses


def _shown(history: History, number: int, outcome: Outcome) -> dict[str, Any]:
    """A Record as the page's script reads it.

    place: the machine's number.  at: the commit's place, None where it is not published.  lines: as
    they are stored, one for each round; the script reads the samples there.
    """
    stored = list(stored_lines([outcome]))
    lines = [encode(decode(line)) if may_need_cleaning(line) else line for line in stored]
    (record,) = join_rounds(map(decode, lines))
    return {
        "place": number,
        "at": history.columns.get(outcome.revision),
        "commit": record.commit,
        "started": outcome.started,
        "card": spell_card(card_of(record)),
        "code": outcome.code,
        "status": outcome.status,
        "reason": outcome.reason,
        "warnings": outcome.warnings,
        "conditions": unusual_conditions(record),
        "metrics": {
            name: _numbers(each, record.metrics[name]) for name, each in outcome.readings.items()
        },
        "lines": [line.decode(errors="replace") for line in lines],
    }


def _numbers(value: MeasuredValue, metric: MetricSamples) -> dict[str, Any]:
    """medians: of each round.  count: of samples."""
    return {
        "text": formatting.estimate(value.own, metric.unit),
        "regime": metric.regime,
        "medians": [float(f"{median:.7g}") for median in metric.round_medians],
        "count": len(metric.samples),
    }


def _facts(
    machines: Sequence[Machine], benchmark: TrackedBenchmark, label: str
) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The newest Record of each GPU type: its hardware, its machine, the facts of its node."""
    newest: dict[str, tuple[float, str, list[tuple[str, str]]]] = {}
    for machine in machines:
        _, record = benchmark.current.get((label, machine.name), (None, None))
        hardware = machine.hardware.label
        if record and (hardware not in newest or record.started > newest[hardware][0]):
            newest[hardware] = record.started, machine.name, list(record_facts(record))
    return [(hardware, name, facts) for hardware, (_, name, facts) in newest.items()]
