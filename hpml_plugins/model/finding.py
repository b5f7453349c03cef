"""One thing that was checked, of a node or of a plugin."""

from __future__ import annotations

from typing import Literal

import msgspec

_SIGNS = {"ok": "✓", "missing": "–", "warning": "!", "not judged": "?", "broken": "✗"}


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was checked, its state, and how to fix it.

    state: "missing" is allowed; with "warning" numbers are measured and may mislead; "not judged"
    was not looked at, or not to its end; "broken" must be fixed.
    """

    subject: str
    state: Literal["ok", "missing", "warning", "not judged", "broken"]
    what: str
    fix: str = ""

    @property
    def sign(self) -> str:
        """The state as one character."""
        return _SIGNS[self.state]
