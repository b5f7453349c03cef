"""Whether a Record can be trusted: the only check of incoming Records, made by `decode` and before
one is stored.

A Record comes from this project, or from a pulled, merged or unpacked one, whose author may be
careless or hostile. Its identifiers become names of files and columns, its times order a history,
and its numbers are compared. A refused Record reaches no page and no other file; it stays in the
file in which it arrived, and is reported with its line.
"""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Mapping, Sequence

from msgspec import ValidationError
from msgspec.structs import replace

from hpml_plugins import clocks
from hpml_plugins.model.checking import (
    LARGEST_INTEGER,
    MOST_ENTRIES,
    MOST_NAME,
    MOST_OUTPUT,
    MOST_TEXT,
)
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.units import UNITS, is_right_direction, may_be_negative
from hpml_plugins.terminal import escape_direction

#: By how many seconds the clock of another machine may be ahead of this one's.
CLOCK_AHEAD = 86400.0

_COMMIT = re.compile(r"|[0-9a-f]{40}|[0-9a-f]{64}")
# The pattern begins with the slash rather than with the lookbehind: regular expressions find a
# literal first character much faster (tests/model/test_homes.py).
_HOME = re.compile(r"/(?<![\w.~-]/)(?:root|(?:home|Users)/[^/\s\"'\\:]+)(?=/)")
_METRIC = re.compile(r"[a-z][a-z0-9_]*")
_PLUGIN = re.compile(r"|[A-Za-z_][A-Za-z0-9_.-]*")
_RUN = re.compile(r"[A-Za-z0-9_. -]*")
#: Characters that asv replaces in the name of an environment, and the path separator of other
#: systems.
_NOT_IN_ENVIRONMENT = re.compile(r'[<>:"/\\|?*]')


def check_record(record: Record, schema: int) -> None:
    """Raise ValidationError for a decoded Record that must not be stored, shown or compared for
    reasons that its types do not express.

    schema: the latest that this version of the project can read.
    """
    check_schema(record.schema, schema)
    check_commit(record.commit)
    check_machine(record.machine)
    check_environment(record.environment)
    _check_words(record.benchmark, record.plugin, record.version, record.run)
    _check_params(record.params)
    _check_started(record.started)
    if abs(record.seed) > LARGEST_INTEGER:
        raise ValidationError("seed is an integer of more than 64 bits")
    for name, metric in record.metrics.items():
        _check_metric(name, metric)


def check_schema(found: object, known: int) -> None:
    """Raise ValidationError for a Record whose schema this version does not know. known: the latest
    that it can read."""
    if not isinstance(found, int) or not 1 <= found <= known:
        if isinstance(found, int) and found > known:
            hint = "; upgrade hpml-plugins to read it"
        else:
            hint = ""
        raise ValidationError(
            f"schema {_abridged(found)} is unknown; this version reads up to {known}{hint}"
        )


@functools.lru_cache(maxsize=4096)
def check_commit(commit: str) -> None:
    """Raise ValidationError for an invalid commit. Valid: 40 or 64 hexadecimal digits, or empty if
    nothing was committed."""
    if not _COMMIT.fullmatch(commit):
        raise ValidationError(f"commit {_abridged(commit)} is not 40 hexadecimal digits")


@functools.lru_cache(maxsize=4096)
def check_machine(machine: str) -> None:
    """Raise ValidationError for a machine name that cannot be a folder name. Empty: unknown."""
    if machine.startswith(".") or "/" in machine or "\\" in machine:
        raise ValidationError(f"machine {_abridged(machine)} cannot name a folder")
    _check_name("machine", machine)


@functools.lru_cache(maxsize=4096)
def check_environment(environment: str) -> None:
    """Raise ValidationError for an invalid environment name, since files are named after it. Empty:
    outside asv."""
    if environment.startswith(".") or _NOT_IN_ENVIRONMENT.search(environment):
        raise ValidationError(f"environment {_abridged(environment)} cannot name a file")
    _check_name("environment", environment)


def abridge(text: str, most: int = MOST_TEXT) -> str:
    """Return the text; if it is longer than `most` characters, its head and tail with the number of
    characters left out."""
    if len(text) <= most:
        return text
    said = f" … [{len(text) - most:,} of {len(text):,} characters left out] … "
    kept = max(0, most - len(said))
    head = kept // 2
    return text[:head] + said + text[len(text) - (kept - head) :]


def may_need_cleaning(line: bytes) -> bool:
    """Whether the line of a Record may contain what `cleaned` replaces."""
    text = line.decode(errors="replace")
    return "\\u20" in text or "\\u06" in text or _is_suspicious(text)


def hide_homes(text: str) -> str:
    """Replace home folders in the text by `~`, so that it does not reveal the user."""
    return _HOME.sub("~", text)


def _is_suspicious(text: str) -> bool:
    return bool(_HOME.search(text)) or (
        not text.isascii() and escape_direction(text) != text
    )


def cleaned(record: Record) -> Record:
    """Return the Record with `~` for the home folders in its texts, and without characters that
    change the direction of text.

    Its parameters stay unchanged: they define what was measured.
    """
    texts = [record.reason, record.output, *record.remarks, *record.checks]
    if not any(texts) or not _is_suspicious("\n".join(texts)):
        return record

    def plain(texts: list[str]) -> list[str]:
        return [escape_direction(hide_homes(text)) for text in texts]

    reason, output = plain([record.reason, record.output])
    return replace(
        record,
        reason=reason,
        output=output,
        warnings=plain(record.warnings),
        noise=plain(record.noise),
        checks=plain(record.checks),
    )


def bounded(record: Record) -> Record:
    """Return the Record with each text abridged to what may be stored, and long lists of texts
    cut."""
    return replace(
        record,
        reason=abridge(record.reason),
        output=abridge(record.output, MOST_OUTPUT),
        warnings=_first(record.warnings, "warnings"),
        noise=_first(record.noise, "warnings"),
        checks=_first(record.checks, "checks"),
    )


def _first(texts: list[str], what: str) -> list[str]:
    kept = texts
    if len(texts) > MOST_ENTRIES:
        left_out = len(texts) - MOST_ENTRIES + 1
        kept = [*texts[: MOST_ENTRIES - 1], f"{left_out:,} more {what} left out"]
    return [abridge(text) for text in kept]


@functools.lru_cache(maxsize=4096)
def _check_words(benchmark: str, plugin: str, version: str, run: str) -> None:
    # Cached, since it is the same for all Records of a run.
    _check_letters(
        "benchmark", benchmark, benchmark.isidentifier(), "letters, digits and _"
    )
    _check_letters(
        "plugin", plugin, _PLUGIN.fullmatch(plugin), "letters, digits, _, . and -"
    )
    _check_letters("run", run, _RUN.fullmatch(run), "letters, digits, _, . and -")
    _check_name("version", version)


def _check_params(params: Mapping[str, object]) -> None:
    if len(params) > MOST_ENTRIES:
        raise ValidationError(
            f"{len(params):,} parameters, and {MOST_ENTRIES:,} are allowed"
        )
    for name, value in params.items():
        _check_parameter_name(name)
        if isinstance(value, str) and len(value) > MOST_TEXT:
            raise ValidationError(
                f"parameter {name} has {len(value):,} characters, and {MOST_TEXT:,} are allowed"
            )
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise ValidationError(f"parameter {name} is an integer of more than 64 bits")


@functools.lru_cache(maxsize=4096)
def _check_parameter_name(name: str) -> None:
    _check_letters("parameter", name, name.isidentifier(), "letters, digits and _")


def _check_started(started: float) -> None:
    # 0: unknown. Before 2000: the clock of the node was not set; the Record then only appears
    # old, which does no harm.
    if not 0 <= started < math.inf:
        raise ValidationError(f"started {started:g} s since 1970")
    if started > clocks.wall_clock() + CLOCK_AHEAD:
        raise ValidationError(
            f"started {_date(started)}, in the future: the clock of its machine was wrong"
        )


def _date(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s after 1970"


def _check_metric(name: str, metric: MetricSamples) -> None:
    _check_declaration(name, metric.unit, metric.direction)
    if metric.interval is not None:
        raise ValidationError(
            f"metric {name} brings its own interval, which only its samples may give"
        )
    if not may_be_negative(metric.unit, metric.direction):
        lowest = min(metric.samples)
        if metric.boost:
            lowest = min(lowest, min(metric.boost))
        if lowest < 0:
            raise ValidationError(f"metric {name} has a sample of {lowest:g} {metric.unit}")
    if is_unresolved(metric.unit, metric.direction, metric.samples, len(metric.rounds)):
        raise ValidationError(f"metric {name} took 0 s each time")


def is_unresolved(
    unit: str, direction: str | None, samples: Sequence[float], rounds: int = 1
) -> bool:
    """Whether this is a time, to be minimised, that was 0 in each of several samples: below the
    timer's resolution.

    A single 0 per round may be intended, such as the time of communication that nothing waits for.
    """
    return (
        unit == "s"
        and direction == "lower"
        and len(samples) > max(1, rounds)
        and not any(samples)
    )


@functools.lru_cache(maxsize=4096)
def _check_declaration(name: str, unit: str, direction: str | None) -> None:
    _check_letters(
        "metric", name, _METRIC.fullmatch(name), "lower-case letters, digits and _"
    )
    if unit not in UNITS:
        raise ValidationError(f"metric {name} has the unknown unit {_abridged(unit)}")
    if not is_right_direction(unit, direction):
        raise ValidationError(f"metric {name}: {direction} is never better in {unit}")


def _check_letters(what: str, name: str, right: object, letters: str) -> None:
    if not right:
        raise ValidationError(f"{what} {_abridged(name)} is not a name of {letters}")
    _check_name(what, name)


def _check_name(what: str, name: str) -> None:
    """Check a name that is shown and from which a path may be made."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > MOST_NAME:
        raise ValidationError(
            f"{what} {_abridged(name)} has {size:,} bytes, and {MOST_NAME} are allowed"
        )
    if not name.isprintable():
        raise ValidationError(
            f"{what} {_abridged(name)} holds a character that cannot be printed"
        )


def _abridged(value: object) -> str:
    return abridge(repr(value), 80)
