"""Whether the node's MPI library reports that it accepts GPU memory: queried once, without starting
ranks."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpml_plugins import Node

#: The output of Open MPI's own program if the library was built without CUDA. Source: its FAQ, "How
#: do I know if Open MPI was built with CUDA support?" (ompi_info --parsable --all).
BUILT_WITHOUT = "mpi_built_with_cuda_support:value:false"
#: s that the program may take.
PATIENCE = 10.0


@functools.cache
def why_no_gpu_memory() -> str:
    """Why this node's MPI does not accept GPU memory; empty if it does, or does not report it.

    Each rank queries a library that does not report it (`exchange.why_not_cuda_aware`).
    """
    program = shutil.which("ompi_info")
    if program is None:
        return ""
    words = [program, "--parsable", "--all"]
    try:
        told = subprocess.run(
            words, capture_output=True, text=True, timeout=PATIENCE, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if BUILT_WITHOUT in told:
        return "this node's Open MPI was built without support of CUDA: it does not take GPU memory"
    return ""


def takes_gpu_memory(node: Node, point: Mapping[str, object]) -> str:
    """A requirement of points whose ranks pass GPU memory to MPI: why it is not met, or ""."""
    return why_no_gpu_memory() if point["way"] == "cuda_mpi" and node.gpus else ""
