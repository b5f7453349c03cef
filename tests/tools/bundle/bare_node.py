"""A node before a bundle is installed: its Python has torch and the requirements of torch, and
nothing of this project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support import closure, link_packages

from hpml_plugins.tools.bundle.packages import find_uv

#: What a GPU node has: the others of the project's packages are not importable there.
HAS = ("torch", "torchvision", "numba", "numba-cuda", "setuptools", "pip")


def make_bare_node(folder: Path) -> Path:
    """A virtual environment whose packages are links to this Python's; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python3.*/site-packages"))
    link_packages(closure(HAS) - {"numpy"}, site)
    # one that the project refuses (as it does 2.5, which exists for newer Pythons only)
    command = [
        find_uv(),
        "pip",
        "install",
        "--quiet",
        "--python",
        sys.executable,
        "--no-deps",
        "--target",
        str(site),
    ]
    subprocess.run([*command, "numpy==2.0.2"], check=True)
    return folder / "bin" / "python"
