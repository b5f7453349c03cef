"""What the CUDA benchmarks share: freeing at once, the check of a launch, and how long one would take.

Imports numba.cuda: imported inside `measure` only. Runs in numba's simulator too.
"""

from __future__ import annotations

import time

from numba import cuda

from hpml_plugins import Bench
from hpml_plugins.plugins.vecadd.cuda_kernels import launcher
from hpml_plugins.plugins.vecadd.vectors import LENGTHS, is_sum, vectors


def free_now() -> None:
    """Free what nobody refers to any more: numba keeps such memory until enough of it has piled up."""
    pending = getattr(cuda.current_context(), "deallocations", None)  # the simulator has none
    if pending is not None:
        pending.clear()


def check_launch(bench: Bench, launch: str) -> float:
    """Hold a launch against NumPy for lengths that no block divides. Returns s an element, of the longest of them."""
    seconds = 0.0
    for elements in LENGTHS:
        a, b, c = vectors(elements, bench.seed)
        on_gpu = [cuda.to_device(vector) for vector in (a, b, c)]
        add = launcher(launch, elements)
        cuda.synchronize()
        started = time.perf_counter()
        add(*on_gpu)
        cuda.synchronize()
        seconds = (time.perf_counter() - started) / elements
        on_gpu[2].copy_to_host(c)
        bench.check(is_sum(a, b, c), f"{launch}: sum of {elements} elements differs from NumPy's")
    return seconds


def refuse_what_cannot_end(bench: Bench, seconds: float, launches: int) -> None:
    """Skip a point whose launches would outlast its time, saying so; else say how long they will take.

    seconds: expected of one launch.  launches: how many the point makes at least.
    """
    expected = seconds * launches
    if expected > 0.8 * bench.remaining:
        bench.skip(
            f"{launches} launches of about {seconds:.1f} s each do not fit into the {bench.remaining:.0f} s that the "
            "point has left; give the plugin a longer timeout in registry.yaml"
        )
    if expected > 5:
        bench.progress(f"{launches} launches of about {seconds:.1f} s: at least {expected:.0f} s to go", 0.1)
