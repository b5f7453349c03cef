"""What the core asks of a data set: is it here, and load it. How one is found and read is its provider's business."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from hpml_plugins.errors import nearest


@runtime_checkable
class LoadableData(Protocol):
    """A data set by name; plugins offer them through the hook `hpml_data`."""

    @property
    def name(self) -> str:
        """As in a grid."""

    def why_missing(self) -> str:
        """Why it cannot be loaded here and how to get it, in one line; empty when it can. Looks at file names only."""

    def load(self, progress: Callable[[str], None]) -> Any:
        """The data set in memory; nothing is downloaded. Raises DataError where it is missing or damaged.

        progress: told what takes time. The data set has `take(train, test, seed)`, a part of it with so many samples
        chosen by the seed, None for all, and `facts()`, what a Record says of it: digest, sizes, which part.
        """


#: The line of registry.yaml that brings the project's own data sets.
BUILT_IN = "- {name: datasets, module: hpml_plugins.workloads.datasets}"

_SOURCES: ContextVar[Mapping[str, LoadableData]] = ContextVar("data sources", default={})  # noqa: B039  (never changed)
#: Name → why it is missing, of the sources in force.
_REASONS: ContextVar[dict[str, str]] = ContextVar("why data is missing")


def available_sources() -> Mapping[str, LoadableData]:
    """Name → data source, of those in force here."""
    return _SOURCES.get()


@contextmanager
def use_sources(sources: Mapping[str, LoadableData]) -> Iterator[None]:
    """Let these be known too while the block runs, here and in processes forked in it."""
    tokens = _SOURCES.set({**_SOURCES.get(), **sources}), _REASONS.set({})
    try:
        yield
    finally:
        _SOURCES.reset(tokens[0])
        _REASONS.reset(tokens[1])


def why_no_data(name: str) -> str:
    """Why the data set of this name cannot be loaded here; of an unknown name the nearest. Empty when it can."""
    sources = available_sources()
    if name in sources:
        reasons = _REASONS.get()
        if name not in reasons:  # looked for once, asked for by every point
            reasons[name] = sources[name].why_missing()
        return reasons[name]
    if not sources:
        return f"no data set {name!r}: no plugin offers data sets; the project's own are: {BUILT_IN}"
    return f"no data set {name!r}; {nearest(name, sources)}"
