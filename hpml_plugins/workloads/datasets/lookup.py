"""Is a data set here, and if not, where was it looked for and how is it got? Looks at file names; imports nothing."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Mapping
from pathlib import Path

from hpml_plugins.errors import UsageError
from hpml_plugins.workloads.datasets.known import sources as known
from hpml_plugins.workloads.datasets.places import DATA_VARIABLE, roots
from hpml_plugins.workloads.datasets.source import DataSource, Found

Sources = Mapping[str, DataSource]


def source_of(name: str, sources: Sources | None = None) -> DataSource:
    """The source of this name. Raises UsageError naming the nearest.  sources: those that are known, when left out."""
    sources = known() if sources is None else sources
    if name in sources:
        return sources[name]
    near = difflib.get_close_matches(name, sources, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sources)}"
    raise UsageError(f"no data set {name!r}; {hint}")


def find(name: str, sources: Sources | None = None) -> Found | None:
    """Where the data set lies, or None. Raises UsageError for an unknown name."""
    source = source_of(name, sources)
    for root in _roots_of(source):
        if path := find_under(source, root):
            return Found(source, path)
    return None


def find_under(source: DataSource, root: Path) -> Path | None:
    """The data set under this root; a root that may not be read holds none."""
    try:
        return source.find(root)
    except OSError:
        return None


def why_missing(name: str, sources: Sources | None = None) -> str:
    """Why this data set cannot be loaded here, where it was looked for and the mend; empty when it can."""
    try:
        source = source_of(name, sources)
    except UsageError as error:
        return error.what
    lacking = [module for module in source.modules if importlib.util.find_spec(module) is None]
    if lacking:
        return f"data set {name} needs module {', '.join(lacking)} (pip install {' '.join(lacking)})"
    if find(name, sources):
        return ""
    places = ", ".join(str(root) for root in _roots_of(source))
    return (
        f"needs data set {name}: no {source.looks_for} in {places} "
        f"({source.mend}; or name the folder that holds it in {DATA_VARIABLE})"
    )


def _roots_of(source: DataSource) -> tuple[Path, ...]:
    return (*roots(), *source.extra_roots())
