"""The plugin `kernels`: formulas by hand, shapes of models, each family against float64 on the CPU,
and the figures."""

from __future__ import annotations

import subprocess
import sys
import types
import weakref
from dataclasses import replace
from typing import Any

import pytest
from charted import picture
from records import a_record
from support import ROOT

from hpml_plugins import Bench, Benchmark, HpmlError, Node, Record, Requires, Series
from hpml_plugins.errors import Skipped
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.model import Gpu, MetricSamples
from hpml_plugins.model.work import DeclaredWork
from hpml_plugins.plugins import kernels
from hpml_plugins.plugins.kernels import attention, experts, formulas, gemm, operators
from hpml_plugins.plugins.kernels.charts import FIGURES, linear_layers
from hpml_plugins.plugins.kernels.models import layer_shape, model, models
from hpml_plugins.plugins.kernels.variants import is_refusal, refusal_of, survey
from hpml_plugins.testing import Context, measure_point

SHORT = SamplingPlan(budget=0.02, warm_up=0.01, fewest=2)
GRANITE = "granite-3.0-1b-a400m"


def measured(benchmark: Benchmark, node: Node, **point: Any) -> Record:
    """The Record of a point, on the CPU."""
    return measure_point(
        replace(benchmark, requires=Requires()), point, Context(node, plan=SHORT)
    )


def test_importing_kernels_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.kernels;"
        "print(*{'torch', 'triton', 'matplotlib', 'numpy', 'yaml'} & set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


# Formulas and shapes


def test_work_of_a_product_by_hand() -> None:
    assert formulas.gemm_flop(16, 28672, 8192) == 7_516_192_768
    assert (
        formulas.gemm_bytes(16, 28672, 8192, item=1, out=2)
        == 131_072 + 234_881_024 + 917_504
    )
    # nvfp4: half a byte, and a byte of scale for 16 numbers
    assert gemm.product_bytes("nvfp4", 16, 32, 64) == (16 + 32) * 64 * 0.5625 + 2 * 16 * 32


def test_pairs_of_attention_are_those_of_a_mask() -> None:
    assert formulas.attention_pairs(8192) == 33_558_528
    for length, window in ((7, 0), (7, 3), (5, 1), (5, 9)):
        reach = window or length
        assert formulas.attention_pairs(length, window) == sum(
            q - reach < k <= q for q in range(length) for k in range(length)
        )
    # one sequence of 8192, 32 heads of 128: 4 · 32 · 128 · 33,558,528
    assert formulas.attention_flop(1, 32, 128, 33_558_528) == 549_822_922_752
    # 131,072 cached tokens of 8 heads of 128, twice 2 B: 537 MB; queries and results of 32 heads
    # are 16 KiB
    assert formulas.attention_bytes(1, 1, 131072, 32, 8, 128, 2) == 2**29 + 2**14


def test_the_roof_that_binds_by_hand() -> None:
    # H200: 989.4e12 / 4.8e12 = 206 FLOP/B
    assert formulas.ridge(989.4e12, 4.8e12) == pytest.approx(206.1, abs=0.1)
    assert formulas.bound(207, 1, 989.4e12, 4.8e12) == "compute"
    assert formulas.bound(205, 1, 989.4e12, 4.8e12) == "memory"
    assert formulas.bound(0, 1, None, None) == "memory"
    assert formulas.bound(1, 1, None, 4.8e12) == ""


@pytest.mark.parametrize(
    ("kind", "tokens", "experts_", "top"),
    [("balanced", 10, 4, 2), ("skewed", 64, 8, 2), ("skewed", 4, 32, 8)],
)
def test_loads_and_assignment(kind: str, tokens: int, experts_: int, top: int) -> None:
    counts = formulas.loads(kind, tokens, experts_, top)
    assert sum(counts) == tokens * top and max(counts) <= tokens
    chosen = formulas.assignment(counts, tokens)
    assert all(len(set(each)) == top for each in chosen)
    assert [sum(expert in each for each in chosen) for expert in range(experts_)] == counts


def test_loads_by_hand() -> None:
    assert formulas.loads("balanced", 4096, 8, 2) == [1024] * 8
    # 8192 / (1 + 1/2 + … + 1/8) = 3014.1; the halves, thirds, … of it, rounded down, leave 4 rows
    # to the first four
    assert formulas.loads("skewed", 4096, 8, 2) == [
        3015,
        1508,
        1005,
        754,
        602,
        502,
        430,
        376,
    ]


def test_shapes_of_published_layers() -> None:
    assert layer_shape("llama-3.1-70b/up") == (28672, 8192)
    assert layer_shape("llama-3.1-8b/qkv") == ((32 + 2 * 8) * 128, 4096)
    assert layer_shape("mixtral-8x7b/down") == (4096, 14336)
    assert all(
        each.source and each.heads % each.kv_heads == 0 for each in models().values()
    )
    for benchmark in kernels.hpml_benchmarks():
        for layer in map(str, benchmark.grid.get("layer", ())):
            assert layer_shape(layer)


def test_an_unknown_model_or_layer_names_the_known_ones() -> None:
    with pytest.raises(
        HpmlError, match=r"no model 'gpt-5' in models\.yaml; use one of llama-3\.1-8b, "
    ):
        layer_shape("gpt-5/up")
    with pytest.raises(
        HpmlError, match="no layer 'middle' of mistral-7b; use one of qkv, out, up"
    ):
        layer_shape("mistral-7b/middle")


def test_formats_that_a_card_lacks_are_skipped_with_the_reason(node: Node) -> None:
    hopper = replace_gpu(node, "9.0")
    assert (
        gemm.has_format(hopper, {"format": "nvfp4"})
        == "nvfp4 needs compute capability 10.0, this card has 9.0"
    )
    assert gemm.has_format(hopper, {"format": "fp8_row"}) == ""
    assert gemm.has_format(replace_gpu(node, "12.0"), {"format": "mxfp8"}) == ""
    point = {"layer": "llama-3.1-70b/up", "tokens": 16, "format": "mxfp8"}
    record = measure_point(gemm.GEMM, point, Context(hopper, watch=False))
    assert (record.status, record.reason) == (
        "skipped",
        "mxfp8 needs compute capability 10.0, this card has 9.0",
    )


def replace_gpu(node: Node, capability: str) -> Node:
    """The node with a GPU of this capability."""
    import msgspec

    return msgspec.structs.replace(
        node, gpus=(Gpu(name="NVIDIA H200", memory=141e9, capability=capability),)
    )


# Variants


def test_a_variant_that_cannot_run_has_its_reason_and_the_fastest_is_found(
    node: Node,
) -> None:
    import time

    bench = Bench(node, {}, plan=SHORT)

    def missing() -> Any:
        raise ImportError("No module named 'flash_attn_interface'")

    builders = {
        "slow": lambda: lambda: time.sleep(2e-3) or 1.0,
        "fast": lambda: lambda: 1.0,
        "missing": missing,
    }
    found = survey(bench, builders, lambda result: abs(result - 1.0), 0.1)
    assert found.fastest == "fast"
    rows = bench.collected.series["variants"].columns
    assert rows["variant"] == ["slow", "fast", "missing"]
    assert rows["reason"] == ["", "", "No module named 'flash_attn_interface'"]
    assert rows["time"][2] is None and rows["time"][0] > rows["time"][1]


def test_a_point_without_any_variant_is_skipped_with_all_reasons(node: Node) -> None:
    def missing() -> Any:
        raise RuntimeError("no kernel for this card")

    with pytest.raises(Skipped, match="no variant runs here: one: no kernel for this card"):
        survey(Bench(node, {}, plan=SHORT), {"one": missing}, float, 0.1)


def test_a_wrong_variant_fails_the_point(node: Node) -> None:
    from hpml_plugins.errors import CheckFailed

    with pytest.raises(CheckFailed, match="one: the result differs from float64"):
        survey(
            Bench(node, {}, plan=SHORT),
            {"one": lambda: lambda: 2.0},
            lambda result: abs(result - 1.0),
            0.1,
        )


class TritonError(Exception):
    """Stands for Triton's, from which its other errors derive."""


def test_what_a_library_or_a_card_refuses_is_told_from_what_breaks() -> None:
    """torch's and Triton's refusals are reasons; a card that stopped and the faults of this plugin
    are not."""
    import torch

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(
            sys.modules, "triton.errors", types.SimpleNamespace(TritonError=TritonError)
        )
        no_memory = type("OutOfResources", (TritonError,), {})(
            "out of resource: shared memory"
        )
        refusals = [
            ImportError(),
            NotImplementedError(),
            RuntimeError(),
            torch.OutOfMemoryError(),
            no_memory,
        ]
        assert [is_refusal(error) for error in refusals] == [True] * 5
    faults = [
        torch.AcceleratorError("an illegal memory access was encountered"),
        TritonError(),
        HpmlError("one"),
    ]
    faults += [TypeError(), ValueError(), AttributeError(), AssertionError(), KeyError()]
    assert [is_refusal(error) for error in faults] == [False] * 8
    with pytest.raises(TypeError):
        refusal_of(lambda: len(3))  # type: ignore[arg-type]
    assert refusal_of(lambda: None) == ""


def test_triton_itself_says_that_a_card_has_too_little_shared_memory() -> None:
    pytest.importorskip("triton")
    code = (
        "from triton.runtime.errors import OutOfResources, PTXASError\nfrom triton.compiler.errors"
        " import CompilationError\nfrom hpml_plugins.plugins.kernels.variants import is_refusal,"
        " refusal_of\nassert is_refusal(PTXASError('ptxas')) and issubclass(CompilationError,"
        " OutOfResources.__mro__[1])\ndef build(): raise OutOfResources(147456, 101376, 'shared"
        " memory')\nprint(refusal_of(build))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith(
        "out of resource: shared memory, Required: 147456, Hardware limit: 101376"
    )


def test_the_tensors_of_a_variant_that_failed_are_gone_before_memory_is_released(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpml_plugins.plugins.kernels import variants

    held: list[Any] = []

    class Tensor:
        """Lives as long as something refers to it."""

    def failing() -> Any:
        tensor = Tensor()
        held.append(weakref.ref(tensor))
        raise RuntimeError("no kernel")

    alive: list[bool] = []
    monkeypatch.setattr(
        variants, "release_memory", lambda bench: alive.append(held[-1]() is not None)
    )
    builders = {"failing": failing, "one": lambda: lambda: 1.0}
    survey(Bench(node, {}, plan=SHORT), builders, lambda result: abs(result - 1.0), 0.1)
    assert alive == [False]


def test_a_fault_of_this_plugin_is_no_missing_variant(node: Node) -> None:
    with pytest.raises(AttributeError):
        survey(Bench(node, {}, plan=SHORT), {"one": lambda: None.shape}, float, 0.1)  # type: ignore[attr-defined]


def test_torchs_time_never_stands_for_that_of_our_kernel(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the point is skipped where our kernel does not run, though torch's operations do."""
    from hpml_plugins.plugins.kernels.variants import Variants

    def found(bench: Bench, *_: Any, **__: Any) -> Variants:
        return Variants(
            {"eager": lambda: None},
            {"eager": 0.0},
            "eager",
            {"Triton": "out of resource: shared memory"},
        )

    monkeypatch.setattr(operators, "survey", found)
    monkeypatch.setattr(
        "hpml_plugins.plugins.kernels.operator_variants.build",
        lambda *_: types.SimpleNamespace(eager=None, make=None, error=None, nbytes=1),
    )
    bench = Bench(node, {}, gpus=1, plan=SHORT)
    with pytest.raises(
        Skipped, match="our Triton kernel does not run here: out of resource: shared memory"
    ):
        operators.measure(bench, operator="rms_norm", mebibytes=64)


def test_back_ends_that_are_left_out_have_their_reason() -> None:
    from hpml_plugins.plugins.kernels import attention_ways as ways

    def left_out(attends: Any) -> dict[str, str]:
        reasons = {
            name: refusal_of(attend)
            for name, attend in attends.items()
            if attend.func is ways.not_tried
        }
        assert all(reason.startswith("not tried: ") for reason in reasons.values())
        return reasons

    assert list(left_out(ways.prefill_ways(0, 512, "cuda", training=True))) == ["Flex"]
    assert list(left_out(ways.prefill_ways(64, 512, "cuda"))) == ["cuDNN", "efficient"]
    assert list(left_out(ways.decode_ways("cuda"))) == ["efficient", "Flex"]
    assert not left_out(ways.prefill_ways(0, 512, "cuda"))


# The families on the CPU


def test_a_linear_layer_is_measured_on_the_cpu(node: Node) -> None:
    record = measured(
        gemm.GEMM_CPU, node, layer=f"{GRANITE}/out", tokens=8, format="float32"
    )
    assert (record.status, record.reason) == ("ok", "")
    assert record.work["time"] == DeclaredWork(
        2 * 8 * 1024 * 1024, 4 * (2 * 8 * 1024 + 1024**2), "float32", 0
    )
    assert record.metrics["error"].value < 1e-6
    assert "speedup" not in record.metrics  # it is the baseline


def test_numbers_agree_with_float64_and_by_hand() -> None:
    """In a process of their own: what computes gradients, or imports FlexAttention, cannot fork
    points afterwards."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/plugins/kernels_numbers.py",
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_attention_is_measured_on_the_cpu(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(attention.TOKENS, "cpu", 128)
    monkeypatch.setitem(attention.CACHED, "cpu", 256)
    forward = measured(attention.PREFILL_CPU, node, length=64)
    assert (forward.status, forward.reason) == ("ok", "")
    assert forward.work["time"].flop == 4 * 2 * 32 * 128 * (64 * 65 // 2)
    decode = measured(attention.DECODE_CPU, node, context=128, cache="contiguous")
    assert (decode.status, decode.reason) == ("ok", "")
    training = measured(attention.TRAINING, node, length=64)
    assert (training.status, training.reason) == ("ok", "")
    assert training.work["time"].flop == 3.5 * forward.work["time"].flop
    assert max(each.metrics["error"].value for each in (forward, decode, training)) < 1e-5


def test_long_sequences_have_a_share_of_the_heads() -> None:
    assert attention.sizes(512, "cuda") == (32, 32, 8, 128)
    assert attention.sizes(16384, "cuda") == (1, 32, 8, 128)
    assert attention.sizes(131072, "cuda") == (1, 8, 2, 128)


@pytest.mark.slow
def test_experts_are_measured_on_the_cpu(node: Node) -> None:
    record = measured(experts.EXPERTS_CPU, node, of=GRANITE, tokens=4, load="skewed")
    assert (record.status, record.reason) == ("ok", "")
    assert "the layer's result differs from float64" in record.checks
    assert record.work["time"].flop == 2 * 4 * 8 * 512 * 1024
    assert set(record.metrics) >= {
        "speedup",
        "layer_time",
        "routing_time",
        "permutation_time",
    }


@pytest.mark.parametrize(
    "operator",
    [
        "rms_norm",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in operators.OPERATORS
            if name != "rms_norm"
        ),
    ],
)
def test_operators_are_measured_on_the_cpu(operator: str, node: Node) -> None:
    record = measured(operators.OPERATORS_CPU, node, operator=operator, mebibytes=1)
    assert (record.status, record.reason) == ("ok", "")
    assert record.metrics["error"].value < 1e-5


def test_inputs_depend_on_the_seed_alone() -> None:
    import torch

    from hpml_plugins.plugins.kernels.operator_variants import build

    for name in operators.OPERATORS:
        one, same, other = (
            build(name, 2**18, model("llama-3.1-8b"), "cpu", seed).inputs
            for seed in (1, 1, 2)
        )
        assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_bytes_of_operators_by_hand() -> None:
    from hpml_plugins.plugins.kernels.operator_variants import build

    shape = model("llama-3.1-8b")
    assert build("rms_norm", 2**20, shape, "cpu", 0).nbytes == 2 * 2**20 + 4 * 4096
    # 32 rows of 8192 float32, read and written
    assert build("softmax", 2**20, shape, "cpu", 0).nbytes == 2 * 32 * 8192 * 4
    # 9 rows of 28,672 float32, and the half of it
    assert build("swiglu", 2**20, shape, "cpu", 0).nbytes == 9 * 28672 * 4 * 3 // 2
    with pytest.raises(
        HpmlError,
        match=r"no operator 'gelu'; use one of rms_norm, .*, cross_entropy, softmax",
    ):
        build("gelu", 2**20, shape, "cpu", 0)


# Figures


def record(benchmark: str, params: dict[str, Any], **found: Any) -> Record:
    return a_record(benchmark, gpu="NVIDIA H200", params=params, machine="here", **found)


def test_shares_are_of_the_roof_that_binds() -> None:
    rows = {
        "format": ["bfloat16"] * 2,
        "tokens": [1.0, 16384.0],
        "way": ["torch.mm"] * 2,
        "time": [1e-4, 1e-2],
        "rate": [4.7e12, 7.7e14],
        "bandwidth": [4.7e12, 1e11],
    }
    units = {"time": "s", "rate": "OP/s", "bandwidth": "B/s"}
    told = record(
        "kernels_gemm_tokens",
        {"layer": "llama-3.1-70b/up"},
        series={"tokens": Series(rows, units)},
    )
    table = linear_layers([told])
    assert table.columns["bound"] == ["memory", "compute"]
    # 4.7 of 4.8 TB/s; 770 of 989.4 TFLOP/s
    assert table.columns["share"] == pytest.approx([4.7 / 4.8, 770 / 989.4], rel=1e-3)
    assert len(picture(FIGURES[0], table).marks["point"]) == 2
    assert len(linear_layers([])) == 0


def variants(names: list[str], seconds: list[float | None]) -> Series:
    columns = {
        "variant": names,
        "time": seconds,
        "error": [0.001] * len(names),
        "reason": [""] * len(names),
    }
    return Series(columns, {"time": "s", "error": "1"})


def test_figures_of_attention_experts_and_operators_are_drawn() -> None:
    work = {"time": DeclaredWork(5e11, 5e8, "bfloat16", 1)}
    missing = variants(["cuDNN", "FlashAttention 3"], [1e-3, None])
    both = [
        record(
            "kernels_attention", {"length": 8192}, series={"variants": missing}, work=work
        ),
        record(
            "kernels_decode",
            {"context": 2048, "cache": "paged"},
            series={"variants": missing},
            work=work,
        ),
    ]
    table = FIGURES[1].table(both)
    assert table.columns["kind"] == ["forward", "forward", "decode paged", "decode paged"]
    assert table.columns["rate"] == [5e14, None, None, None]
    assert table.columns["bandwidth"] == [None, None, 5e11, None]
    assert len(picture(FIGURES[1], table).marks["point"]) == 2

    parts = {
        name: MetricSamples("s", "lower", [1e-3])
        for name in ("time", "layer_time", "routing_time")
    }
    layer = record(
        "kernels_experts",
        {"of": "mixtral-8x7b", "tokens": 64, "load": "skewed"},
        metrics=parts,
    )
    assert len(picture(FIGURES[2], [layer]).marks["point"]) == 3

    point = {"operator": "rms_norm", "mebibytes": 64}
    norm = record(
        "kernels_operators",
        point,
        series={"variants": variants(["eager", "Triton"], [1e-3, 5e-4])},
        work=work,
    )
    table = FIGURES[3].table([norm])
    assert table.columns["bandwidth"] == [5e11, 1e12]
    assert len(picture(FIGURES[3], table).marks["point"]) == 2


def test_the_fastest_way_of_each_point_is_told() -> None:
    params = {"layer": "llama-3.1-70b/up", "tokens": 16, "format": "int8"}
    time = MetricSamples("s", "lower", [1e-4], {"way": "Triton 64x256, 1 splits"})
    table = FIGURES[4].table([record("kernels_gemm", params, metrics={"time": time})])
    (row,) = table.rows()
    assert list(row) == [
        "machine",
        "benchmark",
        "layer",
        "tokens",
        "format",
        "time",
        "error",
        "way",
    ]
    assert (row["benchmark"], row["time"], row["way"]) == (
        "kernels_gemm",
        1e-4,
        "Triton 64x256, 1 splits",
    )
    assert len(FIGURES[4].table([])) == 0
