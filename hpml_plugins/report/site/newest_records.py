"""The newest Records of each point: to download as they are stored, and what the page of the point shows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpml_plugins.model import formatting
from hpml_plugins.model.differences import spell_card, unusual_conditions
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.model.variability import MeasuredValue, card_of
from hpml_plugins.report.reading import History, Machine, Outcome, TrackedBenchmark, stored_lines, stored_record
from hpml_plugins.report.site.nodes import record_facts
from hpml_plugins.report.site.page import write_data

FOLDER = "records"
#: How many Records of a point can be downloaded, and are shown: the newest; `hpml export` has all.
MOST_RECORDS = 100

#: (benchmark, point) → the address of its Records without the ending (`.jsonl`: as stored, `.js`: as shown), how many
#: there are.
Addresses = Mapping[tuple[str, str], tuple[str, int]]
#: The machine's number, and a Record of it.
Placed = tuple[int, Outcome]


def write_records(history: History, html_dir: Path) -> Addresses:
    """Write two files for each point that something else than skips is stored of; returns where."""
    addresses: dict[tuple[str, str], tuple[str, int]] = {}
    for benchmark in history.benchmarks:
        for label in benchmark.points:
            stored = [
                (number, each)
                for number, machine in enumerate(history.machines)
                for each in benchmark.outcomes.get((label, machine.name), ())
                if each.file
            ]
            if any(each.status != "skipped" for _, each in stored):
                stored.sort(key=lambda placed: placed[1].started)
                (html_dir / FOLDER).mkdir(exist_ok=True)
                address = f"{FOLDER}/{len(addresses)}"
                lines = stored_lines(each for _, each in stored[-MOST_RECORDS:])
                (html_dir / f"{address}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
                shown = [placed for placed in stored if placed[1].status in ("ok", "failed")][-MOST_RECORDS:]
                facts = _facts(history.machines, benchmark, label)
                found = {"records": [_shown(history, *placed) for placed in reversed(shown)], "facts": facts}
                write_data(html_dir, f"{address}.js", found)
                addresses[benchmark.name, label] = address, len(stored)
    return addresses


def _shown(history: History, number: int, outcome: Outcome) -> dict[str, Any]:
    """A Record as the page's script reads it.

    place: the machine's number.  at: the commit's place, None where it is not published.
    """
    record = stored_record(outcome)
    return {
        "place": number,
        "at": history.columns.get(outcome.revision),
        "commit": record.commit,
        "started": outcome.started,
        "card": spell_card(card_of(record)),
        "code": outcome.code,
        "failed": outcome.reason or "failed" if outcome.status == "failed" else "",
        "warnings": outcome.warnings,
        "conditions": unusual_conditions(record),
        "metrics": {name: _numbers(each, record.metrics[name]) for name, each in outcome.readings.items()},
    }


def _numbers(value: MeasuredValue, metric: MetricSamples) -> dict[str, Any]:
    """medians: of each round.  rounds: how many of the samples are of each."""
    return {
        "text": formatting.estimate(value.own, metric.unit),
        "regime": metric.regime,
        "medians": [float(f"{median:.7g}") for median in metric.round_medians],
        "rounds": metric.rounds,
        "samples": metric.samples,
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
