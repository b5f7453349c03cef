"""The node that a bundle is for, as it told itself or as it is assumed to be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from hpml_plugins.errors import UsageError

ASK = "ask it: hpml bundle --ask | ssh NODE python3 - > node.json"


class NodeFacts(msgspec.Struct, frozen=True):
    """What `ask_node` and `hpml doctor --json` say of a node's Python.

    abi: cp312.  libc: "glibc 2.39", "" where it is another.  packages: name → version, "" where only the name is known.
    """

    hpml_node: int
    python: str
    abi: str
    machine: str
    libc: str
    packages: dict[str, str]

    @property
    def minor(self) -> str:
        """3.12 of 3.12.3."""
        return ".".join(self.python.split(".")[:2])

    @property
    def glibc(self) -> tuple[int, int]:
        """(2, 39); (0, 0) where it is another C library."""
        found = re.fullmatch(r"glibc (\d+)\.(\d+).*", self.libc)
        return (int(found[1]), int(found[2])) if found else (0, 0)


def read_node(path: Path) -> NodeFacts:
    """Read what a node told. Raises UsageError when it is not that, or a node that no bundle can be made for."""
    try:
        node = msgspec.json.decode(path.read_bytes(), type=NodeFacts)
    except OSError as error:
        raise UsageError(f"{error.strerror}; {ASK}", str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"not what a node told of itself ({error}); {ASK}", str(path)) from None
    return _usable(node, str(path))


def assume_node(python: str, platform: str, has: Iterable[str]) -> NodeFacts:
    """The facts from a command line: `3.12`, `manylinux_2_28_x86_64`, names with or without `==VERSION`."""
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", platform)
    if not re.fullmatch(r"3\.\d+", python) or not found:
        raise UsageError(f"{python!r} on {platform!r} is no node; for example --python 3.12 --platform {EXAMPLE}")
    packages = {str(canonicalize_name(name)): version for name, _, version in (one.partition("==") for one in has)}
    abi = f"cp{python.replace('.', '')}"
    return _usable(NodeFacts(1, python, abi, found[3], f"glibc {found[1]}.{found[2]}", packages), "")


EXAMPLE = "manylinux_2_28_x86_64"


def _usable(node: NodeFacts, where: str) -> NodeFacts:
    if not re.fullmatch(r"3\.\d{1,3}(\.\d+)?\S{0,20}", node.python):
        raise UsageError(f"the node's Python is {node.python!r}; the project runs with Python 3", where)
    if not re.fullmatch(r"cp\d+", node.abi):
        raise UsageError(f"the node's Python is {node.abi}; packages are built for the usual CPython", where)
    if node.glibc < (2, 17) or node.machine not in ("x86_64", "aarch64"):
        told = f"{node.machine} with {node.libc or 'a C library that is not glibc'}"
        raise UsageError(
            f"the node is {told}; packages are built for x86_64 and aarch64 with glibc 2.17 or newer", where
        )
    return node
