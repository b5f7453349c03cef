"""What `hpml table` and `hpml plot` share: finding the figures that were asked for, with their tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from hpml_plugins.cli import Settings
from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.host import make_host
from hpml_plugins.registry import read_registry
from hpml_plugins.report.figures import Drawable, collect, tabulate, versions
from hpml_plugins.store import commit_order, current_records, read_records


def find_drawables(settings: Settings, name: str, results: Path) -> Iterator[Drawable]:
    """The figures of plugin NAME, or the one figure of this name (NAME or PLUGIN.NAME), that have anything to show.

    Raises UsageError with the nearest names where there is none, or nothing has been measured for them yet.
    """
    host = make_host(read_registry(settings.registry))
    for broken in host.broken:
        if broken.error and name.partition(".")[0] == broken.entry.name:
            raise broken.error
    chosen = []
    known: list[str] = []
    plugins = host.load_all()
    for plugin in plugins:
        figures = collect(plugin)
        own = plugin.entry.name
        known += [own, *(f"{own}.{figure.name}" for figure in figures)] if figures else []
        wanted = [figure for figure in figures if name in (own, figure.name, f"{own}.{figure.name}")]
        if wanted:
            chosen.append((plugin, wanted))
    if not chosen:
        raise UsageError(f"no figure or plugin with figures {name!r}; {nearest(name, known)}")
    records = current_records(
        read_records(results, lambda damage: print(f"hpml: {damage}", file=sys.stderr)),
        versions(plugins),
        commit_order(settings.registry.resolve().parent),
    )
    with host.offers.in_force():
        found = [drawable for plugin, figures in chosen for drawable in tabulate(plugin, figures, records)]
    for drawable in found:
        if drawable.error:
            raise drawable.error
    if not any(len(drawable.table) for drawable in found):
        raise UsageError(f"nothing measured for {name!r} under {results}; run `asv run`, or name the folder: --results")
    yield from (drawable for drawable in found if len(drawable.table))
