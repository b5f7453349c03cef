"""The benchmark `vecadd_cpu`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpml_plugins import Bench, Benchmark, HpmlError, Requires, Samples
from hpml_plugins.plugins.vecadd import cpp
from hpml_plugins.plugins.vecadd.runs import warn_if_unsure
from hpml_plugins.plugins.vecadd.vectors import METRICS, MILLION, MILLIONS, bandwidth, is_sum, vectors

IMPLEMENTATIONS = ("numpy", "loop", "parallel", "cpp")


def measure(bench: Bench, *, millions: int, implementation: str) -> Mapping[str, Samples]:
    """Time c = a + b of `millions` million float32 on the CPU.

    implementation: "numpy", "loop" (numba, one thread), "parallel" (numba, all its threads) or "cpp" (a program of its
    own, one thread). What compiles, the first call and the check are outside the timing. Raises HpmlError for another
    implementation.
    """
    if implementation not in IMPLEMENTATIONS:
        known = ", ".join(IMPLEMENTATIONS)
        raise HpmlError(f"vecadd_cpu has no implementation {implementation!r}; use one of {known}")
    elements = millions * MILLION
    time = _program(bench, elements) if implementation == "cpp" else _in_python(bench, elements, implementation)
    return {"time": time, "bandwidth": bandwidth(elements, time)}


def _in_python(bench: Bench, elements: int, implementation: str) -> Samples:
    from numba import get_num_threads

    from hpml_plugins.plugins.vecadd.cpu_kernels import ADDITIONS

    add = ADDITIONS[implementation]
    a, b, c = vectors(elements, bench.seed)
    add(a, b, c)
    bench.check(is_sum(a, b, c), "sum differs from NumPy's")
    time = bench.time(lambda: add(a, b, c), device="cpu")
    threads = get_num_threads() if implementation == "parallel" else 1
    return replace(time, info={**time.info, "threads": threads})


def _program(bench: Bench, elements: int) -> Samples:
    compiler = cpp.find_compiler()
    if not compiler:
        bench.skip(f"needs a C++ compiler: none of {', '.join(cpp.COMPILERS)} is on the PATH, and CXX names none")
    bench.progress("building vecadd.cpp", 0.0)
    program = cpp.build(compiler, cpp.cache_folder())
    bench.progress("running it", 0.2)
    plan = bench.plan
    time, checksum = cpp.run(program, elements, bench.seed, budget=plan.budget, fewest=plan.fewest, most=plan.most)
    bench.check(checksum == cpp.checksum(elements, bench.seed), "sum differs from NumPy's")
    warn_if_unsure(bench, "time", time, time.info["stopped"])
    return replace(time, info={**time.info, "compiler": cpp.version(compiler), "flags": " ".join(cpp.FLAGS)})


VECADD_CPU = Benchmark(
    "vecadd_cpu",
    measure,
    metrics=METRICS,
    grid={"millions": MILLIONS, "implementation": IMPLEMENTATIONS},
    requires=Requires(modules=("numba", "numpy")),
    version="1",
    timeout=60,
    description="c = a + b of float32 vectors on the CPU: NumPy, a compiled loop, the loop on all threads, plain C++.",
)
