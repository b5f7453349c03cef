"""The program in CUDA C++ of the plugin `vecadd`: built by the real nvcc where there is one, run by
a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hpml_plugins import Bench, HpmlError, Node
from hpml_plugins.errors import CheckFailed, Skipped
from hpml_plugins.measure import SamplingPlan, to_metrics
from hpml_plugins.model.node import Gpu
from hpml_plugins.plugins.vecadd import VECADD_CUDA_CPP, cuda_cpp

#: Speaks for the program on a machine without a GPU: its arguments, its lines of JSON, its checksum
#: of NumPy's c.
STAND_IN = """#!{python}
import json, sys
import numpy as np
lengths, seed, launch, memory, budget, fewest = sys.argv[1:]
def element(i, which):
    x = 2 * i + np.uint32((which + int(seed) * 0x9E3779B9) % 2**32)
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    x ^= x >> 16
    return (x >> 8).astype(np.float32) * np.float32(2**-24)
phases = ["allocation", "first_touch", "read_back", "free"]
if memory == "explicit":
    phases = ["allocation", "h2d", "kernel", "d2h", "free"]
for length in map(int, lengths.split(",")):
    i = np.arange(length, dtype=np.uint32)
    c = element(i, 0) {operator} element(i, 1)
    total = int(np.sum(c.view(np.uint32) * (2 * i.astype(np.uint64) + 1), dtype=np.uint64))
    laps = {{phase: [(n + 1) * 1e-3] * int(fewest) for n, phase in enumerate(phases)}}
    print(json.dumps({{"checksum": total, **laps, "time": [1e-3, 2e-3, 3e-3], "blocks": 1, "threads": 256}}))
{end}
"""  # noqa: E501
#: nvcc's arguments are … SOURCE -o PROGRAM.
STAND_IN_NVCC = """#!/bin/sh
[ "$1" = --version ] && {{ echo "Build cuda_13.0"; exit; }}
for last; do :; done
cp {program} "$last"
"""
needs_nvcc = pytest.mark.skipif(cuda_cpp.find_nvcc() is None, reason="no nvcc")


@pytest.fixture
def gpu_node(node: Node) -> Node:
    return msgspec.structs.replace(node, gpus=(Gpu(name="NVIDIA H200", capability="9.0"),))


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def use(operator: str = "+", end: str = "") -> None:
        text = STAND_IN.format(python=sys.executable, operator=operator, end=end)
        program = executable(tmp_path / "stand-in", text)
        (tmp_path / "bin").mkdir()
        executable(tmp_path / "bin" / "nvcc", STAND_IN_NVCC.format(program=program))
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    return use


def measure(node: Node, memory: str) -> tuple[Bench, dict]:
    bench = Bench(
        node, {}, gpus=1, plan=SamplingPlan(budget=0.05, fewest=4), seed=2**40 + 7
    )
    return bench, VECADD_CUDA_CPP.measure(bench, millions=1, launch="1x256", memory=memory)


@pytest.mark.parametrize(("memory", "total"), [("explicit", 15e-3), ("managed", 10e-3)])
def test_a_run_is_the_sum_of_its_phases_and_every_length_is_checked(
    gpu_node: Node, stand_in, memory: str, total: float
) -> None:
    stand_in()
    bench, given = measure(gpu_node, memory)
    assert given["total"].values == pytest.approx([total] * 4)
    assert bench.collected.checks == [
        f"1x256: sum of {length} elements differs from NumPy's"
        for length in (1, 255, 257, 1_000_003, 1_000_000)
    ]
    bandwidth = to_metrics(VECADD_CUDA_CPP, given, bench.collected.work)[
        "bandwidth"
    ].samples
    assert bandwidth == pytest.approx([12e6 / 1e-3, 12e6 / 2e-3, 12e6 / 3e-3])
    assert given["time"].info["compiler"] == "Build cuda_13.0, -O3 -std=c++17 -arch=sm_90"


def test_a_program_that_adds_wrong_gives_no_number(gpu_node: Node, stand_in) -> None:
    stand_in(operator="-")
    with pytest.raises(CheckFailed, match="differs from NumPy"):
        measure(gpu_node, "explicit")


def test_too_much_unified_memory_skips_the_point_with_the_programs_reason(
    gpu_node: Node, stand_in
) -> None:
    stand_in(end="print('wants 9 GiB', file=sys.stderr); sys.exit(3)")
    with pytest.raises(Skipped, match="wants 9 GiB"):
        measure(gpu_node, "managed")


def test_a_program_that_fails_is_quoted(gpu_node: Node, stand_in) -> None:
    stand_in(end="print('cudaMalloc: out of memory', file=sys.stderr); sys.exit(1)")
    with pytest.raises(HpmlError, match="exit status 1: cudaMalloc: out of memory"):
        measure(gpu_node, "explicit")


def test_without_nvcc_the_point_is_skipped_with_the_reason(
    gpu_node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(
        Skipped, match="needs nvcc: it is neither on the PATH nor in CUDA_HOME"
    ):
        measure(gpu_node, "explicit")


@needs_nvcc
def test_nvcc_builds_the_program_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program, version = cuda_cpp.built(str(cuda_cpp.find_nvcc()), "9.0")
    built = program.stat().st_mtime_ns
    assert cuda_cpp.built(str(cuda_cpp.find_nvcc()), "9.0") == (program, version)
    assert (program.stat().st_mtime_ns, [program]) == (
        built,
        list(program.parent.iterdir()),
    )
    assert "-arch=sm_90" in version
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("usage: ")) == (2, True)
