"""Every extension point, on one screen. A plugin implements any of them and marks it with
`hookimpl`.

Plugins are asked in the registry's order. If two offer the same name, the first one is used, and a
message names both. If a hook raises, an error names it, and only what it offers is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

    from hpml_plugins.model import Benchmark, Figure, SitePage
    from hpml_plugins.model.data_source import LoadableData

PROJECT = "hpml"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def hpml_benchmarks() -> Iterable[Benchmark]:  # type: ignore[empty-body]
    """The benchmarks this plugin offers, with their requirements (`Requires(also=...)` for those of
    its own).

    Called once by every command, on every node, in a separate process: return values, import
    nothing heavy, and do not inspect the machine. State what a node may lack with `Requires`, so
    that the list is the same everywhere.
    """


@hookspec
def hpml_figures() -> Iterable[Figure]:  # type: ignore[empty-body]
    """The charts and tables that this plugin draws from its Records, in the order of its page.

    Called when pages are published and by `hpml plot` and `hpml table`, never during a measurement.
    """


@hookspec
def hpml_pages() -> Iterable[SitePage]:  # type: ignore[empty-body]
    """Additional pages of the published site, each with an entry in its navigation.

    Called when pages are published, before the first is written. Only plugins with this hook are
    imported into the process that writes the pages.
    """


@hookspec
def hpml_data() -> Iterable[LoadableData]:  # type: ignore[empty-body]
    """Data sets, for this plugin's `bench.data` and for any benchmark that names one in
    `Requires(data=...)`.

    Called like `hpml_benchmarks`: return values, and do not open files.
    """


@hookspec
def hpml_commands(cli: click.Group) -> None:
    """Commands of `hpml`, each added by `cli.add_command`, preferably as a `cli.LazyCommand`.

    Called for a command that the core does not have, and for the list of all commands. Only the
    folders of `hpml_plugins/tools` are asked, not the plugins of a registry, because commands must
    work before there is a registry.
    """
