"""Versions of the libraries that a measurement went through."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import runpy
import sys
from pathlib import Path

#: Asked only when loaded, so that a point names what it used and not what happens to be installed.
_PACKAGES = ("torch", "torchvision", "torchao", "numba", "numba_cuda", "numpy", "fvcore", "triton", "cupy", "mpi4py")


def package_versions() -> dict[str, str]:
    """Versions of the measured libraries that this process has imported, and of hpml-plugins itself."""
    found = {name: version for name in _PACKAGES if name in sys.modules and (version := _version(name))}
    return {"hpml-plugins": _version("hpml-plugins"), **found}


def torch_build() -> tuple[str, str]:
    """Versions of torch and of the CUDA it was built with, without importing it; empty strings where there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return "", ""
    try:
        facts = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    except (OSError, SyntaxError):
        return _version("torch").partition("+")[0], ""
    return str(facts.get("__version__", "")).partition("+")[0], str(facts.get("cuda") or "")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
