"""What measuring asks of the measured libraries: one import for all points, versions, errors in
words."""

from __future__ import annotations

import importlib
import importlib.util
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

#: Libraries that many plugins share and that cost seconds to import. What a plugin brings itself is
#: imported in the processes of its own points only, for importing may change what others measure,
#: or open CUDA, as torchao's does.
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
#: Looked at only when loaded, so that a point names what it used and not what happens to be
#: installed.
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
    """Import those of these modules that many plugins share, so that the process of every point
    finds them loaded.

    None may touch CUDA when it is imported: a process that has breaks in its forks. A module that
    does not import is left for the point that needs it to report.
    """
    wanted = [module for module in modules if module.partition(".")[0] in SHARED]
    if "torchvision" in wanted:
        wanted.append(
            "fvcore.nn"
        )  # no benchmark requires it: models are counted without it too
    for module in dict.fromkeys(wanted):
        with suppress(Exception):
            importlib.import_module(module)
            if place := _NUMBA_TARGETS.get(module):
                # numba fills its tables of functions at the first call: 0.36 s for the CPU, 0.7 s
                # for CUDA; no API: where they have moved, the first call costs what it did before.
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
    where there is none."""
    facts: dict[str, object] = {}
    if (spec := importlib.util.find_spec("torch")) and spec.origin:
        with suppress(OSError, SyntaxError):
            facts = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    return str(facts.get("__version__", "")).partition("+")[0], str(facts.get("cuda") or "")


def _version(name: str) -> str:
    import importlib.metadata  # imports email and zipfile: not where nothing is measured

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def end_compilers() -> None:
    """End the processes that torch.compile keeps for its next compilation: a point that is done
    leaves none behind."""
    if pool := sys.modules.get("torch._inductor.async_compile"):
        # Not a documented interface; where it has moved, they are ended with the point, and the
        # Record says so.
        with suppress(Exception):
            pool.shutdown_compile_workers()


def describe_failure(
    error: BaseException, measure: Callable[..., object] | None = None
) -> str:
    """Why a point or a rank failed, with the plugin's line and the expression that raised, else the
    line of `measure`. Prints the traceback."""
    if not isinstance(error, HpmlError):
        what = f"exited: {error.code}" if isinstance(error, SystemExit) else describe(error)
    else:
        what = error.what
        # says itself what to look at
        if not isinstance(error, DefinitionError | ResultError | UsageError):
            return what
    traceback.print_exception(error)
    line, expression = failing_line(error)
    if line:
        return f"{what} ({_short(line)}: {expression})"
    code = getattr(measure, "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
    return f"{what} ({_short(place)})" if place else what


def _short(place: str) -> str:
    """`file.py:3` of a path and a line; of a package's `__init__.py` with the package."""
    path = Path(place)
    is_package = path.name.startswith("__init__.py")
    return f"{path.parent.name}/{path.name}" if is_package else path.name
