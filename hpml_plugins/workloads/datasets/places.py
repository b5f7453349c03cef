"""Where data sets are searched for, and the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

from hpml_plugins.temporary import absolute, user_cache

#: Folders, separated as in PATH, that are searched before all others.
DATA_VARIABLE = "HPML_DATA"
#: Where distributions put data sets: Debian's dataset-* packages.
SYSTEM = (Path("/usr/share/datasets"),)
#: `data` in it has the downloads of `hpml data`, and `decoded` the decoded copies.
cache = user_cache


def roots() -> tuple[Path, ...]:
    """The folders that may hold data sets, in the order in which they are searched."""
    named = [
        absolute(part)
        for part in os.environ.get(DATA_VARIABLE, "").split(os.pathsep)
        if part
    ]
    return tuple(dict.fromkeys([*named, cache() / "data", *SYSTEM]))
