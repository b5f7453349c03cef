"""A Record as a line of JSON: how it is written, and how one of any age is read."""

from __future__ import annotations

from typing import Any

import msgspec

from hpml_plugins.model.record import SCHEMA, THROTTLED, Record
from hpml_plugins.model.units import UNITS
from hpml_plugins.model.validation import check_record, check_schema, cleaned

#: Significant digits of a stored sample. A clock of 1 ns has six of a sample of 1 ms; what follows
#: is noise.
DIGITS = 9


def shorten(record: Record) -> Record:
    """The record as it is to be stored: samples at DIGITS significant digits; counts stay as they
    are."""
    metrics = dict(record.metrics)
    for name, each in metrics.items():
        if each.unit in UNITS and not UNITS[each.unit].count:
            samples, boost = (
                [float(f"{one:.{DIGITS}g}") for one in many] for many in (each.samples, each.boost)
            )
            metrics[name] = msgspec.structs.replace(each, samples=samples, boost=boost)
    return msgspec.structs.replace(record, metrics=metrics)


def encode(record: Record) -> bytes:
    """The record as one line of JSON, without the line break."""
    return msgspec.json.encode(record)


def decode(line: bytes) -> Record:
    """A record from one line of JSON, checked by `hpml_plugins.model.validation`: all that enters
    comes through here.

    Raises msgspec.DecodeError, or UnicodeDecodeError for text that is not UTF-8.
    """
    try:
        record = _decode_known(line)
    except RecursionError:
        raise msgspec.DecodeError("nested too deep") from None
    check_record(record, SCHEMA)
    return upgrade(cleaned(record))


def _decode_known(line: bytes) -> Record:
    """A Record of a schema that this version knows. Raises msgspec.DecodeError for another."""
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError:
        # a later one may be of another form
        check_schema(_HEAD_DECODER.decode(line).schema, SCHEMA)
        raise


class _Head(msgspec.Struct):
    schema: Any = SCHEMA


def upgrade(record: Record) -> Record:
    """The Record with the fields that came after it was written: `throttled`, from the words of its
    warning."""
    if record.throttled or not record.warnings:
        return record
    told = [text for text in record.warnings if text.startswith(THROTTLED)]
    if not told:
        return record
    reason = told[0].partition(": ")[2]
    return msgspec.structs.replace(record, throttled=reason or "unknown reason")


_DECODER = msgspec.json.Decoder(Record)
_HEAD_DECODER = msgspec.json.Decoder(_Head)
