"""asv's own files, written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from asv import util


def write_json_atomically() -> None:
    """Let asv write its JSON beside the file and then rename it into place.

    asv truncates and writes in place, and has no other way: a run that is killed meanwhile, or a full disk, would
    cost what the file held before. Its format is kept to the byte.
    """
    util.write_json = _write_json


def _write_json(path: str, data: Any, api_version: int | None = None, compact: bool = False) -> None:
    target = Path(path).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    if api_version is not None:
        data = {**data, "version": api_version}
    text = json.dumps(data) if compact else json.dumps(data, indent=4, sort_keys=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
