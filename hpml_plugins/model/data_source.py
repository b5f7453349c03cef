"""What the core asks of a data set: is it here, and load it. How one is found and read is its
provider's business."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from hpml_plugins.errors import nearest
from hpml_plugins.model.checking import ask_reason


@runtime_checkable
class LoadableData(Protocol):
    """A data set by name; plugins offer them through the hook `hpml_data`."""

    @property
    def name(self) -> str:
        """As in a grid."""

    def why_missing(self) -> str:
        """Why it cannot be loaded here and how to get it, in one line; empty when it can. Looks at
        file names only."""

    def load(self, progress: Callable[[str], None]) -> Any:
        """The data set in memory; nothing is downloaded. Raises HpmlError where it is missing or
        damaged.

        progress: called with a description of each slow step. The data set has `take(train, test,
        seed)`, which selects that many samples by the seed (None: all), and `facts()`, which a
        Record stores: digest, sizes, which part.
        """


#: The line of registry.yaml that brings the project's own data sets.
BUILT_IN = "- {name: datasets, module: hpml_plugins.workloads.datasets}"

Sources = Mapping[str, LoadableData]
#: The sources in force by name, and why each is missing, as far as it was asked.
_KNOWN: ContextVar[tuple[Sources, dict[str, str]]] = ContextVar(
    "data sources", default=({}, {})
)


def available_sources() -> Sources:
    """Name → data source, of those in force here."""
    return _KNOWN.get()[0]


@contextmanager
def use_sources(
    sources: Sources, missing: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Let these be known too while the block runs, here and in processes forked in it.

    missing: name → what `why_missing` answered, of sources that were asked before.
    """
    token = _KNOWN.set(({**available_sources(), **sources}, dict(missing or {})))
    try:
        yield
    finally:
        _KNOWN.reset(token)


def why_no_data(name: str) -> str:
    """Why the data set of this name cannot be loaded here; of an unknown name the nearest. Empty
    when it can."""
    sources, reasons = _KNOWN.get()
    if name in sources:
        if name not in reasons:  # looked for once, asked for by every point
            reasons[name] = why_missing(sources[name])
        return reasons[name]
    if not sources:
        own = f"the project's own are: {BUILT_IN}"
        return f"no data set {name!r}: no plugin offers data sets; {own}"
    return f"no data set {name!r}; {nearest(name, sources)}"


def why_missing(source: LoadableData) -> str:
    """What the source's `why_missing` answers, or what is wrong with it."""
    return ask_reason(source.why_missing, f"data set {source.name}: why_missing")
