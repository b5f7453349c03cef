"""asv's own files, written whole or not at all, and benchmarks.json never shortened."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asv import util
from asv.console import log

from hpml_plugins.errors import describe, one_line
from hpml_plugins.store import Locked, atomic_write, lock_declarations, read_object_or_empty
from hpml_plugins.store.declarations import DECLARATIONS, keep_declared, valid_declarations
from hpml_plugins.store.files import refuse_lone_surrogates, remove_partial_files


def write_json_atomically() -> None:
    """Let asv write its JSON beside the file and then rename it into place.

    asv truncates and writes in place, and has no other way: a run that is killed meanwhile, or a full disk, would
    cost what the file held before. Its format is kept to the byte. benchmarks.json, which whoever runs last writes
    whole, keeps what other nodes and commits declared.
    """
    util.write_json = _write_json


def name_json_errors() -> None:
    """Let asv name any file that is not what it takes it for: it expects text that is no JSON, and nothing else."""
    util.load_json = _named_errors(util.load_json)


def _named_errors(load: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(load, "__wrapped__"):
        return load

    @functools.wraps(load)
    def loading(path: str, *arguments: Any, **named: Any) -> Any:
        try:
            found = load(path, *arguments, **named)
            refuse_lone_surrogates(Path(path).read_bytes(), found)
            return _declared(path, found) if Path(path).name == DECLARATIONS else found
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise util.UserError(f"Error loading '{path}': {describe(error)}") from None

    return loading


def _declared(path: str, found: Any) -> Any:
    if not isinstance(found, dict):
        raise TypeError("not a JSON object")
    sound, left_out = valid_declarations(found)
    for name in left_out:
        log.warning(one_line(f"{path}: {name[:100]!r} is no declaration of a benchmark; left out"))
    return sound


def write_site_file(path: str, data: Any, api_version: int | None = None, compact: bool = False) -> None:
    """asv's `write_json` for what it publishes: without waiting for the disk, for it can be published again."""
    text = json.dumps(data) if compact else json.dumps(data, indent=4, sort_keys=True)
    atomic_write(Path(path).resolve(), text.encode(), durable=False)


def _write_json(path: str, data: Any, api_version: int | None = None, compact: bool = False) -> None:
    # A link among results is replaced, not written through; only the user's own ~/.asv-machine.json may be one.
    target = Path(path).absolute()
    if target.name.startswith("."):
        target = target.resolve()
    if api_version is not None:
        data = {**data, "version": api_version}
    if target.name == DECLARATIONS:
        _write_declarations(target, data)
    else:
        text = json.dumps(data) if compact else json.dumps(data, indent=4, sort_keys=True)
        atomic_write(target, text.encode())


def _write_declarations(target: Path, data: dict[str, Any]) -> None:
    try:
        lock = lock_declarations(target.parent)
    except Locked as held:
        log.warning(f"{held}; written without waiting any longer")
        atomic_write(target, _spell(keep_declared(data, read_object_or_empty(target))))
        return
    with lock:
        remove_partial_files(target.parent, target.name)
        atomic_write(target, _spell(keep_declared(data, read_object_or_empty(target))))


def _spell(data: dict[str, Any]) -> bytes:
    return json.dumps(data, indent=4, sort_keys=True).encode()
