"""A node as a bundle finds it: a Python of its own with torch and what torch needs, and nothing of this project."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import sysconfig
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hpml_plugins.tools.bundle.packages import find_uv

#: What a GPU node has: the others of the project's packages are not importable there.
HAS = ("torch", "torchvision", "numba", "numba-cuda", "setuptools", "pip")


def make_bare_node(folder: Path) -> Path:
    """A virtual environment whose packages are links to this Python's; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    own = Path(sysconfig.get_path("purelib"))
    site = next(folder.glob("lib/python3.*/site-packages"))
    for name in closure(HAS) - {"numpy"}:
        for file in importlib.metadata.distribution(name).files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not top.endswith(".pth") and not (site / top).exists():
                (site / top).symlink_to(own / top)
    # one that the project refuses (as it does 2.5, which exists for newer Pythons only)
    command = [find_uv(), "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", str(site)]
    subprocess.run([*command, "numpy==2.0.2"], check=True)
    return folder / "bin" / "python"


def closure(names: tuple[str, ...]) -> set[str]:
    """These distributions and all that they require here."""
    found: set[str] = set()
    ahead = [str(canonicalize_name(name)) for name in names]
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        found.add(name)
        wanted = [Requirement(text) for text in importlib.metadata.requires(name) or ()]
        ahead += [
            str(canonicalize_name(each.name))
            for each in wanted
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    return found
