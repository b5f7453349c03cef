"""Every extension point, on one screen. A plugin implements any of them and marks it with `hookimpl`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from hpml_plugins.model import Benchmark

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
