"""Data sets by name: those of the active plugins, and the built-in ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.model import available_sources
from hpml_plugins.workloads.datasets.builtin import SOURCES
from hpml_plugins.workloads.datasets.dataset import DataSet


def load_data(name: str, *, say: Callable[[str], None] = lambda text: None) -> DataSet:
    """Load the data set of this name on this machine: without a Bench, or in the process of a rank.

    say: called with a message before slow steps.  Raises HpmlError if it is missing or damaged,
    UsageError for an unknown name.
    """
    loaded: DataSet = source_of(name).load(say)
    return loaded


def sources() -> dict[str, Any]:
    """Name → data source, of the active plugins and the built-in ones."""
    return {**SOURCES, **available_sources()}


def source_of(name: str) -> Any:
    """The data source of this name. Raises UsageError naming the nearest."""
    known = sources()
    if name in known:
        return known[name]
    raise UsageError(f"no data set {name!r}; {nearest(name, known)}")
