"""The interface of a data set: whether it is available, and loading it. Finding and reading it is
up to its provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from hpml_plugins.errors import nearest
from hpml_plugins.model.checking import ask_reason


@runtime_checkable
class LoadableData(Protocol):
    """A named data set; plugins offer them through the hook `hpml_data`."""

    @property
    def name(self) -> str:
        """The name used in a grid."""

    def why_missing(self) -> str:
        """Why it cannot be loaded here and how to get it, in one line; empty if it can be loaded.
        Only looks at file names."""

    def load(self, progress: Callable[[str], None]) -> Any:
        """Load the data set into memory; nothing is downloaded. Raises HpmlError if it is missing
        or damaged.

        progress: called with a description of each slow step. The data set has `take(train, test,
        seed)`, which selects that many samples by the seed (None: all), and `facts()`, which a
        Record stores: digest, sizes, which part.
        """


#: The line of registry.yaml that adds the project's own data sets.
BUILT_IN = "- {name: datasets, module: hpml_plugins.workloads.datasets}"

Sources = Mapping[str, LoadableData]
#: The available sources by name, and why each is missing, as far as determined.
_KNOWN: ContextVar[tuple[Sources, dict[str, str]]] = ContextVar(
    "data sources", default=({}, {})
)


def available_sources() -> Sources:
    """Name → data source, of those available here."""
    return _KNOWN.get()[0]


@contextmanager
def use_sources(
    sources: Sources, missing: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Make these sources available too while the block runs, here and in processes forked in it.

    missing: name → the answer of `why_missing`, for sources that were asked before.
    """
    token = _KNOWN.set(({**available_sources(), **sources}, dict(missing or {})))
    try:
        yield
    finally:
        _KNOWN.reset(token)


def why_no_data(name: str) -> str:
    """Why the data set of this name cannot be loaded here; for an unknown name, the nearest ones.
    Empty if it can."""
    sources, reasons = _KNOWN.get()
    if name in sources:
        if name not in reasons:  # determined once, asked by every point
            reasons[name] = why_missing(sources[name])
        return reasons[name]
    if not sources:
        own = f"the project's own are: {BUILT_IN}"
        return f"no data set {name!r}: no plugin offers data sets; {own}"
    return f"no data set {name!r}; {nearest(name, sources)}"


def why_missing(source: LoadableData) -> str:
    """The answer of the source's `why_missing`, or what is wrong with it."""
    return ask_reason(source.why_missing, f"data set {source.name}: why_missing")
