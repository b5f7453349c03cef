"""How to find a number in the output of an external program."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpml_plugins.errors import DefinitionError, HpmlError
from hpml_plugins.model.units import may_be_negative, unit
from hpml_plugins.terminal import one_line


@dataclass(frozen=True)
class ProgramOutput:
    """One number that a program prints.

    unit: the symbol of its SI base unit.  pattern: a regular expression with one group, the number;
    the first match is used, in the standard output or else in the standard error; `^` and `$` match
    at lines.  json: if the standard output is one JSON document, the keys and indices of the
    number: ("jobs", 0, "read", "bw").  scale: the factor that converts the printed number to
    `unit`: 1e-3 for milliseconds, 1e9 for GB/s. Raises DefinitionError for an unknown unit, an
    invalid pattern or one without exactly one group, and unless exactly one of pattern and json is
    given.
    """

    unit: str
    pattern: str = ""
    json: Sequence[str | int] = ()
    scale: float = 1.0

    def __post_init__(self) -> None:
        unit(self.unit)
        if bool(self.pattern) == bool(self.json):
            raise DefinitionError(
                "a ProgramOutput needs either a pattern or the keys of a number in JSON"
            )
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise DefinitionError(
                f"pattern {self.pattern!r} is not a regular expression: {error}"
            ) from None
        if self.pattern and groups != 1:
            raise DefinitionError(
                f"pattern {self.pattern!r} has {groups} groups; put one around the number"
            )

    def read(self, printed: str, errors: str = "") -> float:
        """The number, in `unit`. Raises HpmlError if it is missing, not finite, or impossible in
        this unit.

        printed, errors: the program's standard output and standard error.
        """
        try:
            if self.pattern:
                matches = (
                    re.search(self.pattern, text, re.MULTILINE)
                    for text in (printed, errors)
                )
                found: Any = next(match[1] for match in matches if match)
            else:
                found = json.loads(printed)
                for key in (self.json,) if isinstance(self.json, str) else self.json:
                    found = found[key]
                if isinstance(found, bool):  # a bool is not a number
                    raise TypeError
            number = float(found) * self.scale
        except (StopIteration, LookupError, TypeError, ValueError):
            if self.pattern:
                where = f"pattern {self.pattern!r} finds"
            else:
                where = f"keys {self.json!r} lead to"
            raise HpmlError(
                f"{where} no number in its output: {one_line(printed or errors)[:200]!r}"
            ) from None
        text = one_line(str(found))[:100]
        if not math.isfinite(number):
            raise HpmlError(f"it printed {text}, not a finite number")
        if number < 0 and not may_be_negative(self.unit, "lower"):
            raise HpmlError(f"it printed {text}, but {self.unit} cannot be negative")
        return number
