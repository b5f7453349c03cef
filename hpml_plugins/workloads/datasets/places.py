"""Where data sets are searched for, and the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

#: Folders, separated as in PATH, that are searched before all others.
DATA_VARIABLE = "HPML_DATA"
#: Where distributions put data sets: Debian's dataset-* packages.
SYSTEM = (Path("/usr/share/datasets"),)


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
