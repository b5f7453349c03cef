"""The plugin `language_models`: formulas by hand, the decoder against itself and float32, its
benchmarks in small on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from older_torch import is_older, skip_without_row_scales
from support import ROOT, in_a_child
from torch.utils._python_dispatch import TorchDispatchMode

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Node, Rank, Record, Requires
from hpml_plugins.errors import CheckFailed
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.node.detect import detect_node
from hpml_plugins.plugins.language_models import (
    cublaslt,
    decoding,
    fused,
    fused_decoding,
    fused_layers,
    gpt,
    inference,
    llama,
    parallel,
    peers,
    prefill,
    server,
    serving,
    shapes,
    sharing,
    slots,
    text,
    time_to_loss,
    training,
)
from hpml_plugins.plugins.language_models.shapes import GPT, LLAMA
from hpml_plugins.published import find_gpu
from hpml_plugins.testing import Context, measure_point

SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)
#: Deep enough that the errors of formats add up.
DEEP = replace(LLAMA["tiny"], layers=8, hidden=256, intermediate=512, heads=8)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def measured(benchmark: Benchmark, node: Node, **point: Any) -> Record:
    (first, *_) = benchmark.points()
    return measure_point(benchmark, {**first, **point}, Context(node, plan=SHORT))


def test_importing_language_models_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.language_models;"
        " print(*{'torch', 'triton', 'numpy', 'yaml'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "\n"


# Formulas


def test_work_of_inference_by_hand() -> None:
    shape = LLAMA["llama-3-8b"]
    # (4096 + 2048) · 4096 + 4096 · 4096 + 3 · 4096 · 14336
    layer = 25_165_824 + 16_777_216 + 176_160_768
    multiplied = 32 * layer + 128256 * 4096
    assert shapes.multiplied_weights(shape) == multiplied == 7_504_658_432
    assert shapes.cache_numbers(shape, 1, 2048) == 134_217_728
    assert (
        shapes.decode_bytes(shape, 64, 2048, "bfloat16")
        == 2 * multiplied + 64 * 268_435_456
    )
    assert shapes.decode_bytes(shape, 1, 2048, "int8") == multiplied + 268_435_456
    assert shapes.decode_flop(shape, 1, 2048) == 2 * multiplied + 4 * 32 * 4096 * 2048
    assert shapes.prefill_flop(shape, 1, 8192) == (
        2 * (32 * layer * 8192 + 128256 * 4096) + 2 * 32 * 4096 * 8192 * 8193
    )


def test_work_of_training_by_hand() -> None:
    shape = GPT["gpt2-124m"]
    assert shapes.trained_parameters(shape) == 124_373_760
    assert (
        shapes.training_flop_per_token(shape, 1024)
        == 6 * 123_587_328 + 12 * 12 * 768 * 1024
    )
    assert 0.95e9 < shapes.trained_parameters(GPT["gpt-1b"]) < 1.05e9


def test_an_unknown_model_or_format_names_the_known_ones(node: Node) -> None:
    with pytest.raises(HpmlError, match="no model 'gpt-5'; use one of llama-3-8b, tiny"):
        shapes.find_shape("gpt-5", LLAMA)
    with pytest.raises(HpmlError, match="no format 'int2'; use one of float32, bfloat16"):
        decoding.measure(
            Bench(node, {}, plan=SHORT), model="tiny", batch=1, context=4, format="int2"
        )


def test_a_card_that_is_too_small_is_named_before_anything_is_filled(
    gpu_node: Node,
) -> None:
    point = {"model": "llama-3-8b", "batch": 64, "context": 2048, "format": "bfloat16"}
    assert decoding.fits(gpu_node, point) == ""
    small = msgspec.structs.replace(gpu_node.gpus[0], memory=24e9)
    node = msgspec.structs.replace(gpu_node, gpus=(small,))
    # 2 · (7,504,658,432 + 525,336,576 + 64 · 134,217,728) B are 33.2 GB
    assert decoding.fits(node, point) == "needs 39 GB of GPU memory; there are 24 GB"


def test_a_card_without_a_format_is_named(gpu_node: Node) -> None:
    old = msgspec.structs.replace(gpu_node.gpus[0], capability="8.0")
    node = msgspec.structs.replace(gpu_node, gpus=(old,))
    assert decoding.computes(node, {"format": "fp8"}) == "fp8 needs compute capability 8.9"
    assert decoding.computes(node, {"format": "bfloat16"}) == ""


# Inference


@pytest.mark.parametrize(
    ("format", "cache", "change"),
    [
        ("float32", 1e-5, 0.0),
        ("bfloat16", 2e-2, 0.0),
        ("int8", 2e-2, 2e-2),
        ("fp8", 2e-2, 6e-2),
        ("fp8_products", 6e-2, 8e-2),
    ],
)
def test_a_step_with_the_cache_is_a_pass_over_all_tokens(
    format: str, cache: float, change: float
) -> None:
    if format == "fp8_products":
        skip_without_row_scales()
    model = llama.Llama(DEEP, 96, format, "cpu", seed=0)
    step = inference.DecodeStep(model, 3, seed=0)
    original = step.whole()
    model.quantize(format)
    step.read_prompt()
    whole, (logits, tokens) = step.whole(), step()
    assert inference.relative_error(logits[0], whole) <= cache
    assert inference.relative_error(whole, original) <= change
    assert torch.equal(tokens, logits.argmax(-1))
    assert torch.equal(step()[0], logits)  # a call leaves the cache as it found it


def test_a_layer_is_written_out_in_float64() -> None:
    shape = LLAMA["tiny"]
    model = llama.Llama(shape, 20, "float32", "cpu", seed=0)
    block, x = model.blocks[0].double(), torch.randn(1, 20, 64, dtype=torch.float64)
    model.cos, model.sin, model.dtype = (
        model.cos.double(),
        model.sin.double(),
        torch.float64,
    )
    place = model.place(torch.zeros(1, dtype=torch.long), model.places[None])
    found = block(x, model.caches(1)[0], place)

    def normalised(values: Any) -> Any:
        return values / (values.pow(2).mean(-1, keepdim=True) + llama.EPSILON).sqrt()

    # 2 key heads with 2 query heads each, 16 numbers per head
    qkv = (normalised(x[0]) @ block.qkv.weight.T).view(20, 2, 4, 16)
    angles = torch.arange(20)[:, None] * llama.ROTARY_BASE ** -(
        torch.arange(8, dtype=torch.float64) / 8
    )
    turn = torch.polar(torch.ones_like(angles), angles)
    mixed = []
    for key_head in range(2):
        *queries, key, value = qkv[:, key_head].unbind(1)
        for query in queries:
            turned = [
                torch.view_as_real(torch.complex(each[:, :8], each[:, 8:]) * turn)
                for each in (query, key)
            ]
            q, k = (each.transpose(1, 2).reshape(20, 16) for each in turned)
            scores = (q @ k.T / 4).masked_fill(torch.ones(20, 20).triu(1) > 0, -torch.inf)
            mixed.append(scores.softmax(-1) @ value)
    after = x[0] + torch.cat(mixed, 1) @ block.out.weight.T
    # 224 of the gate and 224 beside it, in as many blocks as there are key heads
    both = (normalised(after) @ block.gate_up.weight.T).view(20, 2, 2, 112)
    gate, up = (both[:, :, part].reshape(20, 224) for part in (0, 1))
    wanted = after + (gate * gate.sigmoid() * up) @ block.down.weight.T
    # cosine and sine were rounded to float32
    assert inference.relative_error(found[0], wanted) < 1e-6


def test_a_masked_step_sees_its_own_tokens_alone() -> None:
    model = llama.Llama(DEEP, 64, "float32", "cpu", seed=0)
    text = torch.randint(256, (2, 40))
    caches = model.caches(2)
    for cache in caches:
        cache.keys.fill_(7.0)  # of sequences that used these rows before
        cache.values.fill_(7.0)
    lengths = (20, 40)
    for row, length in enumerate(lengths):
        model.prompt(text[row : row + 1, : length - 1], caches, row)
    last = torch.tensor([[text[row, length - 1]] for row, length in enumerate(lengths)])
    positions = torch.tensor(lengths)[:, None] - 1
    logits, _ = model(last, caches, model.place(torch.arange(2), positions, masked=True))
    for row, length in enumerate(lengths):
        whole = model.prompt(text[row : row + 1, :length], model.caches(1))[0][0]
        assert inference.relative_error(logits[row], whole) < 1e-5


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """What was compiled before must not serve here."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "format",
    [
        "bfloat16",
        pytest.param("int8", marks=pytest.mark.slow),
        pytest.param(
            "fp8_products",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(is_older("torch"), reason="no scales of rows on CPUs"),
            ],
        ),
    ],
)
@in_a_child
def test_all_layers_share_one_compilation(format: str, fresh_compiler: None) -> None:
    from torch._dynamo.utils import counters

    model = llama.Llama(DEEP, 64, format, "cpu", seed=0)
    step = inference.DecodeStep(model, 2, seed=0)
    model.quantize(format)
    wanted = step()[0].clone()
    counters.clear()
    model.compile_parts({}, "aot_eager")
    assert inference.relative_error(step()[0], wanted) < 2e-2
    assert (
        counters["stats"]["unique_graphs"] == 2
    )  # a layer, and the last norm with the head
    assert not counters["graph_break"]


@pytest.mark.parametrize("format", ["float32", "int8"])
def test_decoding_is_measured_on_the_cpu_in(format: str, node: Node) -> None:
    record = measured(decoding.DECODE_CPU, node, format=format)
    assert (record.status, record.reason) == ("ok", "")
    assert set(record.metrics) >= {"time", "rate", "bandwidth"}
    assert ("error" in record.metrics) == (format == "int8")
    assert record.work["time"].bytes == shapes.decode_bytes(LLAMA["tiny"], 4, 128, format)
    assert record.metrics["rate"].value == pytest.approx(
        4 / record.metrics["time"].value, rel=0.1
    )


class Multiplied(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped to mypy here
    """Collects the dtypes of what is multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[str] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.overloadpacket.__name__ in ("mm", "_scaled_mm"):
            self.dtypes.add(str(args[1].dtype).removeprefix("torch."))
        return function(*args, **kwargs or {})


@pytest.mark.parametrize(
    ("benchmark", "format"),
    [
        (decoding.DECODE_CPU, "int8"),
        (prefill.PREFILL_CPU, "fp8_products"),
        (parallel.PARALLEL_CPU, "bfloat16"),
        *(
            pytest.param(benchmark, format, marks=pytest.mark.slow)
            for benchmark, formats in (
                (decoding.DECODE_CPU, ("float32", "bfloat16", "fp8")),
                (prefill.PREFILL_CPU, ("bfloat16", "int8")),
                (parallel.PARALLEL_CPU, ("float32",)),
            )
            for format in formats
        ),
    ],
)
def test_inference_is_judged_by_the_peak_of_what_it_multiplies(
    benchmark: Benchmark, format: str, node: Node
) -> None:
    if format == "fp8_products":
        skip_without_row_scales()
    record = measured(benchmark, node, format=format)
    assert (record.status, record.reason) == ("ok", "")
    model = llama.Llama(LLAMA["tiny"], 8, format, "cpu", seed=0)
    model.quantize(format)
    with Multiplied() as products:
        inference.DecodeStep(model, 1, seed=0)()
    (multiplied,) = products.dtypes
    card = find_gpu("NVIDIA H100 80GB HBM3")
    assert card and card.peak(record.work["time"].dtype) == card.peak(multiplied)


def test_training_is_judged_by_the_peak_of_what_it_multiplies() -> None:
    for device, wanted in (("cuda", "bfloat16"), ("cpu", "float32")):
        bench: Any = SimpleNamespace(device=device)
        model = gpt.Gpt(
            GPT["tiny"],
            checkpointing=False,
            dtype=getattr(torch, training.precision(bench)),
        )
        with Multiplied() as products:
            model(*gpt.random_text(GPT["tiny"], 1, 8, "cpu", seed=0)).backward()
        assert products.dtypes == {wanted}


def test_a_wrong_cache_fails(node: Node) -> None:
    model = llama.Llama(LLAMA["tiny"], 20, "float32", "cpu", seed=0)
    step = inference.DecodeStep(model, 2, seed=0)
    step.read_prompt = lambda: None  # type: ignore[method-assign]
    with pytest.raises(CheckFailed, match="logits with the cache differ"):
        decoding.check_step(Bench(node, {}, plan=SHORT), step, "float32")


@needs_gpu
@pytest.mark.parametrize("format", ["bfloat16", "fp8", "int8"])
def test_the_compiled_graph_agrees_with_the_step(
    format: str, fresh_compiler: None, node: Node
) -> None:
    model = llama.Llama(DEEP, 64, format, "cuda", seed=0)
    step = inference.DecodeStep(model, 1, seed=0)
    decoding.check_step(Bench(node, {}, plan=SHORT), step, format)
    decoding.compiled(Bench(node, {}, plan=SHORT), step)


@needs_gpu
@pytest.mark.parametrize("batch", [1, 16, 64])
@pytest.mark.parametrize("format", fused_decoding.FORMATS)
def test_our_kernels_on_a_gpu_agree_with_the_step(
    format: str, batch: int, node: Node
) -> None:
    bench = Bench(node, {}, plan=SHORT)
    model = llama.Llama(DEEP, 64, format, "cuda", seed=0)
    step = inference.DecodeStep(model, batch, seed=0)
    decoding.check_step(bench, step, format)
    fused_decoding.by_kernels(bench, fused_decoding.kernel_step(step))


def test_prefill_is_measured_on_the_cpu(node: Node) -> None:
    record = measured(prefill.PREFILL_CPU, node)
    assert (record.status, record.reason) == ("ok", "")
    assert record.work["time"].flop == shapes.prefill_flop(LLAMA["tiny"], 1, 128)
    assert record.metrics["rate"].value == pytest.approx(
        128 / record.metrics["time"].value, rel=0.1
    )


def test_ranks_that_share_the_layers_agree_with_one_alone(node: Node) -> None:
    record = measured(parallel.PARALLEL_CPU, node)
    assert (record.status, record.reason) == ("ok", "")
    assert any(
        "the ranks' logits differ from those of one alone" in c for c in record.checks
    )
    # On busy CPUs reductions timed alone may take longer than the step that holds them.
    assert record.metrics["sums"].value > 0
    assert record.metrics["own"].value > 0
    assert record.metrics["speedup"].value == pytest.approx(
        record.metrics["single"].value / record.metrics["time"].value, rel=0.1
    )


def shared(rank: Rank) -> dict[str, Any]:
    """How far the ranks' logits are from those of one, and the graphs that were compiled."""
    from torch._dynamo.utils import counters

    shape = replace(LLAMA["tiny"], layers=12)
    decoder = llama.Llama(shape, 16, "float32", "cpu", seed=0)
    for name, weights in decoder.named_parameters():
        if "norm" in name:  # each another, so that a mix-up shows
            torch.nn.init.normal_(weights, 1.0, 0.2)
    step = inference.DecodeStep(decoder, 2, seed=0)
    wanted = step()[0].clone()
    add_up = peers.find_sum(rank, wanted)
    sharing.share(step, rank, add_up)
    found = step()[0].clone()
    counters.clear()
    decoder.compile_parts({}, "aot_eager")
    return {
        "error": inference.relative_error(found, wanted),
        "compiled": inference.relative_error(step()[0], wanted),
        "unlike": add_up is not peers.sum_by_collective,
        "graphs": counters["stats"]["unique_graphs"],
    }


def test_shared_layers_agree_with_those_of_one_rank_and_are_compiled_once(
    node: Node,
) -> None:
    def measure(bench: Bench) -> Any:
        (found, _) = bench.ranks(shared, 2)
        return {name: float(value) for name, value in found.items()}

    names = ("error", "compiled", "unlike", "graphs")
    benchmark = Benchmark(
        "sums", measure, [Metric(name, "1", None) for name in names], description="Sums."
    )
    record = measured(benchmark, node)
    assert (record.status, record.reason) == ("ok", "")
    values = {name: record.metrics[name].value for name in names}
    assert values["error"] < 1e-6 and values["compiled"] < 1e-6
    assert values["unlike"] == 0  # gloo's ranks reach no GPU's memory
    assert values["graphs"] == 2  # all layers share one, as those of a rank alone do


@pytest.mark.parametrize(
    ("local", "cards", "reachable", "wanted"),
    [(1, 2, True, True), (1, 2, False, False), (0, 2, True, False), (1, 1, True, False)],
)
def test_peers_are_cards_of_one_node_that_reach_each_other(
    local: int, cards: int, reachable: bool, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def can_reach(own: int, other: int) -> bool:
        asked.append((own, other))
        return reachable

    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", can_reach)
    rank: Any = SimpleNamespace(index=1, local=local, count=2)
    assert peers.reaches_all(rank) == wanted
    assert asked in ([], [(1, 0)])


def interpreted(script: str) -> list[str]:
    """The lines that a script prints in Triton's interpreter."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, f"tests/plugins/{script}"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    if is_older("triton") and "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("the interpreter of this Triton fails with this NumPy")
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_the_kernel_of_peers_adds_up_sends_and_normalises() -> None:
    assert interpreted("peer_kernel_numbers.py") == ["2 0 1 16", "2 1 3 24", "4 2 2 10"]


def test_our_kernels_agree_with_the_step() -> None:
    lines = interpreted("token_kernels_numbers.py")
    assert [line.split()[0] for line in lines[:-1]] == (
        9 * ["product"] + 9 * ["step"] + ["likeliest"] + 2 * ["ranks"] + 2 * ["serving"]
    )
    assert lines[-3:] == ["serving bfloat16 [16, 32]", "serving fp8 [16, 32]", "time rate"]


def test_our_kernels_are_for_some_batches_and_formats(node: Node) -> None:
    bench = Bench(node, {}, plan=SHORT)
    for batch, format, told in (
        (2, "bfloat16", "no kernels for 2 sequences; use one of 1, 16, 32, 64, 128"),
        (1, "float32", "no kernels for float32; use one of bfloat16, fp8, int8"),
    ):
        with pytest.raises(HpmlError, match=told):
            fused_decoding.measure(
                bench, model="tiny", batch=batch, context=4, format=format
            )


@in_a_child
def test_the_sum_of_peers_is_one_operation_to_the_compiler() -> None:
    pytest.importorskip("triton")
    from torch._subclasses import FakeTensorMode

    from hpml_plugins.plugins.language_models.peer_kernel import sum_and_norm

    with FakeTensorMode():
        partial, x = (torch.empty(2, 1, 8, dtype=torch.bfloat16) for _ in range(2))
        buffers = torch.empty(2, dtype=torch.int64)
        found = sum_and_norm(partial, x, x[0, 0], buffers, buffers, 0, 1e-5)
    assert [(each.shape, each.dtype) for each in found] == 2 * [(x.shape, x.dtype)]


@pytest.mark.parametrize("missing", ["memory", "access", "pairs"])
def test_ranks_without_what_the_kernel_needs_add_up_by_nccl(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "reaches_all", lambda rank: missing != "access")
    monkeypatch.setattr(
        peers, "allocated", lambda rank, x: None if missing == "memory" else "buffer"
    )
    rank: Any = SimpleNamespace(backend="nccl", gather=lambda value: [value, True])
    dtype = torch.float32 if missing == "pairs" else torch.bfloat16
    found = peers.find_sum(rank, torch.empty(1, 1, 8, dtype=dtype))
    assert found is peers.sum_by_collective


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="no two GPUs")
def test_two_gpus_add_up_as_one() -> None:
    def measure(bench: Bench) -> Any:
        errors = bench.ranks(error_of_peers, 2, environment=parallel.NO_MULTICAST)
        return {"error": max(errors)}

    benchmark = Benchmark(
        "peers",
        measure,
        [Metric("error", "1", "lower")],
        requires=Requires(gpus=2),
        description="Peers.",
    )
    record = measured(benchmark, detect_node())
    assert (record.status, record.reason) == ("ok", "")
    assert record.metrics["error"].value < 1e-2


def error_of_peers(rank: Rank) -> float:
    """The larger one of sums and norms that are captured as a CUDA graph and replayed."""
    generator = torch.Generator(rank.device).manual_seed(rank.index)
    own = torch.randn(4, 1, 4096, generator=generator, device=rank.device).bfloat16()
    weight = torch.linspace(0.5, 2, 4096, dtype=torch.bfloat16, device=rank.device)
    add_up = peers.find_sum(rank, own)
    assert add_up is not peers.sum_by_collective
    zeros = torch.zeros_like(own)
    replay, found = inference.captured(
        lambda: add_up(add_up(own, zeros, weight)[0], own, weight)
    )
    for _ in range(3):  # both slots
        replay()
    torch.cuda.synchronize()
    wanted = peers.sum_by_collective(
        peers.sum_by_collective(own, zeros, weight)[0], own, weight
    )
    return max(map(inference.relative_error, found, wanted))


@pytest.mark.parametrize(
    ("device", "batch", "dtype", "wanted"),
    [
        ("cuda:1", 64, torch.bfloat16, "by kernels"),
        ("cuda:1", 1, torch.bfloat16, "by kernels"),
        ("cuda:1", 3, torch.bfloat16, "compiled"),
        ("cuda:1", 1, torch.float32, "compiled"),
        ("cpu", 1, torch.bfloat16, "as it is"),
    ],
)
def test_ranks_on_gpus_time_the_step_by_kernels_or_compiled(
    device: str, batch: int, dtype: Any, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "compiled", lambda bench, step: "compiled")
    monkeypatch.setattr(parallel, "kernel_step", lambda step, add_up: step)
    monkeypatch.setattr(parallel, "by_kernels", lambda bench, fused: "by kernels")
    bench: Any = SimpleNamespace(device=device)
    step: Any = SimpleNamespace(last=range(batch), model=SimpleNamespace(dtype=dtype))
    assert parallel.ready(bench, step) == (step if wanted == "as it is" else wanted)


def test_more_ranks_than_heads_of_keys_are_refused(node: Node) -> None:
    record = measured(parallel.PARALLEL_CPU, node, ranks=4)
    assert record.reason.startswith("4 ranks cannot share 2 heads of keys")


def test_quantised_matrices_are_not_shared(node: Node) -> None:
    record = measured(parallel.PARALLEL_CPU, node, format="int8")
    assert record.reason.startswith("ranks do not share matrices in int8; use float32 or")


# Training


def test_the_model_has_as_many_parameters_as_the_formula() -> None:
    for name, shape in GPT.items():
        with torch.device("meta"):
            model = gpt.Gpt(shape, checkpointing=False, dtype=torch.float32)
        held = sum(each.numel() for each in model.parameters())
        assert held == shapes.trained_parameters(shape), name


def test_the_chunked_loss_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt, "CHUNK", 10)
    x, weight = (
        torch.randn(32, 8, dtype=torch.double),
        torch.randn(50, 8, dtype=torch.double),
    )
    targets = torch.randint(50, (32,))
    pairs = []
    for loss_of in (
        chunked,
        exact,
    ):
        leaves = [each.clone().requires_grad_() for each in (x, weight)]
        loss = loss_of(*leaves, targets)
        (3 * loss).backward()
        pairs.append((loss.detach(), *(leaf.grad for leaf in leaves)))
    for found, wanted in zip(*pairs, strict=True):
        assert inference.relative_error(found, wanted) < 1e-6


def losses(shape: Any, dtype: Any, steps: int, **options: Any) -> list[float]:
    """Of training on one text from the same weights."""
    torch.manual_seed(0)
    model = gpt.Gpt(shape, checkpointing=options.get("checkpointing", False), dtype=dtype)
    trainer = gpt.Trainer(model)
    if backend := options.get("backend"):
        trainer.compile_whole(backend)
    text = gpt.random_text(shape, 4, 32, "cpu", seed=0)
    found = []
    for _ in range(steps):
        trainer.step(*text)
        found.append(float(trainer.loss))
    return found


@in_a_child
def test_the_reference_is_not_compiled(fresh_compiler: None) -> None:
    from torch._dynamo.utils import counters

    model = gpt.made(GPT["tiny"], False, "cpu", seed=0)
    model.compile_layers("aot_eager")
    text = gpt.random_text(GPT["tiny"], 4, 32, "cpu", seed=0)
    counters.clear()
    reference = model.reference_loss(*text)
    assert not counters["stats"]
    assert float(model(*text)) == pytest.approx(reference, rel=1e-5)
    assert counters["stats"]["unique_graphs"] == 1  # of both layers


def test_the_loss_in_bfloat16_falls_as_in_float32() -> None:
    exact, found = (
        losses(GPT["tiny"], each, 60) for each in (torch.float32, torch.bfloat16)
    )
    assert exact[-1] < 0.9 * exact[0]
    assert found == pytest.approx(exact, rel=5e-3)


@pytest.mark.parametrize(
    "checkpointing", [pytest.param(False, marks=pytest.mark.slow), True]
)
@in_a_child
def test_the_whole_model_is_one_graph(checkpointing: bool, fresh_compiler: None) -> None:
    from torch._dynamo.utils import counters

    options = {"checkpointing": checkpointing, "backend": "aot_eager"}
    counters.clear()
    found = losses(GPT["tiny"], torch.bfloat16, 4, **options)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert found == pytest.approx(losses(GPT["tiny"], torch.bfloat16, 4), rel=1e-3)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_is_measured_on_the_cpu(checkpointing: bool, node: Node) -> None:
    record = measured(training.TRAINING_CPU, node, checkpointing=checkpointing)
    assert (record.status, record.reason) == ("ok", "")
    assert record.work["time"].flop == 256 * shapes.training_flop_per_token(GPT["tiny"], 64)
    assert "the first loss is not that of a float32 model" in record.checks


# Fewer passes over memory


def test_a_fused_layer_is_the_layer_with_its_gradients() -> None:
    torch.manual_seed(0)
    layer = gpt.Layer(GPT["tiny"]).double()
    x = torch.randn(2, 8, 64, dtype=torch.double)
    found = []
    for module in (layer, fused_layers.FusedLayer(layer)):
        leaf = x.clone().requires_grad_()
        result = module(leaf)
        result.square().sum().backward()
        gradients = {name: each.grad.clone() for name, each in layer.named_parameters()}
        layer.zero_grad()
        found.append({"result": result.detach(), "x": leaf.grad, **gradients})
    plain, together = found
    assert len(plain) == 10
    for name, wanted in plain.items():
        assert inference.relative_error(together[name], wanted) < 1e-12, name


@in_a_child
def test_a_fused_model_is_one_graph_and_learns_as_the_other(fresh_compiler: None) -> None:
    from torch._dynamo.utils import counters

    text = gpt.random_text(GPT["tiny"], 4, 32, "cpu", seed=0)
    found: list[list[float]] = []
    for fuse in (False, True):
        torch.manual_seed(0)
        trainer = gpt.Trainer(
            gpt.Gpt(GPT["tiny"], checkpointing=False, dtype=torch.bfloat16)
        )
        if fuse:
            fused_layers.fuse(trainer.model)
            counters.clear()
            trainer.compile_whole("aot_eager")
        found.append([])
        for _ in range(4):
            trainer.step(*text)
            found[-1].append(float(trainer.loss))
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    assert found[1][-1] < found[1][0]


def test_a_fused_training_step_is_measured_beside_the_other(node: Node) -> None:
    small = replace(
        fused.TRAINING_FUSED,
        grid=training.TRAINING_CPU.grid,
        requires=Requires(modules=("torch",)),
    )
    record = measured(small, node, checkpointing=False)
    assert (record.status, record.reason) == ("ok", "")
    assert 0.5 < record.metrics["speedup"].value < 2
    assert record.work["time"].flop == 256 * shapes.training_flop_per_token(GPT["tiny"], 64)


def test_a_wrong_derivative_of_gelu_fails(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = training.Job(GPT["tiny"], 4, 64, False)
    bench = Bench(node, {}, plan=SHORT)
    fused.check_gradients(bench, job)
    monkeypatch.setattr(
        fused_layers,
        "gradient_before_gelu",
        lambda gradient, weight, _: gradient @ weight.t(),
    )
    with pytest.raises(CheckFailed, match=r"the fused products change a gradient by [1-9]"):
        fused.check_gradients(bench, job)


def test_cublaslt_multiplies_bfloat16_by_rows_alone() -> None:
    x, weight, out, before = (
        torch.zeros(size, dtype=torch.bfloat16)
        for size in ((8, 16), (32, 16), (8, 32), (8, 32))
    )
    message = "must be bfloat16, by rows"
    with pytest.raises(ValueError, match=message):
        cublaslt.multiply("GELU_AUX", x.float(), weight, out, before)
    with pytest.raises(ValueError, match=message):
        cublaslt.multiply("GELU_AUX", x, weight.t(), out, before)


@needs_gpu
def test_products_with_gelu_on_a_gpu_are_those_of_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    x, up, down, gradient = (
        torch.randn(size, generator=generator).bfloat16()
        for size in ((256, 64), (128, 64), (64, 128), (256, 64))
    )
    after, before = fused_layers.product_gelu(x, up)
    wanted = (
        after,
        before,
        fused_layers.gradient_before_gelu(gradient, down.t().contiguous(), before),
    )
    on_gpu = [each.cuda() for each in (x, up, down, gradient)]
    after, before = fused_layers.product_gelu(*on_gpu[:2])
    found = (
        after,
        before,
        fused_layers.gradient_before_gelu(on_gpu[3], on_gpu[2].t().contiguous(), before),
    )
    for one, other in zip(found, wanted, strict=True):
        assert inference.relative_error(one.cpu(), other) < 1e-2


def test_the_kernel_of_the_loss_gives_exponentials_and_their_sums() -> None:
    assert interpreted("loss_kernel_numbers.py") == ["136 520 72", "256 256 64"]


def test_the_kernel_of_the_loss_takes_bfloat16_alone() -> None:
    loss_kernel = pytest.importorskip("hpml_plugins.plugins.language_models.loss_kernel")
    x, weight = torch.zeros(8, 16), torch.zeros(32, 16)
    more = torch.zeros(8, dtype=torch.long), torch.zeros(8, 1)
    with pytest.raises(ValueError, match="must be bfloat16, by rows"):
        loss_kernel.exponentials(x, weight, *more)
    with pytest.raises(
        ValueError, match="width 20 and vocabulary 32 must be multiples of 8"
    ):
        loss_kernel.exponentials(torch.zeros(8, 20).bfloat16(), weight.bfloat16(), *more)


@needs_gpu
def test_the_fused_loss_on_a_gpu_is_that_of_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (
        torch.randn(size, generator=generator).bfloat16() / 4
        for size in ((512, 128), (1016, 128))
    )
    targets = torch.randint(1016, (512,), generator=generator)
    pairs = []
    for device, exponentials in (
        ("cpu", gpt.exponentials),
        ("cuda", fused_layers.exponentials),
    ):
        leaves = [each.clone().to(device).requires_grad_() for each in (x, weight)]
        loss = gpt.ChunkedLoss.apply(*leaves, targets.to(device), exponentials)
        loss.backward()
        pairs.append((loss.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)))
    for found, wanted in zip(*pairs, strict=True):
        assert inference.relative_error(found, wanted) < 1e-2


def of_loss(
    loss_of: Callable[..., Any], x: Any, weight: Any, targets: Any, dtype: Any
) -> list[Any]:
    """The loss and its gradients, of x and the weight."""
    leaves = [each.detach().to(dtype).clone().requires_grad_() for each in (x, weight)]
    loss = loss_of(*leaves, targets)
    loss.backward()
    return [loss.detach(), *(leaf.grad for leaf in leaves)]


def chunked(x: Any, weight: Any, targets: Any) -> Any:
    return gpt.ChunkedLoss.apply(x, weight, targets, gpt.exponentials)


def exact(x: Any, weight: Any, targets: Any) -> Any:
    return torch.nn.functional.cross_entropy(x @ weight.T, targets)


@pytest.mark.parametrize(
    ("logit", "dtype", "error"),
    [
        *((logit, torch.float32, 1e-4) for logit in (-200.0, 0.0, 75.0, 87.0, 200.0)),
        (0.0, torch.bfloat16, 5e-3),
    ],
)
def test_the_loss_and_its_gradients_do_not_depend_on_where_logits_are(
    logit: float, dtype: Any, error: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.eye(16)[torch.randint(16, (4096,), generator=generator)]
    weight = (logit + torch.randint(-2, 3, (16, 16), generator=generator)).float()
    targets = torch.randint(16, (4096,), generator=generator)
    pairs = (
        of_loss(chunked, x, weight, targets, dtype),
        of_loss(exact, x, weight, targets, torch.double),
    )
    for found, wanted in zip(*pairs, strict=True):
        assert inference.relative_error(found, wanted) < error


def test_targets_that_are_almost_certain_have_no_gradient_by_rounding() -> None:
    x, targets = torch.eye(8) * 30, torch.arange(8)
    pairs = (
        of_loss(chunked, x, torch.eye(8), targets, torch.bfloat16),
        of_loss(exact, x, torch.eye(8), targets, torch.double),
    )
    for found, wanted in zip(*pairs, strict=True):
        assert 0 < wanted.abs().max() < 1e-10
        assert inference.relative_error(found, wanted) < 1e-2


def test_a_loss_of_more_than_88_is_infinite() -> None:
    x, weight = torch.tensor([[100.0]]), torch.tensor([[0.0], [1.0]])
    assert not torch.isfinite(chunked(x, weight, torch.tensor([0])))


def test_a_fused_model_has_the_fused_loss() -> None:
    model = gpt.made(GPT["tiny"], False, "cpu", seed=0)
    fused_layers.fuse(model)
    assert model.exponentials is fused_layers.exponentials


def test_the_operators_of_the_fused_model_are_as_the_compiler_needs_them() -> None:
    x, stream, before = (torch.randn(16, width) for width in (8, 24, 24))
    weight, targets = torch.randn(24, 8), torch.arange(16)
    for operator, given in (
        (fused_layers.add_product, (stream, x, weight)),
        (fused_layers.product_gelu, (x, weight)),
        (fused_layers.gradient_before_gelu, (x, weight, before)),
        (fused_layers.exponentials, (x, weight, targets, torch.zeros(16, 1))),
    ):
        torch.library.opcheck(operator, given)


# Several ranks


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_ranks_train_together(way: str, node: Node) -> None:
    record = measured(training.RANKS_CPU, node, way=way)
    assert (record.status, record.reason) == ("ok", "")
    step, alone = record.metrics["time"].value, record.metrics["single"].value
    assert record.metrics["share"].value == pytest.approx(1 - alone / step, abs=0.05)
    assert record.metrics["rate"].value == pytest.approx(512 / step, rel=0.1)
    assert "the loss on one batch does not fall: the model does not train" in record.checks


@pytest.mark.parametrize("fault", ["loss", "learning"])
def test_a_wrong_training_step_fails(
    fault: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = gpt.Trainer(gpt.made(GPT["tiny"], False, "cpu", seed=0))
    if fault == "loss":
        monkeypatch.setattr(trainer, "_loss", lambda *text: 1.1 * trainer.model(*text))
    else:
        trainer.optimizer.param_groups[0]["lr"] = 0.0
    message = {"loss": "not that of a float32 model", "learning": "does not fall"}[fault]
    text = gpt.random_text(GPT["tiny"], 4, 64, "cpu", seed=0)
    with pytest.raises(CheckFailed, match=message):
        training.trained(Bench(node, {}, plan=SHORT), trainer, trainer.model, text)


def trained_weights(rank: Rank, way: str) -> Any:
    """The embedding after three steps of both ranks, and that of one alone with both texts."""
    job = training.Job(GPT["tiny"], 4, 64, False, way)
    model, text = training.prepared(rank, job)
    trainer = gpt.Trainer(training.WAYS[way](rank, model))
    both = [training.prepared(fake, job)[1] for fake in of_both(rank)]
    alone = gpt.Trainer(training.prepared(rank, job)[0])
    for _ in range(3):
        trainer.step(*text)
        alone.step(*(torch.cat(parts) for parts in zip(*both, strict=True)))
    found = model.embedding.weight.detach()
    found = found.full_tensor() if way == "fsdp" else found
    start = training.prepared(rank, job)[0].embedding.weight
    wanted = alone.model.embedding.weight
    return inference.relative_error(found - start, wanted - start)


def of_both(rank: Rank) -> list[Any]:
    """What `prepared` asks a rank, for each of two."""
    asked = {"device": rank.device, "bench": rank.bench, "backend": rank.backend}
    return [SimpleNamespace(index=index, **asked) for index in range(2)]


@pytest.mark.parametrize("way", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_two_ranks_train_as_one_with_both_batches(way: str, node: Node) -> None:
    def measure(bench: Bench, *, way: str) -> Any:
        return {"error": max(bench.ranks(trained_weights, 2, way))}

    benchmark = Benchmark(
        "both_batches",
        measure,
        [Metric("error", "1", "lower")],
        {"way": ["ddp", "fsdp"]},
        description="How far two ranks' weights are from one's.",
    )
    record = measured(benchmark, node, way=way)
    assert record.metrics["error"].value < 1e-2, record.reason


# Time to loss


def test_the_text_is_the_standard_librarys(tmp_path: Path) -> None:
    assert text.is_read(Path("json/decoder.py")) and text.is_read(
        Path("pydoc_data/topics.py")
    )
    for name in ("site-packages/torch/nn.py", "test/test_json.py", "config-3.11/a.py"):
        assert not text.is_read(Path(name)), name
    for number in range(20):
        (tmp_path / f"{number:02}.py").write_text(f"{number}")
    found = text.read_text(tmp_path)
    assert (found.files, found.validation) == (20, b"9\n19")
    (tmp_path / "03.py").write_text("4")
    assert text.read_text(tmp_path).digest != found.digest
    with pytest.raises(HpmlError, match="has 0 of Python's sources; install all of them"):
        text.read_text(tmp_path / "nowhere")


def test_a_token_is_followed_by_the_next() -> None:
    tokens = text.as_tokens(bytes(range(100)), "cpu")
    given, wanted = text.chosen(tokens, torch.tensor([3, 90]), 5)
    assert given.tolist() == [[3, 4, 5, 6, 7], [90, 91, 92, 93, 94]]
    assert wanted.tolist() == [[4, 5, 6, 7, 8], [91, 92, 93, 94, 95]]


def test_time_to_loss_is_measured_on_the_cpu(node: Node) -> None:
    record = measured(time_to_loss.TIME_TO_LOSS_CPU, node, target=4.5, runs=2, batch=4)
    assert (record.status, record.reason) == ("ok", "")
    assert record.metrics["success"].value == 1
    times = record.metrics["time"].samples
    assert record.metrics["mean_time"].value == pytest.approx(sum(times) / 2)
    assert len(record.series["text"].columns["digest"][0]) == 64
    assert all(loss <= 4.5 for loss in record.metrics["loss"].samples)
    curves = record.series["curves"].columns
    assert curves["step"][0] == time_to_loss.EVERY


def test_a_target_that_no_run_reaches_is_said(node: Node) -> None:
    record = measured(
        time_to_loss.TIME_TO_LOSS_CPU, node, target=0.1, runs=1, batch=4, steps=20
    )
    assert record.reason.startswith("none of 1 runs reached 0.1; the best has ")


# Serving


class SlowEngine:
    """Reads a prompt in 3 s and decodes in 1 s, by a clock of its own."""

    def __init__(self, slots: int) -> None:
        self.slots, self.now = slots, 0.0
        self.log: list[str] = []

    def start(self, number: int, slot: int) -> int:
        self.now += 3
        self.log.append(f"read {number}")
        return 100

    def step(self, slots: int) -> list[int]:
        self.now += 1
        self.log.append(f"step {slots}")
        return list(range(slots))

    def finish(self, slot: int) -> None:
        self.log.append(f"finish {slot}")

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_requests_are_answered_in_turn_and_timed() -> None:
    engine = SlowEngine(slots=2)
    requests = [
        server.Request(arrival, wanted) for arrival, wanted in ((1, 3), (1, 2), (2, 2))
    ]
    took = server.serve(engine, requests, clock=lambda: engine.now, sleep=engine.sleep)
    # the third waits for the slot that the second leaves at 8
    read, then = ["read 0", "read 1"], ["read 2", "step 2", "finish 0", "finish 1"]
    assert engine.log == [*read, "step 2", "finish 1", *then]
    assert [request.times for request in requests] == [[4, 8, 12], [7, 8], [11, 12]]
    assert [request.gaps() for request in requests] == [[4, 4], [1], [1]]
    assert requests[0].tokens == [100, 0, 0] and took == 12


def test_a_request_gets_the_first_free_slot_and_a_step_those_in_use() -> None:
    engine = SlowEngine(slots=3)
    requests = [
        server.Request(arrival, wanted)
        for arrival, wanted in ((0, 2), (0, 4), (8, 2), (100, 2))
    ]
    server.serve(engine, requests, clock=lambda: engine.now, sleep=engine.sleep)
    first = ["read 0", "read 1", "step 2", "finish 0", "step 2"]
    then = ["read 2", "step 2", "finish 1", "finish 0"]
    assert engine.log == [*first, *then, "read 3", "step 1", "finish 0"]


def test_arrivals_are_seeded_and_as_many_as_asked() -> None:
    found = server.arrivals(10, 100, 20, seed=1)
    assert found == server.arrivals(10, 100, 20, seed=1)
    assert found != server.arrivals(10, 100, 20, seed=2)
    assert 900 < len(found) < 1100
    assert {request.wanted for request in found} == set(range(10, 31))
    assert len(server.arrivals(0.001, 0.5, 20, seed=1)) == 1


def test_percentiles_by_hand() -> None:
    values = [float(value) for value in range(200, 0, -1)]
    assert server.percentile(values, 0.5) == 100
    assert server.percentile(values, 0.99) == 198
    assert server.percentile([3.0], 0.99) == 3.0
    with pytest.raises(ValueError, match="no values"):
        server.percentile([], 0.5)


def test_metrics_of_serving_by_hand() -> None:
    requests = [
        server.Request(1.0, 3, [2.0, 3.0, 5.0], [1, 2, 3]),
        server.Request(2.0, 2, [5.0, 6.0], [1, 2]),
    ]
    assert serving.metrics_of(requests, took=10.0, energy=100.0) == {
        "first_token": 1.0,
        "first_token_p99": 3.0,
        "output_token": 1.0,
        "output_token_p99": 2.0,
        "rate": 0.5,
        "energy": 20.0,
    }


def test_every_slot_answers_as_a_sequence_alone() -> None:
    decoder = llama.Llama(DEEP, 32, "float32", "cpu", seed=0)
    prompts = torch.randint(256, (5, 10))
    engine = slots.LlamaEngine(decoder, 2, prompts, by_kernels=False)
    requests = [server.Request(0.0, wanted) for wanted in (4, 9, 5, 2, 7)]
    server.serve(engine, requests)
    for prompt, request in zip(prompts, requests, strict=True):
        text = prompt[None]
        for token in request.tokens:
            assert token == int(decoder.prompt(text, decoder.caches(1))[1])
            text = torch.cat([text, torch.tensor([[token]])], 1)
        assert len(request.tokens) == request.wanted


def test_serving_is_measured_on_the_cpu(node: Node) -> None:
    record = measured(serving.SERVING_CPU, node, arrival=10.0, seconds=0.5)
    assert (record.status, record.reason) == ("ok", "")
    median = {name: each.value for name, each in record.metrics.items()}
    assert 0 < median["first_token"] <= median["first_token_p99"]
    assert 0 < median["output_token"] <= median["output_token_p99"]
    assert record.series["requests"].columns["first"][0] > 0


@needs_gpu
@pytest.mark.parametrize(
    ("format", "slot_count"), [("bfloat16", 32), ("fp8", 16), ("int8", 3)]
)
def test_the_server_on_a_gpu_answers_as_a_sequence_alone(
    format: str, slot_count: int, fresh_compiler: None
) -> None:
    (first, *_) = serving.SERVING.points()
    point = {**first, "model": "tiny", "format": format, "slots": slot_count}
    load = {"arrival": 100.0, "prompt": 20, "output": 30, "seconds": 0.5}
    bench = Bench(detect_node(), {}, plan=SHORT)
    found = serving.measure(bench, **{**point, **load})  # checks the tokens
    assert found["rate"] > 0


def test_a_wrong_token_fails(node: Node) -> None:
    decoder = llama.Llama(LLAMA["tiny"], 32, "float32", "cpu", seed=0)
    prompts = torch.randint(256, (1, 10))
    requests = [server.Request(0.0, 4)]
    engine = slots.LlamaEngine(decoder, 2, prompts, by_kernels=False)
    server.serve(engine, requests)
    bench = Bench(node, {}, plan=SHORT)
    serving.check_tokens(bench, decoder, requests, prompts)
    requests[0].tokens[-1] = (requests[0].tokens[-1] + 1) % 256
    with pytest.raises(CheckFailed, match="deviations below the likeliest"):
        serving.check_tokens(bench, decoder, requests, prompts)
