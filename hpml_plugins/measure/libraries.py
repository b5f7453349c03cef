"""Handling of the measured libraries: one import for all points, versions, error descriptions."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from hpml_plugins.errors import (
    DefinitionError,
    HpmlError,
    ResultError,
    UsageError,
    describe,
    failing_line,
)

#: Libraries that many plugins share and that take seconds to import. Libraries of a single
#: plugin are imported only in the processes of its points, because importing them may change other
#: measurements or open CUDA, as torchao does.
SHARED = (
    "torch",
    "torchvision",
    "numba",
    "numpy",
    "scipy",
    "sklearn",
    "fvcore",
    "triton",
    "cupy",
    "matplotlib",
    "asv",
)
#: Where numba keeps the tables of a target.
_NUMBA_TARGETS = {
    "numba": ("numba.core.registry", "cpu_target"),
    "numba.cuda": ("numba.cuda.descriptor", "cuda_target"),
}
#: Listed only if loaded, so that a point names what it used rather than what is installed.
_PACKAGES = (
    "torch",
    "torchvision",
    "torchao",
    "numba",
    "numba_cuda",
    "numpy",
    "fvcore",
    "triton",
    "cupy",
    "mpi4py",
)


def import_before_fork(modules: Iterable[str]) -> None:
    """Import those of these modules that many plugins share, so that they are already loaded in
    every point's process.

    None of them may touch CUDA when imported: that would break CUDA in forked processes. A module
    that fails to import is reported by the point that needs it.
    """
    wanted = [module for module in modules if module.partition(".")[0] in SHARED]
    if "torchvision" in wanted:
        # not required by any benchmark: models are also counted without it
        wanted.append("fvcore.nn")
    for module in dict.fromkeys(wanted):
        with suppress(Exception):
            importlib.import_module(module)
            if place := _NUMBA_TARGETS.get(module):
                # numba fills its function tables at the first call: 0.36 s for the CPU, 0.7 s for
                # CUDA. This is not an API: if the tables move, the first call takes that time
                # again.
                target = getattr(importlib.import_module(place[0]), place[1])
                target.typing_context.refresh()
                target.target_context.refresh()


def package_versions() -> dict[str, str]:
    """Versions of the measured libraries that this process has imported, and of hpml-plugins
    itself."""
    found = {
        name: version
        for name in _PACKAGES
        if name in sys.modules and (version := _version(name))
    }
    return {"hpml-plugins": _version("hpml-plugins"), **found}


def torch_build() -> tuple[str, str]:
    """Versions of torch and of the CUDA it was built with, without importing it; empty strings
    without torch."""
    facts: dict[str, object] = {}
    if (spec := importlib.util.find_spec("torch")) and spec.origin:
        with suppress(OSError, SyntaxError):
            facts = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    return str(facts.get("__version__", "")).partition("+")[0], str(facts.get("cuda") or "")


def _version(name: str) -> str:
    import importlib.metadata  # imports email and zipfile, which only measuring needs

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def end_compilers() -> None:
    """End the processes that torch.compile keeps for its next compilation, so that a finished point
    leaves none behind."""
    if pool := sys.modules.get("torch._inductor.async_compile"):
        # Not a documented interface; if it changes, they are ended with the point, and the Record
        # says so.
        with suppress(Exception):
            pool.shutdown_compile_workers()


def describe_failure(
    error: BaseException, measure: Callable[..., object] | None = None
) -> str:
    """Describe why a point or rank failed, with the plugin's line and the expression that raised,
    else the line of `measure`. Prints the traceback."""
    if not isinstance(error, HpmlError):
        what = f"exited: {error.code}" if isinstance(error, SystemExit) else describe(error)
    else:
        what = error.what
        # these errors explain themselves
        if not isinstance(error, DefinitionError | ResultError | UsageError):
            return what
    traceback.print_exception(error)
    line, expression = failing_line(error)
    if line:
        return f"{what} ({_short(line)}: {expression})"
    code = getattr(measure and inspect.unwrap(measure), "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
    return f"{what} ({_short(place)})" if place else what


def _short(place: str) -> str:
    """`file.py:3` from a path and a line; for the `__init__.py` of a package, with the package."""
    path = Path(place)
    is_package = path.name.startswith("__init__.py")
    return f"{path.parent.name}/{path.name}" if is_package else path.name
