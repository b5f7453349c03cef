"""The C++ program of the plugin `vecadd`: right for any length, or it is said why not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpml_plugins import Bench, HpmlError, Node
from hpml_plugins.errors import CheckFailed, Skipped
from hpml_plugins.measure import SamplingPlan, to_metrics
from hpml_plugins.plugins.vecadd import VECADD_CPU, cpu

SHORT = SamplingPlan(budget=0.05, fewest=3)
needs_compiler = pytest.mark.skipif(cpu.find_compiler() is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = cpu.find_compiler()
    assert compiler
    return cpu.build(
        compiler, cpu.SOURCE, cpu.FLAGS, tmp_path_factory.mktemp("built") / "vecadd"
    )


@needs_compiler
@pytest.mark.parametrize("elements", [1, 255, 257, 1_000_003])
def test_the_program_adds_what_numpy_adds(program: Path, elements: int) -> None:
    seed = 2**40 + 7  # longer than the program's 32 bits
    samples, checksum = cpu.run(
        program, elements, seed, SamplingPlan(budget=0.0, fewest=4, most=9)
    )
    assert checksum == cpu.checksum(elements, seed) != cpu.checksum(elements, seed + 1)
    assert len(samples) == 4
    assert samples.info["stopped"] == "budget"


def test_the_inputs_and_the_checksum_by_hand() -> None:
    import numpy as np

    # Element 0 of a with seed 0 hashes 0, and every step of the mixer keeps it: a[0] = 0.
    assert cpu.inputs(np.arange(1, dtype=np.uint32), 0, seed=0).tolist() == [0.0]
    # b[0] hashes 1: · 0x7FEB352D, xor its upper 17 bits, · 0x846CA68B, xor its upper half; then 24
    # bits of it.
    x = 1 * 0x7FEB352D
    x = (x ^ x >> 15) * 0x846CA68B % 2**32
    x ^= x >> 16
    b = np.float32((x >> 8) / 2**24)
    assert cpu.inputs(np.arange(1, dtype=np.uint32), 1, seed=0).tolist() == [b]
    assert cpu.checksum(1, seed=0) == int(b.view(np.uint32)) * 1


@needs_compiler
def test_a_source_that_does_not_compile_says_the_compilers_first_complaint(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken.cpp"
    broken.write_text("int main() { return nothing; }\n")
    with pytest.raises(HpmlError, match=r"does not compile broken\.cpp: .*"):
        cpu.build(str(cpu.find_compiler()), broken, cpu.FLAGS, tmp_path / "broken")


@needs_compiler
def test_the_point_of_the_program_is_measured(node: Node) -> None:
    bench = Bench(node, {}, plan=SHORT, seed=3)
    given = VECADD_CPU.measure(bench, millions=1, implementation="cpp")
    assert len(given["time"]) >= 3
    bandwidth = to_metrics(VECADD_CPU, given, bench.collected.work)["bandwidth"].samples
    assert bandwidth == [12e6 / seconds for seconds in given["time"].values]
    assert bench.collected.checks == ["sum differs from NumPy's"]
    assert given["time"].info["flags"] == "-O3 -std=c++17"


@needs_compiler
def test_a_program_that_adds_wrong_gives_no_number(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "wrong.cpp"
    wrong.write_text(cpu.SOURCE.read_text().replace("a[i] + b[i]", "a[i] - b[i]"))
    shutil.copy(cpu.SOURCE.with_suffix(".h"), tmp_path)
    monkeypatch.setattr(cpu, "SOURCE", wrong)
    with pytest.raises(CheckFailed, match="differs from NumPy"):
        VECADD_CPU.measure(Bench(node, {}, plan=SHORT), millions=1, implementation="cpp")


def test_without_a_compiler_the_point_is_skipped_with_the_reason(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        Skipped,
        match=r"needs a C\+\+ compiler: none of g\+\+, c\+\+, clang\+\+ is on the PATH",
    ):
        VECADD_CPU.measure(Bench(node, {}, plan=SHORT), millions=1, implementation="cpp")
