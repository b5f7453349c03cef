"""DataSource: how one data set is found, read and obtained. A plain value; the built-in ones are in
`builtin`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpml_plugins.errors import HpmlError, UsageError, nearest
from hpml_plugins.model import available_sources, check_fields

if TYPE_CHECKING:
    import numpy

    from hpml_plugins.workloads.datasets.dataset import DataSet

    Array = numpy.ndarray[Any, Any]

#: Folders, separated as in PATH, that are searched before all others.
DATA_VARIABLE = "HPML_DATA"
#: Where distributions put data sets: Debian's dataset-* packages.
SYSTEM = (Path("/usr/share/datasets"),)


@dataclass(frozen=True)
class Arrays:
    """A data set as NumPy arrays. images: uint8 (N, C, H, W).  labels: int64 (N,), below
    len(classes)."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array
    classes: tuple[str, ...]


@dataclass(frozen=True)
class DataSource:
    """Where a data set may be under a root, and how it is read.

    name: as in a grid.  find: the data set's file or folder under a root, or None; looks at file
    names only, because it is called before any point is measured.  read: reads what `find`
    returned; may raise whatever its libraries raise. looks_for: what `find` looks for, in words.
    how_to_get: how a user gets it, a command.  modules: what `read` imports.  download: fetches it
    into a root, where a library can.  unpack_to: the folder under a root into which an archive of
    it is unpacked, "." for the root itself, None where no archive is known.  extra_roots: more
    roots.
    """

    name: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path], Arrays]
    looks_for: str
    how_to_get: str
    modules: tuple[str, ...] = ()
    download: Callable[[Path], None] | None = None
    unpack_to: str | None = None
    extra_roots: Callable[[], tuple[Path, ...]] = tuple

    def __post_init__(self) -> None:
        check_fields(self, "data source", self.name)

    def path(self) -> Path | None:
        """Where the data set is on this machine, or None."""
        return next((path for root in self._roots() if (path := self.path_under(root))), None)

    def path_under(self, root: Path) -> Path | None:
        """The data set under this root; an unreadable root holds none."""
        try:
            return self.find(root)
        except OSError:
            return None

    def why_missing(self) -> str:
        """Why it cannot be loaded here, where it was searched for and how to get it; empty when it
        can."""
        missing = [module for module in self.modules if importlib.util.find_spec(module) is None]
        if missing:
            return (
                f"data set {self.name} needs module {', '.join(missing)} (pip install"
                f" {' '.join(missing)})"
            )
        if self.path():
            return ""
        places = ", ".join(str(root) for root in self._roots())
        return (
            f"needs data set {self.name}: no {self.looks_for} in {places} "
            f"({self.how_to_get}; or name the folder that holds it in {DATA_VARIABLE})"
        )

    def load(self, progress: Callable[[str], None]) -> DataSet:
        """The data set; nothing is downloaded. progress: called with what takes time.

        Decoded images are kept in the user's cache and mapped into memory from there, so that any
        number of processes may call this at once: one decodes, the others wait for it, and all
        share the pages.  Raises HpmlError where it is missing or damaged.
        """
        from hpml_plugins.workloads.datasets.decoding import load

        path = self.path()
        if reason := self.why_missing():
            raise HpmlError(reason)
        assert path is not None
        return load(self, path, progress)

    def _roots(self) -> tuple[Path, ...]:
        return (*roots(), *self.extra_roots())


def load_data(name: str, *, say: Callable[[str], None] = lambda text: None) -> DataSet:
    """The data set of this name, found on this machine: without a Bench, or in the process of a
    rank.

    say: called with what takes time.  Raises HpmlError where it is missing or damaged, UsageError
    for an unknown name.
    """
    loaded: DataSet = source_of(name).load(say)
    return loaded


def sources() -> dict[str, Any]:
    """Name → data source: those of the plugins in force, and the built-in ones."""
    from hpml_plugins.workloads.datasets.builtin import SOURCES

    return {**SOURCES, **available_sources()}


def source_of(name: str) -> Any:
    """The data source of this name. Raises UsageError naming the nearest."""
    known = sources()
    if name in known:
        return known[name]
    raise UsageError(f"no data set {name!r}; {nearest(name, known)}")


def roots() -> tuple[Path, ...]:
    """The folders that may hold data sets, in the order in which they are searched."""
    named = [
        _absolute(part) for part in os.environ.get(DATA_VARIABLE, "").split(os.pathsep) if part
    ]
    return tuple(dict.fromkeys([*named, cache() / "data", *SYSTEM]))


def cache() -> Path:
    """The user's cache by the XDG rules; in it `data` holds what `hpml data` got, and `decoded` the
    decoded copies."""
    base = os.environ.get("XDG_CACHE_HOME", "")  # counts as not set where it is not absolute
    return (Path(base) if Path(base).is_absolute() else _absolute("~/.cache")) / "hpml"


def _absolute(path: str) -> Path:
    """The absolute path, `~` resolved. For a user without a home `~` stays, and nothing is found
    there."""
    return Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111  (Path.expanduser raises)
