"""The tuned kernel of the plugin `vecadd`: its indices in the simulator, its PTX, the search, and
the comparison."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hpml_plugins.plugins.vecadd import tuned
from hpml_plugins.plugins.vecadd.tuned import (
    CACHINGS,
    SHAPES,
    Configuration,
    kernels,
    launches_of,
    tune,
)

# The instructions themselves are not the simulator's: here one access is a loop over its elements.
IN_THE_SIMULATOR = """
import warnings
from numba import cuda
from hpml_plugins.plugins.vecadd.cuda_kernels import make_kernel
from hpml_plugins.plugins.vecadd.tuned import SHAPES, Configuration
from hpml_plugins.plugins.vecadd.vectors import is_sum, vectors

warnings.simplefilter("ignore")

def make_add_wide(width, unroll):
    def add_wide(a, b, c, first, step):
        assert first % width == 0 and step % width == 0, "not aligned"
        for place in range(first, first + unroll * step, step):
            assert place + width <= c.size, "outside"
            for i in range(place, place + width):
                assert c[i] != c[i], "written twice"
                c[i] = a[i] + b[i]
    return add_wide

for width, unroll in SHAPES:
    kernel = cuda.jit(make_kernel(width, unroll, make_add_wide(width, unroll)))
    for elements in (1, 31, 32, 255, 257, 1003):
        for resident in (False, True):
            shape = Configuration(width, unroll, 32, resident)
            a, b, c = vectors(elements, seed=elements)
            on_gpu = [cuda.to_device(vector) for vector in (a, b, c)]
            kernel[shape.blocks(elements, most=3), shape.threads](*on_gpu)
            on_gpu[2].copy_to_host(c)
            print(width, unroll, elements, resident, "right" if is_sum(a, b, c) else "wrong")
"""

# The simulator has no occupancy either, and its arrays are NumPy's. The search is of three
# configurations.
TUNED_IN_THE_SIMULATOR = """
from types import SimpleNamespace
from numba import cuda
from hpml_plugins import Bench, Node
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.plugins.vecadd import cuda_kernels, tuned
from hpml_plugins.plugins.vecadd.vectors import is_sum, vectors

def make_add_wide(width, unroll, caching):
    def add_wide(a, b, c, first, step):
        for place in range(first, first + unroll * step, step):
            for i in range(place, place + width):
                c[i] = a[i] + b[i]
    return add_wide

jit = cuda.jit
def jit_with_occupancy(function):
    kernel = jit(function)
    held = SimpleNamespace(max_cooperative_grid_blocks=lambda threads: 2)
    type(kernel).overloads = property(lambda self: {0: held})
    return kernel

cuda_kernels.make_add_wide = make_add_wide
cuda_kernels.LENGTHS = tuned.LENGTHS = (1, 255, 257)
tuned.SHAPES, tuned.CACHINGS, tuned.THREADS = ((4, 2),), ("default",) * 2, (32,)
cuda.jit, cuda.as_cuda_array = jit_with_occupancy, lambda array: array
cuda.get_current_device = lambda: SimpleNamespace(compute_capability=(6, 0))
node = Node(os="Linux 6", arch="x86_64", cpu="C", num_cpu=2, ram=2.0**34, python="3.11")
bench = Bench(node, {}, plan=SamplingPlan(budget=0.02, warm_up=0.01, fewest=3))
a, b, c = on_gpu = [cuda.to_device(vector) for vector in vectors(1003, seed=1)]
step, info = tuned._tuned(bench, on_gpu)
step()
assert is_sum(*(array.copy_to_host() for array in on_gpu))
collected = bench.collected
assert collected.warnings == []
assert len(collected.checks) == len(set(collected.checks)) == len(collected.series["tuning"].columns["time"])
print(info.pop("grid"), info.pop("blocks"), info.pop("threads"), info.pop("configuration"), info, sep="; ")
"""  # noqa: E501

TO_PTX = """
import sys
from numba import cuda, types
from hpml_plugins.plugins.vecadd.cuda_kernels import make_add_wide, make_kernel

vector = types.float32[::1]
for width, unroll, caching in ((1, 4, "default"), (2, 2, "streaming"), (4, 1, "default"), (4, 2, "bypass")):
    add = make_kernel(width, unroll, make_add_wide(width, unroll, caching))
    try:
        text, _ = cuda.compile(add, (vector,) * 3, cc=(9, 0), device=False, abi="numba", output="ptx")
    except Exception as error:
        if "nvvm" not in f"{type(error).__name__} {error}".lower():
            raise
        sys.exit("no NVVM")
    for line in text.splitlines():
        if line.strip().startswith(("ld.global", "st.global")):
            print(width, unroll, caching, line.split()[0])
"""  # noqa: E501


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **env}, check=False
    )


def test_the_kernel_writes_every_element_once_for_any_shape_length_and_grid_in_the_simulator() -> (
    None
):
    done = run(IN_THE_SIMULATOR, NUMBA_ENABLE_CUDASIM="1")
    assert done.returncode == 0, done.stderr
    verdicts = [line.split()[-1] for line in done.stdout.splitlines()]
    assert verdicts == ["right"] * (len(SHAPES) * 6 * 2)


def test_the_search_checks_times_and_describes_its_configurations_in_the_simulator() -> (
    None
):
    done = run(TUNED_IN_THE_SIMULATOR, NUMBA_ENABLE_CUDASIM="1")
    assert done.returncode == 0, done.stderr
    grid, blocks, threads, configuration, info = done.stdout.strip().split("; ")
    # 4 · 2 · 32 = 256 elements a block: four blocks in one pass over 1003, of which two are held at
    # once
    assert (grid, blocks) in {("one pass", "4"), ("resident", "2")} or (
        threads,
        blocks,
    ) == (
        "256",
        "1",
    )
    assert configuration == f"2 × 4 float32, {threads} threads, {grid}, default"
    assert info == str({"width": 4, "unroll": 2, "caching": "default", "configurations": 3})


def test_the_compiler_makes_one_instruction_of_a_wide_access() -> None:
    done = run(TO_PTX)
    if done.stderr.strip() == "no NVVM":
        pytest.skip("numba finds no NVVM to compile with")
    assert done.returncode == 0, done.stderr
    made = done.stdout.splitlines()
    # a and b at each place, and c; the scalar instructions besides are those of the last, partial
    # tile.
    assert made.count("4 1 default ld.global.v4.f32") == 2
    assert made.count("4 1 default st.global.v4.f32") == 1
    assert made.count("2 2 streaming ld.global.cs.v2.f32") == 4
    assert made.count("2 2 streaming st.global.cs.v2.f32") == 2
    assert made.count("4 2 bypass ld.global.nc.L1::no_allocate.v4.f32") == 4
    assert made.count("4 2 bypass st.global.cs.v4.f32") == 2
    assert made.count("1 4 default ld.global.f32") >= 8
    # All loads of a tile come before its first store.
    tile = [
        line.split()[-1]
        for line in made
        if line.startswith("4 2 bypass") and ".v4." in line
    ]
    assert [name[:2] for name in tile] == ["ld"] * 4 + ["st"] * 2


@pytest.mark.parametrize(
    ("configuration", "elements", "blocks"),
    [
        (Configuration(1, 1, 256), 1, 1),
        (Configuration(4, 2, 256), 2048, 1),  # 4 · 2 · 256 = 2048 elements a tile
        (Configuration(4, 2, 256), 2049, 2),
        (Configuration(4, 1, 128), 100_000_000, 195_313),  # 1e8 / 512 = 195312.5
        (Configuration(4, 1, 128, resident=True), 100_000_000, 2112),
        (Configuration(4, 1, 128, resident=True), 1000, 2),
    ],
)
def test_the_blocks_of_a_configuration(
    configuration: Configuration, elements: int, blocks: int
) -> None:
    assert configuration.blocks(elements, most=2112) == blocks


def test_the_search_finds_the_best_launch_of_the_best_kernel() -> None:
    best = Configuration(4, 2, 512, True, "bypass")

    def seconds(configuration: Configuration, budget: float) -> float:
        wrong = sum(
            getattr(configuration, name) != getattr(best, name)
            for name in ("width", "unroll", "threads", "resident", "caching")
        )
        return 1.0 + 0.01 * wrong

    tried = tune(seconds, CACHINGS)
    assert next(iter(tried)) == best
    assert (
        len(tried) == 3 * 6 + 3 * 7
    )  # 18 kernels, then the other 7 launches of the best three
    assert list(tried.values()) == sorted(tried.values())


def test_a_lucky_short_sample_does_not_win_over_what_was_measured_again() -> None:
    lucky = Configuration(1, 1, 256)
    asked: list[tuple[Configuration, float]] = []

    def seconds(configuration: Configuration, budget: float) -> float:
        asked.append((configuration, budget))
        return (
            0.5
            if configuration == lucky and budget < 0.1
            else 1.0 + 0.001 * configuration.width
        )

    tried = tune(seconds, CACHINGS)
    assert tried[lucky] == 1.001  # measured again, and found ordinary
    finalists = [configuration for configuration, budget in asked if budget >= 0.1]
    assert len(finalists) == 5
    assert list(tried)[:5] == sorted(finalists, key=tried.__getitem__)


def test_a_card_without_the_bypassing_loads_is_not_offered_them() -> None:
    tried = tune(lambda configuration, budget: 1.0, CACHINGS[:-1])
    assert {configuration.caching for configuration in tried} == {"default", "streaming"}


def test_every_kernel_and_launch_is_listed_once() -> None:
    assert len(set(kernels(CACHINGS))) == len(SHAPES) * len(CACHINGS)
    launches = launches_of(Configuration(4, 2))
    assert len({Configuration(4, 2), *launches}) == 8  # four block sizes, two grids


def test_what_was_tried_becomes_columns_of_numbers() -> None:
    tried = {Configuration(4, 2, 512, True, "bypass"): 1e-3, Configuration(): 2e-3}
    assert tuned.columns(tried) == {
        "width": [4, 1],
        "unroll": [2, 1],
        "threads": [512, 256],
        "resident": [1, 0],
        "streaming": [0, 0],
        "bypass": [1, 0],
        "time": [1e-3, 2e-3],
    }
