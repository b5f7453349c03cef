"""How to find a number in what an external program prints."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpml_plugins.errors import DefinitionError, HpmlError
from hpml_plugins.model.units import unit


@dataclass(frozen=True)
class ProgramOutput:
    """One number that a program prints.

    unit: the symbol of its SI base unit.  pattern: a regular expression with one group, the number; the first match
    counts, in the standard output or, if it has none, in the standard error; `^` and `$` match at lines.  json: where
    the standard output is one JSON document, the keys and indexes that lead to the number: ("jobs", 0, "read", "bw").
    scale: by what the printed number is multiplied to be in `unit`: 1e-3 for milliseconds, 1e9 for GB/s.
    Raises DefinitionError for an unknown unit, a pattern that is no expression with one group, or none or both of
    pattern and json.
    """

    unit: str
    pattern: str = ""
    json: Sequence[str | int] = ()
    scale: float = 1.0

    def __post_init__(self) -> None:
        unit(self.unit)
        if bool(self.pattern) == bool(self.json):
            raise DefinitionError("a ProgramOutput needs either a pattern or the keys of a number in JSON")
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise DefinitionError(f"pattern {self.pattern!r} is no regular expression: {error}") from None
        if self.pattern and groups != 1:
            raise DefinitionError(f"pattern {self.pattern!r} has {groups} groups; put one around the number")

    def read(self, printed: str, errors: str = "") -> float:
        """The number, in `unit`. Raises HpmlError if it is not there.

        printed, errors: the program's standard output and standard error.
        """
        if self.pattern:
            matches = (re.search(self.pattern, text, re.MULTILINE) for text in (printed, errors))
            if not (match := next(filter(None, matches), None)):
                raise HpmlError(f"pattern {self.pattern!r} matches nothing in its output: {shorten(printed or errors)}")
            found: Any = match[1]
        else:
            keys = (self.json,) if isinstance(self.json, str) else self.json
            try:
                found = json.loads(printed)
                for key in keys:
                    found = found[key]
            except json.JSONDecodeError as error:
                raise HpmlError(f"its output is not JSON ({error}): {shorten(printed)}") from None
            except (KeyError, IndexError, TypeError):
                raise HpmlError(f"its JSON has no {list(keys)}: {shorten(printed)}") from None
        try:
            return float(found) * self.scale
        except (TypeError, ValueError):
            raise HpmlError(f"{found!r} in its output is not a number") from None


def shorten(text: str) -> str:
    """The beginning of a program's output, on one line, for an error."""
    text = " ".join(text.split())
    return repr(text if len(text) <= 200 else text[:200] + "…") if text else "nothing"
