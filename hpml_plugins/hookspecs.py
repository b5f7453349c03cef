"""Every extension point, on one screen. A plugin implements any of them and marks it with
`hookimpl`.

Plugins are asked in the registry's order. If two offer the same name, the first one is used, and a
message names both. A hook that raises is named, and costs only what it would have offered.
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

    Called once by every command, on every node, in a process of its own: return values, import
    nothing heavy, do not look at the machine. What a node lacks is said by `Requires`, so that the
    list is the same everywhere.
    """


@hookspec
def hpml_figures() -> Iterable[Figure]:  # type: ignore[empty-body]
    """The charts and tables that this plugin draws from its Records, in the order of its page.

    Called when pages are published and by `hpml plot` and `hpml table`, never where anything is
    measured.
    """


@hookspec
def hpml_pages() -> Iterable[SitePage]:  # type: ignore[empty-body]
    """Further pages of the published site, each with an entry in its navigation.

    Called when pages are published, before the first is written. Only plugins with this hook are
    imported into the process that writes the pages.
    """


@hookspec
def hpml_data() -> Iterable[LoadableData]:  # type: ignore[empty-body]
    """Data sets, for this plugin's `bench.data` and for any benchmark that names one in
    `Requires(data=...)`.

    Called as `hpml_benchmarks` is: return values, look at no file.
    """


@hookspec
def hpml_commands(cli: click.Group) -> None:
    """Commands of `hpml`, each added by `cli.add_command`, best as a `cli.LazyCommand`.

    Called when a command is asked for that the core does not have, and for the list of all. Asked
    are the folders of `hpml_plugins/tools`, not the plugins of a registry: a command must be there
    where there is no registry yet.
    """
