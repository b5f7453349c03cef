"""Records as lines of JSON: writing them, and reading Records of any age."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from hpml_plugins.errors import Failure
from hpml_plugins.model.record import SCHEMA, STACK, THROTTLED, Record
from hpml_plugins.model.units import UNITS
from hpml_plugins.model.validation import check_record, check_schema, cleaned

#: Significant digits of a stored sample. A clock of 1 ns resolves six digits of a sample of 1
#: ms; the rest is noise.
DIGITS = 9
#: Beginnings of the reasons stored before failures had a kind; all other reasons come from
#: errors in `measure`.
_REASONS = {
    Failure.CHECK: r"(rank \d+: )?check failed: ",
    Failure.TIMEOUT: r"(ranks )?timed out after ",
    Failure.SIGNAL: r"died of ",
    Failure.EXIT: r"ended with exit status ",
    Failure.LIMIT: r"more than \d+ processes at once|sent a message of more than ",
    Failure.SUPERVISOR: r"its supervising process was killed or stopped",
    Failure.RESULT: (
        r"its result cannot be stored|it sent what cannot be read|it reported \d+ times"
        r"|metric '|measure returned |work is declared of "
    ),
    Failure.GPU: r"GPU \d+ \(.*\) (is lost|had \d+ memory errors)",
}

#: Beginnings of noise warnings stored before these had their own field.
_NOISE = re.compile(
    r"(rank \d+: )?[^:]*: (the median is known to ±|unstable, coefficient of variation"
    r"|\d+ of \d+ samples are far outliers)"
)


def shorten(record: Record) -> Record:
    """The record in stored precision: samples with DIGITS significant digits, counts unchanged."""
    metrics = dict(record.metrics)
    for name, each in metrics.items():
        if each.unit in UNITS and not UNITS[each.unit].count:
            metrics[name] = msgspec.structs.replace(
                each, samples=_shortened(each.samples), boost=_shortened(each.boost)
            )
    return msgspec.structs.replace(record, metrics=metrics)


def _shortened(samples: list[float]) -> list[float]:
    return [float(f"{sample:.{DIGITS}g}") for sample in samples]


def encode(record: Record) -> bytes:
    """The record as one line of JSON, without the line break."""
    return msgspec.json.encode(record)


def decode(line: bytes) -> Record:
    """Decode a Record from a line of JSON and check it with `hpml_plugins.model.validation`. All
    Records are read with this function.

    Raises msgspec.DecodeError, or UnicodeDecodeError for text that is not UTF-8.
    """
    try:
        record = _decode_known(line)
    except RecursionError:
        raise msgspec.DecodeError("nested too deep") from None
    check_record(record, SCHEMA)
    return upgrade(cleaned(record))


def _decode_known(line: bytes) -> Record:
    """Decode a Record of a schema that this version knows. Raises msgspec.DecodeError for
    another."""
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError:
        # a later schema may have another structure
        check_schema(_HEAD_DECODER.decode(line).schema, SCHEMA)
        raise


class _Head(msgspec.Struct):
    schema: Any = SCHEMA


def upgrade(record: Record) -> Record:
    """Add the facts that were introduced after the Record was written, which it contains only in
    words.

    `throttled` and `noise` come from its warnings, `failure` and `requirement_unmet` from its
    reason, `of_stack` from the name of its environment. The facts of a metric are derived from its
    info (`MetricSamples`).
    """
    facts: dict[str, Any] = {}
    if not record.throttled and (reason := _throttled_of(record.warnings)):
        facts["throttled"] = reason
    if noise := [text for text in record.warnings if _NOISE.match(text)]:
        facts["noise"] = [*record.noise, *noise]
        facts["warnings"] = [text for text in record.warnings if text not in noise]
    if record.status == "failed" and not record.failure:
        facts["failure"] = _failure_of(record.reason)
    if not record.of_stack and record.environment.startswith(STACK):
        facts["of_stack"] = True
    if record.status == "skipped" and not record.requirement_unmet:
        # one that its process skipped has a duration, or its plugin's source
        started = record.duration or record.source
        facts["requirement_unmet"] = not started and record.reason.startswith("needs ")
    return msgspec.structs.replace(record, **facts) if facts else record


def _throttled_of(warnings: Sequence[str]) -> str:
    told = [text for text in warnings if text.startswith(THROTTLED)]
    return told[0].partition(": ")[2] or "unknown reason" if told else ""


def _failure_of(reason: str) -> Failure:
    found = [kind for kind, pattern in _REASONS.items() if re.match(pattern, reason)]
    return found[0] if found else Failure.ERROR


_DECODER = msgspec.json.Decoder(Record)
_HEAD_DECODER = msgspec.json.Decoder(_Head)
