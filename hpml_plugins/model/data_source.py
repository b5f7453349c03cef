"""What the core asks of a data set: is it here, and load it. How one is found and read is its provider's business."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable


class LoadedData(Protocol):
    """A data set in memory."""

    def take(self, train: int | None, test: int | None, seed: int) -> LoadedData:
        """A part of it with so many samples for training and testing, chosen by the seed; None takes all."""

    def facts(self) -> dict[str, str | float]:
        """What a Record says of it: digest, sizes, which part."""


@runtime_checkable
class DataSource(Protocol):
    """A data set by name; plugins offer them through the hook `hpml_data`."""

    @property
    def name(self) -> str:
        """As in a grid."""

    def why_missing(self) -> str:
        """Why it cannot be loaded here and how to get it, in one line; empty when it can. Looks at file names only."""

    def load(self, progress: Callable[[str], None]) -> Any:
        """The data set as a LoadedData; nothing is downloaded. Raises DataError where it is missing or damaged.

        progress: told what takes time.
        """


_SOURCES: ContextVar[Mapping[str, DataSource]] = ContextVar("data sources", default={})  # noqa: B039  (never changed)


def known_sources() -> Mapping[str, DataSource]:
    """Name → data source, of those in force here."""
    return _SOURCES.get()


@contextmanager
def use_sources(sources: Mapping[str, DataSource]) -> Iterator[None]:
    """Let these be known too while the block runs, here and in processes forked in it."""
    token = _SOURCES.set({**_SOURCES.get(), **sources})
    try:
        yield
    finally:
        _SOURCES.reset(token)


def why_no_data(name: str) -> str:
    """Why the data set of this name cannot be loaded here; of an unknown name the nearest. Empty when it can."""
    sources = known_sources()
    if name in sources:
        return sources[name].why_missing()
    near = difflib.get_close_matches(name, sources, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sources) or 'none'}"
    return f"no data set {name!r}; {hint}"
