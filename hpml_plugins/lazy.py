"""Import names of a package at their first use (PEP 562), so that commands such as listing
benchmarks start quickly."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def import_lazily(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package or module.  names: module, relative to `package` → its
    names."""

    def get(name: str) -> Any:
        for module, known in names.items():
            if name in known:
                return getattr(import_module(module, package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
