"""asv's own files, written whole or not at all, and benchmarks.json never shortened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from asv import util
from asv.console import log

from hpml_plugins.merging.declared import keep_known
from hpml_plugins.merging.folders import DECLARED, lock_declarations
from hpml_plugins.records.lock import Held
from hpml_plugins.records.whole import remove_partial, write_whole


def write_json_atomically() -> None:
    """Let asv write its JSON beside the file and then rename it into place.

    asv truncates and writes in place, and has no other way: a run that is killed meanwhile, or a full disk, would
    cost what the file held before. Its format is kept to the byte. benchmarks.json, which whoever runs last writes
    whole, keeps what other nodes and commits declared.
    """
    util.write_json = _write_json


def write_site_file(path: str, data: Any, api_version: int | None = None, compact: bool = False) -> None:
    """asv's `write_json` for what it publishes: without waiting for the disk, for it can be published again."""
    text = json.dumps(data) if compact else json.dumps(data, indent=4, sort_keys=True)
    write_whole(Path(path).resolve(), text.encode(), lasting=False)


def _write_json(path: str, data: Any, api_version: int | None = None, compact: bool = False) -> None:
    # A link among results is replaced, not written through; only the user's own ~/.asv-machine.json may be one.
    target = Path(path).absolute()
    if target.name.startswith("."):
        target = target.resolve()
    if api_version is not None:
        data = {**data, "version": api_version}
    if target.name == DECLARED:
        _write_declarations(target, data)
    else:
        text = json.dumps(data) if compact else json.dumps(data, indent=4, sort_keys=True)
        write_whole(target, text.encode())


def _write_declarations(target: Path, data: dict[str, Any]) -> None:
    try:
        lock = lock_declarations(target.parent)
    except Held as held:
        log.warning(f"{held}; written without waiting any longer")
        write_whole(target, _spell(keep_known(data, _read(target))))
        return
    with lock:
        remove_partial(target.parent, target.name)
        write_whole(target, _spell(keep_known(data, _read(target))))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _spell(data: dict[str, Any]) -> bytes:
    return json.dumps(data, indent=4, sort_keys=True).encode()
