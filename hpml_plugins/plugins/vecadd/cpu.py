"""The benchmark `vecadd_cpu`: in Python with NumPy and numba, and as a C++ program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.plugins.vecadd.vectors import (
    METRICS,
    MILLION,
    MILLIONS,
    bytes_moved,
    is_sum,
    require,
    vectors,
)

IMPLEMENTATIONS = ("numpy", "loop", "parallel", "cpp")
SOURCE = Path(__file__).with_name("vecadd.cpp")
COMPILERS = ("g++", "c++", "clang++")
FLAGS = ("-O3", "-std=c++17")


def measure(bench: Bench, *, millions: int, implementation: str) -> Mapping[str, Samples | None]:
    """Time c = a + b of `millions` million float32 on the CPU; compiling, the first call and the
    check excluded."""
    require("implementation", implementation, IMPLEMENTATIONS)
    elements = millions * MILLION
    bench.work(bytes=bytes_moved(elements))
    instructions = None
    if implementation == "cpp":
        time = _cpp(bench, elements)
    else:
        from numba import get_num_threads

        add = addition(implementation)
        a, b, c = vectors(elements, bench.seed)
        add(a, b, c)
        bench.check(is_sum(a, b, c), "sum differs from NumPy's")
        time = bench.time(lambda: add(a, b, c), device="cpu")
        time = time.note(threads=get_num_threads() if implementation == "parallel" else 1)
        instructions = bench.instructions(lambda: add(a, b, c))
    return {"time": time, "instructions": instructions}


def addition(implementation: str) -> Any:
    """`add(a, b, c)`: "numpy", "loop" by numba on one thread, or "parallel" on all its threads."""
    import numba
    import numpy as np

    def loop(a: Any, b: Any, c: Any) -> None:
        for i in numba.prange(c.size):  # a range unless compiled for threads
            c[i] = a[i] + b[i]

    if implementation == "numpy":
        return lambda a, b, c: np.add(a, b, out=c)
    parallel = implementation == "parallel"
    try:  # compiling takes 1 s of CPU time in each process that measures a point
        return numba.njit(parallel=parallel, cache=True)(loop)
    except RuntimeError:  # no cache folder
        return numba.njit(parallel=parallel)(loop)


def _cpp(bench: Bench, elements: int) -> Samples:
    compiler = find_compiler()
    if not compiler:
        bench.skip(
            f"needs a C++ compiler: none of {', '.join(COMPILERS)} is on the PATH, and CXX names"
            " none"
        )
    with tempfile.TemporaryDirectory() as folder:
        bench.progress("building vecadd.cpp", 0.0)
        program = build(compiler, SOURCE, FLAGS, Path(folder, "vecadd"))
        bench.progress("running it", 0.2)
        time, found = run(program, elements, bench.seed, bench.plan)
    bench.check(found == checksum(elements, bench.seed), "sum differs from NumPy's")
    bench.warn_if_imprecise(time)
    version = run_command(compiler, "--version").stdout.strip().partition("\n")[0]
    return time.note(compiler=version, flags=" ".join(FLAGS))


def find_compiler() -> str | None:
    """The C++ compiler: $CXX, else the first of COMPILERS on the PATH; None if there is none."""
    candidates = (os.environ.get("CXX", ""), *COMPILERS)
    return next((found for name in candidates if name and (found := shutil.which(name))), None)


def build(compiler: str, source: Path, flags: Sequence[str], program: Path) -> Path:
    """Compile `source` into the file `program`. Raises HpmlError with the compiler's first
    complaint."""
    done = run_command(compiler, *flags, str(source), "-o", str(program))
    if done.returncode != 0:
        said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
        raise HpmlError(f"{compiler} does not compile {source.name}: {said}")
    return program


def run(program: Path, elements: int, seed: int, plan: SamplingPlan) -> tuple[Samples, int]:
    """Samples of one addition, s, by the program's own clock, and the checksum of its c."""
    done = run_command(
        str(program), *map(str, (elements, seed % 2**32, plan.budget, plan.fewest, plan.most))
    )
    if done.returncode != 0:
        raise HpmlError(
            f"{program.name} ended with exit status {done.returncode}: {done.stderr.strip()}"
        )
    printed = json.loads(done.stdout)
    stopped = "most samples" if len(printed["seconds"]) >= plan.most else "budget"
    samples = Samples.of(
        printed["seconds"],
        "s",
        timer="std::chrono::steady_clock",
        batch=1,
        threads=1,
        stopped=stopped,
    )
    return samples, int(printed["checksum"])


def run_command(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with any exit status, and capture its output."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def checksum(elements: int, seed: int) -> int:
    """The program's checksum, computed by NumPy: sum of bits(c[i]) · (2 i + 1), modulo 2⁶⁴."""
    import numpy as np

    total = 0
    part = 1 << 20  # stays in the cache
    for first in range(0, elements, part):
        i = np.arange(first, min(first + part, elements), dtype=np.uint32)
        c = inputs(i, 0, seed) + inputs(i, 1, seed)
        total += int(np.sum(c.view(np.uint32) * (2 * i.astype(np.uint64) + 1), dtype=np.uint64))
    return total % 2**64


def inputs(i: Any, which: int, seed: int) -> Any:
    """The elements `i` (uint32) of the program's vector a (0) or b (1): float32 in [0, 1). See
    vecadd.h."""
    import numpy as np

    x = 2 * i + np.uint32((which + seed * 0x9E3779B9) % 2**32)
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    x ^= x >> 16
    return (x >> 8).astype(np.float32) * np.float32(2**-24)


VECADD_CPU = Benchmark(
    "vecadd_cpu",
    measure,
    metrics=(
        *METRICS,
        Metric("instructions", "1", "lower", "of one addition, in user mode; not of the program"),
    ),
    grid={"millions": MILLIONS, "implementation": IMPLEMENTATIONS},
    requires=Requires(modules=("numba", "numpy")),
    description=(
        "c = a + b of float32 vectors on the CPU: NumPy, a compiled loop, the loop on all threads,"
        " plain C++."
    ),
)
