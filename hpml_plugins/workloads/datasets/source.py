"""DataSource: how one data set is found, read and obtained. A plain value; the built-in ones are in
`builtin`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hpml_plugins.errors import HpmlError, describe
from hpml_plugins.model import check_fields
from hpml_plugins.workloads.datasets.dataset import Arrays, DataSet, find_fault
from hpml_plugins.workloads.datasets.places import DATA_VARIABLE, roots


@dataclass(frozen=True)
class DataSource:
    """Where a data set may be under a root, and how it is read.

    name: as in a grid.  find: the data set's file or folder under a root, or None; looks at file
    names only, because it is called before any point is measured.  read: reads the path from
    `find`; may raise any error of its libraries. looks_for: a description of the files that `find`
    expects. how_to_get: how a user gets it, a command.  modules: what `read` imports.  download:
    fetches it into a root, if a library can.  unpack_to: the folder under a root into which an
    archive of it is unpacked, "." for the root itself, None if no archive is known. extra_roots:
    more roots.
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
        return next(
            (path for root in self._roots() if (path := self.path_under(root))), None
        )

    def path_under(self, root: Path) -> Path | None:
        """The data set under this root; None for an unreadable root."""
        try:
            return self.find(root)
        except OSError:
            return None

    def why_missing(self) -> str:
        """Why it cannot be loaded here, where it was searched for and how to get it; empty if it
        can be loaded."""
        missing = [
            module for module in self.modules if importlib.util.find_spec(module) is None
        ]
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
        """The data set; nothing is downloaded. progress: called with a message before slow steps.

        Decoded images are kept in the user's cache and mapped into memory from there, so that any
        number of processes may call this at once: one decodes, the others wait for it, and all
        share the pages.  Raises HpmlError if it is missing or damaged.
        """
        from hpml_plugins.workloads.datasets.decoding import load

        path = self.path()
        if reason := self.why_missing():
            raise HpmlError(reason)
        assert path is not None
        return load(self.name, path, partial(read_checked, self), progress)

    def _roots(self) -> tuple[Path, ...]:
        return (*roots(), *self.extra_roots())


def read_checked(source: DataSource, path: Path) -> Arrays:
    """The data set at `path`, from its own files. Raises HpmlError if they are damaged."""
    try:
        arrays = source.read(path)
        wrong = find_fault(arrays)
        fault = f"{path}: {wrong}" if wrong else ""
    except MemoryError:
        raise
    except Exception as error:  # the libraries raise many kinds of errors for damaged files
        fault = error.what if isinstance(error, HpmlError) else f"{path}: {describe(error)}"
    if fault:
        raise HpmlError(
            f"data set {source.name} is damaged: {fault} (remove it, then {source.how_to_get})"
        )
    return arrays
