"""Every extension point, on one screen. A plugin implements any of them and marks it with `hookimpl`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from hpml_plugins.model import Benchmark, Figure

PROJECT = "hpml"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def hpml_benchmarks() -> Iterable[Benchmark]:  # type: ignore[empty-body]
    """The benchmarks this plugin offers.

    Called once, when the registry is loaded, on every node and for every command: return values, import nothing
    heavy, do not look at the machine. What a node lacks is said by `Requires`, so that the list is the same
    everywhere.
    """


@hookspec
def hpml_figures() -> Iterable[Figure]:  # type: ignore[empty-body]
    """The charts and tables that this plugin draws from its Records, in the order of its page.

    Called when pages are published and by `hpml plot` and `hpml table`, never where anything is measured.
    """
