"""The result of one check of a node or of a plugin."""

from __future__ import annotations

from typing import Literal

import msgspec

_SIGNS = {"ok": "✓", "missing": "–", "warning": "!", "not judged": "?", "broken": "✗"}


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was checked, its state, and how to fix it.

    state: "missing" is acceptable; with "warning" numbers are measured but may mislead; "not
    judged" was not checked, or not completely; "broken" must be fixed.
    """

    subject: str
    state: Literal["ok", "missing", "warning", "not judged", "broken"]
    what: str
    fix: str = ""

    @property
    def sign(self) -> str:
        """The state as one character."""
        return _SIGNS[self.state]
