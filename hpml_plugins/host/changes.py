"""What changed in plugins since they were last run: their code now against that of their newest Record."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from hpml_plugins.host.loading import LoadedPlugin


class _Seen(msgspec.Struct, frozen=True):
    """The little of a Record that this asks for; the rest is stepped over unread."""

    plugin: str
    status: str
    started: float = 0.0
    source: dict[str, str] = {}


def changes(plugins: Iterable[LoadedPlugin], results: Path) -> dict[str, str]:
    """Plugin → what is different, in words. Plugins that never ran, or are as they were, are not in it.

    results: asv's folder; the Records of every machine count.
    """
    last = _last_runs(results)
    found = {}
    for plugin in plugins:
        seen = last.get(plugin.entry.name)
        if seen and not plugin.error and (said := _difference(seen.source, plugin.source)):
            day = datetime.datetime.fromtimestamp(seen.started, datetime.UTC).date()
            found[plugin.entry.name] = f"{said} (last run {day})"
    return found


def _last_runs(results: Path) -> dict[str, _Seen]:
    decoder = msgspec.json.Decoder(_Seen)
    last: dict[str, _Seen] = {}
    for file in results.glob("*/records/*.jsonl"):
        for line in file.read_bytes().splitlines():
            try:
                seen = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # damaged: told by whoever reads Records to show them
            if seen.source and (seen.plugin not in last or seen.started >= last[seen.plugin].started):
                last[seen.plugin] = seen
    return last


def _difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    told = [
        f"{key} was {before[key]}, is {now[key]}"
        for key in ("path", "module", "entry_point", "distribution", "version")
        if key in before and key in now and before[key] != now[key]
    ]
    if not told and before.get("sha256") != now.get("sha256"):
        told = [f"its code, sha256 was {before.get('sha256', 'none')[:12]}, is {now.get('sha256', 'none')[:12]}"]
    return "; ".join(told)
