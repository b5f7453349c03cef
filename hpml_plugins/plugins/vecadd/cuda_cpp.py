"""The benchmark `vecadd_cuda_cpp`: a program in CUDA C++, with explicit and with unified memory,
built by nvcc."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.plugins.vecadd.cpu import build, checksum, run_command
from hpml_plugins.plugins.vecadd.cuda_programs import TERMS
from hpml_plugins.plugins.vecadd.vectors import (
    LAUNCHES,
    LENGTHS,
    METRICS,
    MILLION,
    MILLIONS,
    bytes_moved,
    require,
)
from hpml_plugins.workloads.datasets import cache

SOURCE = Path(__file__).with_name("vecadd.cu")
MEMORIES = ("explicit", "managed")
#: Exit status of the program if the unified memory would be too large.
TOO_MUCH = 3


def measure(bench: Bench, *, millions: int, launch: str, memory: str) -> Mapping[str, Samples]:
    """Time whole runs of the program, phase by phase, and its kernel; compiling and making a and b
    excluded."""
    require("launch", launch, LAUNCHES)
    require("memory", memory, MEMORIES)
    compiler = find_nvcc()
    if not compiler:
        bench.skip(
            "needs nvcc: it is neither on the PATH nor in CUDA_HOME; it comes with the CUDA toolkit"
        )
    bench.progress("building vecadd.cu", 0.0)
    program, version = built(compiler, bench.node.gpus[0].capability)
    bench.progress("running it", 0.2)
    elements = millions * MILLION
    lengths = (*LENGTHS, elements)
    seed = bench.seed % 2**32
    done = run_command(
        str(program),
        ",".join(map(str, lengths)),
        str(seed),
        launch,
        memory,
        str(bench.plan.budget),
        str(bench.plan.fewest),
    )
    if done.returncode == TOO_MUCH:
        bench.skip(done.stderr.strip())
    if done.returncode:
        raise HpmlError(
            f"{SOURCE.name} ended with exit status {done.returncode}: {done.stderr.strip()}"
        )
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    for length, found in zip(lengths, printed, strict=True):
        right = bench.result(found.pop("checksum")) == checksum(length, seed)
        bench.check(right, f"{launch}: sum of {length} elements differs from NumPy's")
    found = printed[-1]
    info = {"blocks": found.pop("blocks"), "threads": found.pop("threads"), "compiler": version}
    time = Samples.of(found.pop("time"), "s", timer="cuda events", stopped="budget").note(**info)
    total = Samples.of(
        map(sum, zip(*found.values(), strict=True)), "s", timer="std::chrono::steady_clock", batch=1
    )
    bench.series(
        "phases",
        {"phase": list(found), "time": [median(laps) for laps in found.values()]},
        {"time": "s"},
    )
    bench.warn_if_imprecise(total, "total")
    bench.work(bytes=bytes_moved(elements))
    return {"time": time, "total": total}


def find_nvcc() -> str | None:
    """CUDA's compiler: from the PATH, else from CUDA_HOME or /usr/local/cuda; None if there is
    none."""
    return shutil.which("nvcc") or shutil.which(
        "nvcc", path=f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"
    )


def built(nvcc: str, capability: str) -> tuple[Path, str]:
    """The program for cards of this compute capability, compiled once and kept in the user's cache,
    and nvcc's version.

    Raises HpmlError with nvcc's first complaint.
    """
    version = run_command(nvcc, "--version").stdout.strip().splitlines()[-1]
    flags = ("-O3", "-std=c++17", f"-arch=sm_{capability.replace('.', '')}")
    text = "\n".join([version, *flags, SOURCE.read_text(), SOURCE.with_suffix(".h").read_text()])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    program = cache() / "vecadd" / digest
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        own = program.with_name(f"{digest}.{os.getpid()}")  # another process may be building it too
        build(nvcc, SOURCE, flags, own)
        own.replace(program)
    return program, f"{version}, {' '.join(flags)}"


VECADD_CUDA_CPP = Benchmark(
    "vecadd_cuda_cpp",
    measure,
    metrics=(
        *METRICS,
        Metric(
            "total",
            "s",
            "lower",
            "a whole run: allocation, a and b to the GPU, one launch, c back, free",
        ),
    ),
    grid={"millions": MILLIONS, "launch": LAUNCHES, "memory": MEMORIES},
    requires=Requires(gpus=1),
    timeout=300,
    terms={
        **TERMS,
        "memory=explicit": "cudaMalloc and cudaMemcpy from pageable memory",
        "memory=managed": "cudaMallocManaged: pages move when they are touched",
    },
    description=(
        "c = a + b of float32 vectors by a program in CUDA C++, with explicit and with unified"
        " memory."
    ),
)
