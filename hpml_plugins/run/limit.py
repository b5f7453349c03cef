"""A limit in time for a whole run: `hpml run --limit 9min`, HPML_LIMIT=9min for `asv run`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from hpml_plugins import clocks
from hpml_plugins.errors import LONGEST, UsageError

LIMIT_VARIABLE = "HPML_LIMIT"
_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
_SHAPE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


@dataclass(frozen=True)
class TimeLimit:
    """How long a run may take. seconds: from `started` on, s of the monotonic clock."""

    seconds: float
    started: float = field(default_factory=clocks.monotonic)

    @property
    def left(self) -> float:
        """s that are left; below 0 where the limit has passed."""
        return self.started + self.seconds - clocks.monotonic()

    def __str__(self) -> str:
        minutes, rest = divmod(self.seconds, 60)
        return f"{minutes:g} min" if minutes and not rest else f"{self.seconds:g} s"


def parse_limit(text: str, named: str) -> float:
    """Seconds of `9min`, `540s`, `540` or `1.5h`.

    named: what the text was given to, for the message. Raises UsageError for anything else.
    """
    found = _SHAPE.fullmatch(text.strip())
    if found and found[2] in _UNITS:
        seconds = float(found[1]) * _UNITS[found[2]]
        if 0 < seconds <= LONGEST:
            return seconds
    raise UsageError(f"{named} is {text[:40]!r}, which is no time; write 9min, 540s or 1.5h")


def limit_of_environment() -> TimeLimit | None:
    """The limit that HPML_LIMIT gives a run which begins now; None where it is not set."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    return TimeLimit(parse_limit(text, LIMIT_VARIABLE)) if text else None
