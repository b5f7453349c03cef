"""The contents of another tool's result file before conversion to Records, and code shared by the
readers of formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.model import Direction, MetricSamples, Value
from hpml_plugins.store import MAX_FILE

#: Names of timers for the info of a metric, as in `Timer` of a Record.
EVENTS = "cuda events"
CLOCK = "perf_counter"
#: Seconds per unit of time that other tools write.
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class ForeignPoint:
    """Samples of one point. The readings of one point in a file are joined.

    name: the tool's own of the benchmark.  params: of the point.  metrics: in SI base units; none
    if it failed or was skipped.  failure: the reason for either.  started: Unix time, s; 0 if the
    file does not have it.  gpus: names of the GPUs that it used; None if the file does not name
    them. gpu_count: how many it certainly used if `gpus` is None.
    """

    name: str
    params: Mapping[str, Value] = field(default_factory=dict)
    metrics: Mapping[str, MetricSamples] = field(default_factory=dict)
    failure: str = ""
    is_skipped: bool = False
    started: float = 0.0
    gpus: tuple[str, ...] | None = None
    version: str = "1"
    gpu_count: int = 0


@dataclass(frozen=True)
class Source:
    """A result file.

    tool: that wrote it; the plugin of the Records.  version: of the tool.  machine, commit: empty
    if the file does not name them. environment: if the file names one.  node: facts of the machine.
    warnings: for readers of its values.
    """

    tool: str
    readings: list[ForeignPoint]
    version: str = ""
    machine: str = ""
    commit: str = ""
    environment: str = ""
    node: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def read_text(path: Path) -> str:
    """A file that a user names. Raises HpmlError unless it is a text file of at most MAX_FILE B."""
    if not path.is_file():
        raise HpmlError("no such file" if not path.exists() else "not a file", str(path))
    if (size := path.stat().st_size) > MAX_FILE:
        limit = MAX_FILE / 1e6
        raise HpmlError(
            f"{size / 1e6:,.0f} MB, and the limit is {limit:,.0f} MB", str(path)
        )
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise HpmlError(
            f"not a text file: {error.reason} at byte {error.start}", str(path)
        ) from None


def parse_json(text: str) -> Any:
    """The JSON of a file, None if it is not JSON. NaN and infinities, which some tools write, are
    accepted."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def metric(
    unit: str, direction: Direction | None, samples: Iterable[float], **info: str | float
) -> MetricSamples:
    """Samples of a metric, in `unit`. info: how they were obtained."""
    return MetricSamples(unit, direction, [*map(float, samples)], info)


def identifier(text: str) -> str:
    """A tool's name in letters, digits and `_`. Raises HpmlError if nothing is left."""
    name = re.sub(r"\W+", "_", text).strip("_")
    name = f"_{name}" if name[:1].isdigit() else name
    if not name.isidentifier():
        raise HpmlError(f"{text[:80]!r} has no letter or digit that a name could have")
    return name


def metric_name(text: str) -> str:
    """The same for a metric: lower-case letters, digits and `_`, a letter first."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    if not name:
        raise HpmlError(f"{text[:80]!r} has no letter or digit that a name could have")
    return name if name[0].isalpha() else f"metric_{name}"


def parameters(found: Mapping[str, Any]) -> dict[str, Value]:
    """Parameters as in a Record; a value that is not plain becomes its JSON.

    Raises HpmlError for two names that become one.
    """
    values: dict[str, Value] = {}
    for text, value in found.items():
        name = identifier(text)
        if name in values:
            raise HpmlError(
                f"two parameters would be called {name!r} here; rename {text[:80]!r}"
            )
        plain = isinstance(value, str | int | float | bool)
        values[name] = value if plain else json.dumps(value, default=str)
    return values


def value_of(text: str) -> Value:
    """A parameter that a tool writes as text: a number if formatting it gives the same text."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text:
            return value
    return text


def unix_time(text: str) -> float:
    """Unix time, s, of an ISO 8601 date with its offset; 0 (unknown) for one without."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return found.astimezone(UTC).timestamp() if found.tzinfo else 0.0
