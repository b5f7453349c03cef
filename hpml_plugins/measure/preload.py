"""Importing what the benchmarks need once, before their processes are forked."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from contextlib import suppress

#: Libraries that many plugins share and that cost seconds to import. What a plugin brings itself is imported in the
#: processes of its own points only, for importing may change what others measure, or open CUDA, as torchao's does.
SHARED = ("torch", "torchvision", "numba", "numpy", "scipy", "sklearn", "fvcore", "triton", "cupy", "matplotlib", "asv")


def shared(modules: Iterable[str]) -> list[str]:
    """Those of the modules that may be imported once for the points of all plugins."""
    return [module for module in modules if module.partition(".")[0] in SHARED]


def import_before_fork(modules: Iterable[str]) -> None:
    """Import these modules, so that the process of every point finds them loaded.

    None may touch CUDA when it is imported: a process that has breaks in its forks. A module that does not import is
    left for the point that needs it to report.
    """
    wanted = list(modules)
    if "torchvision" in wanted:
        wanted.append("fvcore.nn")  # no benchmark requires it: models are counted without it too
    for module in dict.fromkeys(wanted):
        with suppress(Exception):
            importlib.import_module(module)
            if module == "numba.cuda":
                _load_what_numba_loads_late()


def _load_what_numba_loads_late() -> None:
    """numba fills its tables of CUDA functions at the first launch: 0.7 s, most of it importing SciPy.

    Not a documented interface; where it has moved, the first launch costs what it did before.
    """
    target = importlib.import_module("numba.cuda.descriptor").cuda_target
    target.typing_context.refresh()
    target.target_context.refresh()
