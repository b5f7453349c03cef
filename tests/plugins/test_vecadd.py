"""The plugin `vecadd`: its kernels for any length, its formula by hand, and its check against a spoilt result."""

from __future__ import annotations

import os
import subprocess
import sys

import pluggy
import pytest

from hpml_plugins import Bench, HpmlError, Node, Samples, hookspecs
from hpml_plugins.errors import CheckFailed
from hpml_plugins.measuring.sampling import Plan
from hpml_plugins.plugins import vecadd
from hpml_plugins.plugins.vecadd import VECADD_CPU, VECADD_CUDA
from hpml_plugins.plugins.vecadd.launches import LAUNCHES, shape
from hpml_plugins.plugins.vecadd.vectors import bandwidth, bytes_moved, is_sum, vectors

SHORT = Plan(budget=0.05, fewest=3)

IN_THE_SIMULATOR = """
import sys
from numba import cuda
from hpml_plugins.plugins.vecadd.cuda_kernels import add
from hpml_plugins.plugins.vecadd.launches import LAUNCHES, shape
from hpml_plugins.plugins.vecadd.vectors import is_sum, vectors

for elements in map(int, sys.argv[1:]):
    for launch in LAUNCHES:
        a, b, c = vectors(elements, seed=elements)
        on_gpu = [cuda.to_device(vector) for vector in (a, b, c)]
        add[shape(launch, elements)](*on_gpu)
        on_gpu[2].copy_to_host(c)
        print(elements, launch, "right" if is_sum(a, b, c) else "wrong")
"""

MEASURED_IN_THE_SIMULATOR = """
from types import SimpleNamespace
from hpml_plugins import Samples
from hpml_plugins.plugins.vecadd import VECADD_CUDA, on_cuda
on_cuda.MILLION = 257

steps, checks = [], []
bench = SimpleNamespace(
    seed=1,
    progress=lambda text, share: None,
    check=lambda ok, message: checks.append(ok),
    time=lambda step: (steps.append(step()), Samples.of([2.0], "s"))[1],
)
given = VECADD_CUDA.measure(bench, millions=1, launch="grid")
print(checks, len(steps), given["bandwidth"].values, given["time"].info)
"""


def run(code: str, *args: str, **env: str) -> str:
    """What Python prints for this code, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_hook_offers_both_benchmarks() -> None:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(vecadd)
    (offered,) = manager.hook.hpml_benchmarks()
    assert [item.name for item in offered] == ["vecadd_cpu", "vecadd_cuda"]


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    code = "import sys, hpml_plugins.plugins.vecadd; print(*{'torch', 'numpy', 'numba'} & set(sys.modules))"
    assert run(code) == "\n"


def test_the_bandwidth_by_hand() -> None:
    assert bytes_moved(1_000_000) == 12_000_000  # 4 B of a, 4 B of b, 4 B of c
    assert bandwidth(1_000_000, 0.004) == 3e9  # 12 MB in 4 ms
    assert bandwidth(1_000_000, Samples.of([0.004, 0.002], "s")).values == (3e9, 6e9)


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
def test_the_shape_of_a_launch(launch: str, elements: int, blocks: int, threads: int) -> None:
    assert shape(launch, elements) == (blocks, threads)


def test_the_kernel_is_right_for_any_length_and_launch_in_the_simulator() -> None:
    lengths = ["1", "255", "257", "1003"]
    printed = run(IN_THE_SIMULATOR, *lengths, NUMBA_ENABLE_CUDASIM="1").splitlines()
    assert printed == [f"{elements} {launch} right" for elements in lengths for launch in LAUNCHES]


def test_the_cuda_measurement_runs_whole_in_the_simulator() -> None:
    printed = run(MEASURED_IN_THE_SIMULATOR, NUMBA_ENABLE_CUDASIM="1")
    assert printed == "[True] 1 (1542.0,) {'blocks': 2, 'threads': 256}\n"  # 257 · 12 B / 2 s


@pytest.mark.parametrize("implementation", ["numpy", "loop", "parallel"])
@pytest.mark.parametrize("elements", [1, 255, 257, 1_000_003])
def test_each_cpu_implementation_is_right_for_any_length(implementation: str, elements: int) -> None:
    from hpml_plugins.plugins.vecadd.cpu_kernels import IMPLEMENTATIONS

    a, b, c = vectors(elements, seed=1)
    IMPLEMENTATIONS[implementation](a, b, c)
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
    assert given["bandwidth"].values == tuple(12e6 / seconds for seconds in given["time"].values)
    assert bench.checks == ["sum differs from NumPy's"]
    assert (given["time"].info["threads"] == 1) == (implementation != "parallel") or os.cpu_count() == 1


def test_a_spoilt_addition_gives_no_number(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpml_plugins.plugins.vecadd import cpu_kernels

    def spoilt(a: object, b: object, c: object) -> None:
        cpu_kernels.with_numpy(a, b, c)
        c[-1] += 1  # type: ignore[index]

    monkeypatch.setitem(cpu_kernels.IMPLEMENTATIONS, "loop", spoilt)
    with pytest.raises(CheckFailed, match="differs from NumPy"):
        VECADD_CPU.measure(Bench(node, {}, plan=SHORT), millions=1, implementation="loop")


def test_an_unknown_implementation_or_launch_names_the_known_ones(node: Node) -> None:
    with pytest.raises(HpmlError, match="numpy, loop, parallel"):
        VECADD_CPU.measure(Bench(node, {}), millions=1, implementation="lop")
    with pytest.raises(HpmlError, match="1x1, 1x256, grid"):
        VECADD_CUDA.measure(Bench(node, {}, gpus=1), millions=1, launch="2x2")


def test_the_cuda_benchmark_asks_for_a_gpu() -> None:
    assert (VECADD_CUDA.requires.gpus, VECADD_CPU.requires.gpus) == (1, 0)
