"""The data sets that are known here: the built-in ones, and those that plugins bring while a block runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from hpml_plugins.workloads.datasets.builtin import SOURCES
from hpml_plugins.workloads.datasets.source import DataSource

_MORE: ContextVar[Mapping[str, DataSource]] = ContextVar("more data sets", default={})  # noqa: B039  (never changed)


def sources() -> Mapping[str, DataSource]:
    """Name → source; a built-in one stands before a plugin's of the same name."""
    return {**_MORE.get(), **SOURCES}


@contextmanager
def also_known(more: Mapping[str, DataSource]) -> Iterator[None]:
    """Let these be known too while the block runs, here and in processes forked in it."""
    token = _MORE.set({**_MORE.get(), **more})
    try:
        yield
    finally:
        _MORE.reset(token)
