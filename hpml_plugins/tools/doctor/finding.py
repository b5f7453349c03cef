"""One thing that was looked at."""

from __future__ import annotations

from typing import Literal

import msgspec


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was looked at and how it is.

    state: "missing" is allowed; with "warning" numbers are measured and may mislead; "broken" must be mended.
    """

    subject: str
    state: Literal["ok", "missing", "warning", "broken"]
    what: str
    mend: str = ""
