"""asv: a file of `results/MACHINE/`, with benchmarks.json in the folder above.

Source: files of asv 0.6.6. With `asv run --record-samples` each sample is one of the Record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.model import UNITS, MetricSamples, Record
from hpml_plugins.store import read_foreign, read_object_or_empty
from hpml_plugins.tools.importing.reading import CLOCK, ForeignPoint, Source

TOOL = "asv"
#: Facts of asv's machine.json that a Record's node has too.
_FACTS = ("os", "arch", "cpu")


def read(path: Path, text: str, found: Any) -> Source | None:
    """See `formats`."""
    if not (isinstance(found, dict) and {"commit_hash", "result_columns"} <= found.keys()):
        return None
    results = path.resolve().parent.parent
    for needed in (results / "benchmarks.json", path.resolve().parent / "machine.json"):
        if not needed.is_file():
            raise HpmlError(
                f"{needed.name} is missing, which asv writes to {needed.parent}"
            )
    commit = str(found["commit_hash"])
    environment = str(found.get("env_name", ""))
    records = [
        record
        for record in read_foreign(results)
        if (record.commit, record.environment) == (commit, environment)
        and record.machine == path.resolve().parent.name
        and record.status != "skipped"
    ]
    facts = read_object_or_empty(path.resolve().parent / "machine.json")
    node = {name: facts[name] for name in _FACTS if isinstance(facts.get(name), str)}
    return Source(
        TOOL,
        [_reading(record) for record in records],
        machine=records[0].machine if records else "",
        commit=commit,
        environment=environment,
        node=node,
    )


def _reading(record: Record) -> ForeignPoint:
    metrics = {name: _as_measured(each) for name, each in record.metrics.items()}
    return ForeignPoint(
        record.benchmark,
        record.params,
        metrics,
        record.reason,
        started=record.started,
        version=record.version,
    )


def _as_measured(found: MetricSamples) -> MetricSamples:
    """Only the samples: the stored metric has the interval of its samples, not asv's."""
    info: dict[str, str | float] = {"timer": CLOCK} if found.unit == "s" else {}
    if found.unit in UNITS:
        return MetricSamples(found.unit, found.direction, found.samples, info)
    return MetricSamples("1", found.direction, found.samples, {"unit": found.unit})
