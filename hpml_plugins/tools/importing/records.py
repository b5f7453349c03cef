"""Converts a result file of another tool into Records, and into a results folder that can be
merged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.model import MetricSamples, Record, format_point
from hpml_plugins.store import (
    DECLARATIONS,
    append_record,
    asv_name,
    declare_metric,
    decode,
    path_in,
    read_object_or_empty,
    record_file,
    save_declarations,
)
from hpml_plugins.tools.importing.reading import (
    EVENTS,
    ForeignPoint,
    Source,
    identifier,
)

MACHINE = "machine.json"


def to_records(source: Source, content: bytes) -> list[Record]:
    """The Records of a file; readings of one point are joined.

    source: with the machine filled in.  content: of the file; importing the same again gives the
    same Records. If the commit is unknown, each file counts as different code. Raises HpmlError if
    two benchmarks would share a name, and for values that no Record may have.
    """
    digest = hashlib.sha256(content).hexdigest()
    origin = (
        {"tool": source.tool} if source.commit else {"tool": source.tool, "sha256": digest}
    )
    points: dict[tuple[str, str], ForeignPoint] = {}
    for reading in source.readings:
        key = (identifier(reading.name), format_point(reading.params))
        points[key] = _joined(points[key], reading) if key in points else reading
    return [
        _record(source, reading, name, origin, run=f"import-{digest[:16]}")
        for (name, _), reading in points.items()
    ]


def _joined(before: ForeignPoint, reading: ForeignPoint) -> ForeignPoint:
    """One reading with the samples of both; if one failed, the point failed."""
    if before.name != reading.name:
        raise HpmlError(
            f"{before.name!r} and {reading.name!r} would both be {identifier(reading.name)!r}"
            " here; rename one"
        )
    failed = next((each for each in (before, reading) if each.failure), None)
    if failed:
        return failed
    metrics = dict(reading.metrics)
    for name, found in before.metrics.items():
        after = metrics.get(name)
        samples = [*found.samples, *(after.samples if after else ())]
        metrics[name] = msgspec.structs.replace(found, samples=samples)
    return replace(before, metrics=metrics)


def _record(
    source: Source, reading: ForeignPoint, name: str, origin: dict[str, str], run: str
) -> Record:
    packages = {source.tool: source.version} if source.version else {}
    node = dict(source.node)
    if reading.gpus is not None:
        node["gpus"] = [{"name": gpu} for gpu in reading.gpus]
    status = "skipped" if reading.is_skipped else "failed" if reading.failure else "ok"
    made = Record(
        benchmark=name,
        plugin=source.tool,
        version=reading.version,
        params=dict(reading.params),
        status=status,  # type: ignore[arg-type]  # of three literals
        reason=reading.failure,
        metrics=_timed(reading),
        warnings=list(source.warnings),
        started=reading.started,
        machine=source.machine,
        commit=source.commit,
        environment=source.environment or source.tool,
        node=node,
        packages=packages,
        source=origin,
        run=run,
    )
    try:
        return decode(msgspec.json.encode(made))
    except (ValueError, RecursionError) as error:
        raise HpmlError(f"{reading.name[:80]!r} cannot be stored: {error}") from None


def _timed(reading: ForeignPoint) -> dict[str, MetricSamples]:
    """Its metrics; without their timers if an unknown GPU was timed, because these are not timers
    of a CPU."""
    found = dict(reading.metrics)
    if reading.gpus is not None:
        return found
    for name, each in found.items():
        if reading.gpu_count or each.info.get("timer") == EVENTS:
            info = {key: value for key, value in each.info.items() if key != "timer"}
            found[name] = msgspec.structs.replace(each, info=info, timers=[])
    return found


def write_results(records: Sequence[Record], folder: Path, into: Path) -> None:
    """Write a results folder of these Records for merging into another.

    A machine that is already known there keeps its facts.
    """
    for record in records:
        append_record(record_file(folder, record.machine, record.commit), record)
        facts = path_in(folder, record.machine, MACHINE)
        known = path_in(into, record.machine, MACHINE).exists()
        if not (known or facts.exists()):
            facts.write_text(json.dumps(_machine(record)), encoding="utf-8")
    _refuse_taken(records, into)
    save_declarations(folder, _declarations(records))


def _machine(record: Record) -> dict[str, Any]:
    """machine.json, from the file's facts about its machine."""
    names = ("os", "arch", "cpu", "num_cpu")
    facts = {name: str(record.node[name]) for name in names if name in record.node}
    if "gpus" in record.node:
        facts |= {"gpu": record.gpu_type, "num_gpu": str(len(record.gpus))}
    return {"machine": record.machine, **facts, "version": 1}


def _refuse_taken(records: Iterable[Record], into: Path) -> None:
    """Raise HpmlError if another plugin's benchmark has the name of one of these."""
    declared = read_object_or_empty(into / DECLARATIONS)
    for record in records:
        for metric in record.metrics:
            entry = declared.get(asv_name(record.benchmark, metric))
            owner = entry.get("plugin") if isinstance(entry, dict) else None
            if owner not in (None, record.plugin):
                raise HpmlError(
                    f"benchmark {record.benchmark!r} is one of plugin {owner!r} in {into};"
                    " rename it where it was measured"
                )


def _declarations(records: Iterable[Record]) -> Iterable[Any]:
    """The declarations of the benchmarks: metrics with their units, and the parameter values of all
    points."""
    by_metric: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        for metric in record.metrics:
            by_metric.setdefault((record.benchmark, metric), []).append(record)
    for (benchmark, metric), found in by_metric.items():
        first: MetricSamples = found[0].metrics[metric]
        grid = _grid([record.params for record in found])
        yield declare_metric(
            benchmark,
            metric,
            first.unit,
            first.direction,
            version=found[0].version,
            param_names=list(grid),
            params=list(grid.values()),
            code=f"# imported from {found[0].plugin}",
            plugin=found[0].plugin,
        )


def _grid(points: Sequence[Mapping[str, object]]) -> dict[str, list[str]]:
    """Parameter → its values as Python's repr, from the points with the same parameters as the
    first."""
    alike = [point for point in points if point.keys() == points[0].keys()]
    return {
        name: list(dict.fromkeys(repr(point[name]) for point in alike))
        for name in points[0]
    }
