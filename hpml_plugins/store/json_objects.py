"""Reading JSON that anybody may have written: an object that can be written again, or one error in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, describe


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in that file. Raises HpmlError where there is none that can be read and written again."""
    try:
        found = parse(path.read_bytes())
    except (OSError, ValueError) as error:
        raise HpmlError(f"cannot be read: {describe(error)}", str(path)) from None
    if not isinstance(found, dict):
        raise HpmlError("not a JSON object", str(path))
    return found


def object_or_nothing(path: Path) -> dict[str, Any]:
    """The same for what can be done without: an empty object where there is none."""
    try:
        return read_object(path)
    except HpmlError:
        return {}


def parse(text: bytes) -> Any:
    """What JSON says, with the NaN and infinities that asv writes.

    Raises ValueError for what is no JSON, nested so deep that nothing could go through it, or holds half characters
    (`"\\ud800"`), which no page and no terminal can show, or is not UTF-8.
    """
    try:
        found = json.loads(text.decode())  # given bytes, it would take halves of characters for whole ones
        refuse_half_characters(text, found)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return found


def refuse_half_characters(text: bytes, found: Any) -> None:
    """Raise ValueError where JSON text, which says `found`, holds any."""
    if b"\\ud" in text.lower():
        json.dumps(found, ensure_ascii=False).encode()
