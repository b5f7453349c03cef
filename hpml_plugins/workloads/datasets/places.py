"""Where data sets are looked for, and where decoded copies are kept."""

from __future__ import annotations

import os
from pathlib import Path

#: Folders, separated as in PATH, that are looked in before all others.
DATA_VARIABLE = "HPML_DATA"
#: Where distributions put data sets: Debian's dataset-* packages.
SYSTEM = (Path("/usr/share/datasets"),)


def roots() -> tuple[Path, ...]:
    """The folders that may hold data sets, in the order in which they are looked at."""
    named = [absolute(part) for part in os.environ.get(DATA_VARIABLE, "").split(os.pathsep) if part]
    return tuple(dict.fromkeys([*named, user_root(), *SYSTEM]))


def user_root() -> Path:
    """Where `hpml data get` and `hpml data add` put a data set: `~/.cache/hpml/data`."""
    return cache() / "data"


def decoded_root() -> Path:
    """Where decoded copies are kept: `~/.cache/hpml/decoded`."""
    return cache() / "decoded"


def cache() -> Path:
    """The user's cache by the XDG rules: an XDG_CACHE_HOME that is not absolute counts as not set."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else absolute("~/.cache")) / "hpml"


def absolute(path: str | Path) -> Path:
    """The path from the root, `~` resolved. A user without a home keeps the `~`, in which nothing is found."""
    text = str(path)
    return Path(os.path.abspath(os.path.expanduser(text)))  # noqa: PTH100, PTH111  (Path.expanduser raises)
