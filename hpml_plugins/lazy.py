"""Names of a package that are imported when they are first used (PEP 562): listing benchmarks must
answer at once."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def import_lazily(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package or module.  names: module, relative to `package` → the names
    that it has."""

    def get(name: str) -> Any:
        for module, known in names.items():
            if name in known:
                return getattr(import_module(module, package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
