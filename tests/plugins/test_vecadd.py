"""The plugin `vecadd`: its kernels for any length, its formula by hand, and its check against a
spoilt result."""

from __future__ import annotations

import os
import subprocess
import sys

import pluggy
import pytest

from hpml_plugins import Bench, HpmlError, Node, Samples, hookspecs
from hpml_plugins.errors import CheckFailed
from hpml_plugins.measure import SamplingPlan, to_metrics
from hpml_plugins.plugins import vecadd
from hpml_plugins.plugins.vecadd import (
    VECADD_CPU,
    VECADD_CUDA,
    VECADD_TUNED,
    VECADD_UNIFIED,
)
from hpml_plugins.plugins.vecadd.cuda_programs import too_much
from hpml_plugins.plugins.vecadd.vectors import (
    LAUNCHES,
    bytes_moved,
    is_sum,
    shape,
    vectors,
)

SHORT = SamplingPlan(budget=0.05, fewest=3)

IN_THE_SIMULATOR = """
import sys
from numba import cuda
from hpml_plugins.plugins.vecadd.cuda_kernels import launcher
from hpml_plugins.plugins.vecadd.vectors import LAUNCHES, is_sum, vectors

for elements in map(int, sys.argv[1:]):
    for launch in LAUNCHES:
        a, b, c = vectors(elements, seed=elements)
        on_gpu = [cuda.to_device(vector) for vector in (a, b, c)]
        launcher(launch, elements)(*on_gpu)
        on_gpu[2].copy_to_host(c)
        print(elements, launch, "right" if is_sum(a, b, c) else "wrong")
"""

# The simulator has neither the GPU's clock nor unified memory of its own: bench.time is the CPU's,
# and the array is the one that the simulator keeps beside its public names.
MEASURED_IN_THE_SIMULATOR = """
import sys
from numba import cuda
from numba.cuda.simulator.cudadrv.devicearray import managed_array
from hpml_plugins import Bench, Node
from hpml_plugins.measure import SamplingPlan, to_metrics
from hpml_plugins.plugins import vecadd
from hpml_plugins.plugins.vecadd import cuda_kernels, cuda_programs

cuda.managed_array = managed_array
cuda_kernels.LENGTHS = (1, 255, 257)
cuda_programs.MILLION = 1003
benchmark = {each.name: each for each in vecadd.hpml_benchmarks()}[sys.argv[1]]
params = {"millions": 1, **dict(pair.split("=") for pair in sys.argv[2:])}
node = Node(os="Linux 6", arch="x86_64", cpu="C", num_cpu=2, ram=2.0**34, python="3.11")
bench = Bench(node, params, plan=SamplingPlan(budget=0.05, warm_up=0.01, fewest=3))
given = benchmark.measure(bench, **params)
metrics = to_metrics(benchmark, given, bench.collected.work)
assert set(metrics) == {metric.name for metric in benchmark.metrics}, given
assert metrics["bandwidth"].samples == [1003 * 12 / seconds for seconds in given["time"].values]
parts = {"vecadd_cuda": cuda_programs.EXPLICIT_PHASES, "vecadd_unified": cuda_programs.UNIFIED_PHASES}[sys.argv[1]]
known = [given[name].values for name in parts if name in given]
assert all(total >= sum(laps) > 0 for total, laps in zip(given["total"].values, zip(*known))), given
print(*bench.collected.checks, given["time"].info["blocks"], given["time"].info["threads"], sep="; ")
"""  # noqa: E501


def run(code: str, *args: str, **env: str) -> str:
    """What Python prints for this code, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_hook_offers_every_benchmark() -> None:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(vecadd)
    (offered,) = manager.hook.hpml_benchmarks()
    assert [item.name for item in offered] == [
        "vecadd_cpu",
        "vecadd_cuda",
        "vecadd_unified",
        "vecadd_cuda_cpp",
        "vecadd_tuned",
    ]


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.vecadd; print(*{'torch', 'numpy', 'numba'} &"
        " set(sys.modules))"
    )
    assert run(code) == "\n"


def test_the_bandwidth_by_hand() -> None:
    assert bytes_moved(1_000_000) == 12_000_000  # 4 B of a, 4 B of b, 4 B of c
    assert bytes_moved(1_000_000) / 0.004 == 3e9  # 12 MB in 4 ms
    assert (bytes_moved(1_000_000) / Samples.of([0.004, 0.002], "s")).values == (3e9, 6e9)


@pytest.mark.parametrize(
    ("launch", "elements", "blocks", "threads"),
    [
        ("1x1", 1003, 1, 1),
        ("1x256", 1003, 1, 256),
        ("grid", 1, 1, 256),
        ("grid", 256, 1, 256),
        ("grid", 257, 2, 256),
        ("grid", 1003, 4, 256),  # 1003 / 256 = 3.92
        ("grid", 100_000_000, 390_625, 256),
    ],
)
def test_the_shape_of_a_launch(
    launch: str, elements: int, blocks: int, threads: int
) -> None:
    assert shape(launch, elements) == (blocks, threads)


def test_the_kernels_are_right_for_any_length_and_launch_in_the_simulator() -> None:
    lengths = ["1", "255", "257", "1003"]
    printed = run(IN_THE_SIMULATOR, *lengths, NUMBA_ENABLE_CUDASIM="1").splitlines()
    assert printed == [
        f"{elements} {launch} right" for elements in lengths for launch in LAUNCHES
    ]


@pytest.mark.parametrize(
    "point", ["vecadd_cuda memory=pinned", "vecadd_unified prefetch=off"]
)
def test_the_measurement_with_its_phases_runs_whole_in_the_simulator(point: str) -> None:
    printed = run(
        MEASURED_IN_THE_SIMULATOR, *point.split(), "launch=grid", NUMBA_ENABLE_CUDASIM="1"
    )
    small = [
        f"grid: sum of {elements} elements differs from NumPy's"
        for elements in (1, 255, 257)
    ]
    # 1003 / 256 = 3.92
    assert printed.strip().split("; ") == [*small, "sum differs from NumPy's", "4", "256"]


def test_unified_memory_beyond_a_quarter_of_the_free_is_refused_with_the_figures() -> None:
    assert too_much(wanted=2**30, free=4 * 2**30) == ""
    assert (
        too_much(wanted=2**30 + 1, free=4 * 2**30)
        == "wants 1.00 GiB of unified memory, more than a quarter of the 4.00 GiB that are free on"
        " the card"
    )


def test_launches_that_would_outlast_the_point_are_refused_before_they_begin() -> None:
    code = (
        "from hpml_plugins import Bench\nfrom hpml_plugins.errors import Skipped\nfrom"
        " hpml_plugins.plugins.vecadd.cuda_programs import refuse_what_cannot_end\ntold ="
        " []\nimport time\nbench = Bench(None, {}, deadline=time.monotonic() + 100, report=lambda"
        " text, share: told.append(text))\nrefuse_what_cannot_end(bench, 1.0,"
        " launches=4)\nrefuse_what_cannot_end(bench, 6.0, launches=4)\nprint(told)\ntry:"
        " refuse_what_cannot_end(bench, 20.5, launches=4)\nexcept Skipped as skipped:"
        " print(skipped.what)\n"
    )
    told, skipped = run(code, NUMBA_ENABLE_CUDASIM="1").splitlines()
    assert told == "['4 launches of about 6.0 s: at least 24 s to go']"
    assert skipped.startswith(
        "4 launches of about 20.5 s each do not fit into the 100 s that the point has left"
    )


@pytest.mark.parametrize("implementation", ["numpy", "loop", "parallel"])
@pytest.mark.parametrize("elements", [1, 255, 257, 1_000_003])
def test_each_cpu_implementation_is_right_for_any_length(
    implementation: str, elements: int
) -> None:
    from hpml_plugins.plugins.vecadd.cpu import addition

    a, b, c = vectors(elements, seed=1)
    addition(implementation)(a, b, c)
    assert is_sum(a, b, c)


def test_an_element_that_nobody_wrote_is_seen() -> None:
    a, b, c = vectors(257, seed=1)
    c[:256] = a[:256] + b[:256]
    assert not is_sum(a, b, c)


def test_one_wrong_bit_is_seen() -> None:
    import numpy as np

    a, b, c = vectors(257, seed=1)
    c[:] = a + b
    c[100] = np.nextafter(c[100], np.float32(3))
    assert not is_sum(a, b, c)


def test_the_seed_repeats_the_vectors() -> None:
    import numpy as np

    first, again, other = (vectors(10, seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.dtype == np.float32


@pytest.mark.parametrize("implementation", ["numpy", "loop", "parallel"])
def test_a_million_elements_are_measured(node: Node, implementation: str) -> None:
    bench = Bench(node, {}, plan=SHORT)
    given = VECADD_CPU.measure(bench, millions=1, implementation=implementation)
    assert given["time"].median > 0
    bandwidth = to_metrics(VECADD_CPU, given, bench.collected.work)["bandwidth"].samples
    assert bandwidth == [12e6 / seconds for seconds in given["time"].values]
    assert bench.collected.checks == ["sum differs from NumPy's"]
    assert (given["time"].info["threads"] == 1) == (
        implementation != "parallel"
    ) or os.cpu_count() == 1


def test_a_spoilt_addition_gives_no_number(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpml_plugins.plugins.vecadd import cpu

    add = cpu.addition("numpy")

    def spoilt(a: object, b: object, c: object) -> None:
        add(a, b, c)
        c[-1] += 1  # type: ignore[index]

    monkeypatch.setattr(cpu, "addition", lambda implementation: spoilt)
    with pytest.raises(CheckFailed, match="differs from NumPy"):
        VECADD_CPU.measure(Bench(node, {}, plan=SHORT), millions=1, implementation="loop")


def test_an_unknown_value_names_the_known_ones(node: Node) -> None:
    with pytest.raises(HpmlError, match="numpy, loop, parallel, cpp"):
        VECADD_CPU.measure(Bench(node, {}), millions=1, implementation="lop")
    on_gpu = Bench(node, {}, gpus=1)
    with pytest.raises(HpmlError, match="1x1, 1x256, grid"):
        VECADD_CUDA.measure(on_gpu, millions=1, launch="2x2", memory="pinned")
    with pytest.raises(HpmlError, match="pageable, pinned"):
        VECADD_CUDA.measure(on_gpu, millions=1, launch="grid", memory="pined")
    with pytest.raises(HpmlError, match="off, on"):
        VECADD_UNIFIED.measure(on_gpu, millions=1, launch="grid", prefetch="yes")
    with pytest.raises(HpmlError, match="tuned, torch, cupy"):
        VECADD_TUNED.measure(on_gpu, millions=1, implementation="jax")


def test_what_runs_on_a_gpu_asks_for_one() -> None:
    asked = {
        benchmark.name: benchmark.requires.gpus for benchmark in vecadd.hpml_benchmarks()
    }
    assert asked == {
        "vecadd_cpu": 0,
        **dict.fromkeys(
            ("vecadd_cuda", "vecadd_unified", "vecadd_cuda_cpp", "vecadd_tuned"), 1
        ),
    }


# Without a driver the call itself cannot be made: its last step is caught, the bindings' own types
# are used.
PREFETCHED = """
from types import SimpleNamespace
import numpy
from numba import cuda
from cuda.bindings import driver
from hpml_plugins.plugins.vecadd import cuda_kernels

cuda.get_current_device = lambda: SimpleNamespace(id=3)
calls = []
def enqueue(pointer, count, location, flags, stream):
    calls.append((pointer == vector.ctypes.data, count, location.type.name, location.id, flags, int(stream)))
    return (answer,)
driver.cuMemPrefetchAsync_v2 = enqueue
vector = numpy.zeros(1003, numpy.float32)
answer = driver.CUresult.CUDA_SUCCESS
cuda_kernels.prefetch([vector], to_gpu=True)
cuda_kernels.prefetch([vector], to_gpu=False)
print(*calls, sep="\\n")
answer = driver.CUresult.CUDA_ERROR_INVALID_DEVICE
try:
    cuda_kernels.prefetch([vector], to_gpu=True)
except RuntimeError as error:
    print("INVALID_DEVICE" in str(error))
"""  # noqa: E501


def test_a_prefetch_names_the_bytes_and_the_place_and_a_refusal_is_told() -> None:
    pytest.importorskip("cuda.bindings")
    to_gpu, to_cpu, told = run(PREFETCHED, NUMBA_ENABLE_CUDASIM="1").splitlines()
    assert to_gpu == "(True, 4012, 'CU_MEM_LOCATION_TYPE_DEVICE', 3, 0, 0)"  # 1003 · 4 B
    assert to_cpu == "(True, 4012, 'CU_MEM_LOCATION_TYPE_HOST', 0, 0, 0)"
    assert told == "True"
