"""Whether a Record may be believed: the one check of all that enters, made by `decode` and before a
Record is stored.

A Record comes from this project, or from a pulled, merged or unpacked one, whose author may be
careless or hostile. Its identifiers name files and columns, its times order a history, its numbers
are compared. What is refused here reaches no page and no file; it stays in the file in which it
came, and is named with its line.
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
from hpml_plugins.terminal import unturned

#: s by which another machine's clock may be ahead of this one's.
CLOCK_AHEAD = 86400.0

_COMMIT = re.compile(r"|[0-9a-f]{40}|[0-9a-f]{64}")
# It begins with the slash, not with what must not stand before it: regular expressions look for a
# literal first letter much faster (tests/model/test_homes.py).
_HOME = re.compile(r"/(?<![\w.~-]/)(?:root|(?:home|Users)/[^/\s\"'\\:]+)(?=/)")
_METRIC = re.compile(r"[a-z][a-z0-9_]*")
_PLUGIN = re.compile(r"|[A-Za-z_][A-Za-z0-9_.-]*")
_RUN = re.compile(r"[A-Za-z0-9_. -]*")
#: What asv replaces in the name of an environment, and the separator of other systems.
_NOT_IN_ENVIRONMENT = re.compile(r'[<>:"/\\|?*]')


def check_record(record: Record, schema: int) -> None:
    """Raise ValidationError for a decoded Record that is not to be stored, shown or compared: what
    the types do not tell.

    schema: the latest that this version of the project reads.
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
    """Raise ValidationError for a Record of a schema that this version does not know. known: the
    latest that it does."""
    if not isinstance(found, int) or not 1 <= found <= known:
        if isinstance(found, int) and found > known:
            hint = "; upgrade hpml-plugins to read it"
        else:
            hint = ""
        raise ValidationError(
            f"schema {_spell(found)}, and this version reads {known} at most{hint}"
        )


def check_commit(commit: str) -> None:
    """Raise ValidationError for what is no commit: 40 or 64 hexadecimal digits, or empty where
    nothing was committed."""
    if not _COMMIT.fullmatch(commit):
        raise ValidationError(f"commit {_spell(commit)} is not 40 hexadecimal digits")


@functools.lru_cache(maxsize=4096)
def check_machine(machine: str) -> None:
    """Raise ValidationError for what cannot name the folder of a machine. Empty: it is not told."""
    if machine.startswith(".") or "/" in machine or "\\" in machine:
        raise ValidationError(f"machine {_spell(machine)} cannot name a folder")
    _check_name("machine", machine)


@functools.lru_cache(maxsize=4096)
def check_environment(environment: str) -> None:
    """Raise ValidationError for what asv would not call an environment: files are named after it.
    Empty: outside asv."""
    if environment.startswith(".") or _NOT_IN_ENVIRONMENT.search(environment):
        raise ValidationError(f"environment {_spell(environment)} cannot name a file")
    _check_name("environment", environment)


def abridge(text: str, most: int = MOST_TEXT) -> str:
    """The text, or where it is longer than `most` characters its head and its tail, and how much
    was left out."""
    if len(text) <= most:
        return text
    said = f" … [{len(text) - most:,} of {len(text):,} characters left out] … "
    kept = max(0, most - len(said))
    head = kept // 2
    return text[:head] + said + text[len(text) - (kept - head) :]


def may_need_cleaning(line: bytes) -> bool:
    """Whether the line of a Record may hold what `cleaned` replaces."""
    text = line.decode(errors="replace")
    return "\\u20" in text or "\\u06" in text or _is_suspicious(text)


def hide_homes(text: str) -> str:
    """The text with `~` for the home folders in it: whose home it was is nobody's business."""
    return _HOME.sub("~", text)


def _is_suspicious(text: str) -> bool:
    return bool(_HOME.search(text)) or (not text.isascii() and unturned(text) != text)


def cleaned(record: Record) -> Record:
    """The Record with `~` for the home folders in its texts, and no character that turns the
    direction of a text.

    Its parameters stay as they are: they say what was measured.
    """
    if not _is_suspicious(
        "\n".join([record.reason, record.output, *record.remarks, *record.checks])
    ):
        return record

    def plain(texts: list[str]) -> list[str]:
        return [unturned(hide_homes(text)) for text in texts]

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
    """The Record with each of its texts abridged to what may be stored, and of a long list of texts
    the first ones."""
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
    # Of this Record and of all others of its run the same, hence the cache.
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
    # 0: not told. Before 2000: of a node whose clock was not set; it reads as old, which harms
    # nobody.
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
    """Whether it is a time that is to be short and was 0 in each of several samples: no timer
    resolved it.

    A single 0 a round may be what was meant, such as the time of communication that nothing waits
    for.
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
        raise ValidationError(f"metric {name} has the unknown unit {_spell(unit)}")
    if not is_right_direction(unit, direction):
        raise ValidationError(f"metric {name}: {direction} is never better in {unit}")


def _check_letters(what: str, name: str, right: object, letters: str) -> None:
    if not right:
        raise ValidationError(f"{what} {_spell(name)} is not a name of {letters}")
    _check_name(what, name)


def _check_name(what: str, name: str) -> None:
    """Of a name that is shown and from which a path may be made."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > MOST_NAME:
        raise ValidationError(
            f"{what} {_spell(name)} has {size:,} bytes, and {MOST_NAME} are allowed"
        )
    if not name.isprintable():
        raise ValidationError(
            f"{what} {_spell(name)} holds a character that cannot be printed"
        )


def _spell(value: object) -> str:
    return abridge(repr(value), 80)
