"""The public names and their signatures are those recorded in public_api.txt.

A change there is a change of what plugins were promised: docs/stability.md says which number rises
for it. Then `python tests/test_public_api.py > tests/public_api.txt` records it.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

RECORDED = Path(__file__).with_name("public_api.txt")


def public_api() -> Iterator[str]:
    """One line a name: its kind and signature; below a class, its public attributes."""
    for module in ("hpml_plugins", "hpml_plugins.testing"):
        found = importlib.import_module(module)
        for name in sorted(found.__all__):
            for line in _describe(f"{module}.{name}", getattr(found, name)):
                yield re.sub(r" at 0x[0-9a-f]+", "", line)
    hooks = importlib.import_module("hpml_plugins.hookspecs")
    for name, thing in sorted(vars(hooks).items()):
        if hasattr(thing, "hpml_spec"):
            yield f"hook {name}{inspect.signature(thing)}"


def _describe(name: str, thing: object) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield (
            f"{name}{inspect.signature(thing) if inspect.isfunction(thing) else ': ' + type(thing).__name__}"  # noqa: E501
        )
        return
    fields = dataclasses.is_dataclass(thing) or issubclass(thing, msgspec.Struct)
    yield (
        f"{name}({', '.join(inspect.signature(thing).parameters)})" if fields else f"{name}"
    )
    for attribute, value in sorted(_attributes(thing).items()):
        if (attribute.startswith("_") and attribute != "__init__") or (
            fields and attribute == "__init__"
        ):
            continue
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(plain):
            yield f"    {attribute}{inspect.signature(plain)}"
        elif isinstance(plain, property):
            yield f"    {attribute}: property"


def _attributes(thing: type) -> dict[str, object]:
    """Those of the class, and those that it has from a base of ours whose name is not public."""
    found: dict[str, object] = {}
    for base in reversed(thing.__mro__):
        if base is thing or base.__module__.startswith("hpml_plugins.measure"):
            found |= vars(base)
    return found


def test_dir_lists_the_public_names() -> None:
    package = importlib.import_module("hpml_plugins")
    assert set(dir(package)) == {*package.__all__, "__version__"}
    assert "Benchmark" in dir(package)


def test_the_public_names_and_signatures_are_the_recorded_ones() -> None:
    assert list(public_api()) == RECORDED.read_text().splitlines(), (
        "see docs/stability.md and this file's first lines"
    )


if __name__ == "__main__":
    print("\n".join(public_api()))
