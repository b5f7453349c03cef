"""The kernels of decode steps, in Triton's interpreter, which needs no GPU.
test_language_models.py runs this in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import rms_norm, silu

from hpml_plugins import Bench, Rank
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.node.detect import detect_node
from hpml_plugins.plugins.language_models import (
    batch_kernels,
    fused_decoding,
    inference,
    llama,
    peers,
    server,
    serving,
    sharing,
    slots,
    token_kernels,
)
from hpml_plugins.plugins.language_models.fused_decoding import kernel_step
from hpml_plugins.plugins.language_models.inference import relative_error
from hpml_plugins.plugins.language_models.kernel_step import likeliest
from hpml_plugins.plugins.language_models.llama import EPSILON
from hpml_plugins.plugins.language_models.shapes import LLAMA, Shape
from hpml_plugins.plugins.language_models.token_kernels import Matrix, product

#: The interpreter cuts off the bits that a GPU rounds.
TOLERANCE = 2**-6
PLAN = SamplingPlan(budget=0.01, warm_up=0.0, fewest=1)


def check_product(rows: int, width: int, gated: int, format: str) -> None:
    torch.manual_seed(rows)
    x, norm = torch.randn(1, 1, width).bfloat16(), torch.rand(width).bfloat16() + 0.5
    weight = torch.randn(2 * rows if gated else rows, width).bfloat16()
    weight *= torch.linspace(0.5, 2, len(weight)).bfloat16()[
        :, None
    ]  # each row another scale
    added = 10 * torch.randn(1, 1, rows).bfloat16()
    matrix, exact = Matrix(weight), weight.double()
    if format != "bfloat16":
        held = llama.WeightOnly(weight, torch.int8 if format == "int8" else llama.FP8)
        matrix = Matrix(held.weight, held.scales)
        exact = held.weight.double() * held.scales.double()[:, None]

    def wanted(numbers: torch.Tensor) -> torch.Tensor:
        all_rows = numbers.double() @ exact.t()
        if not gated:
            return all_rows
        gates, others = all_rows.unflatten(2, (-1, 2, gated)).unbind(3)
        return (silu(gates) * others).flatten(2)

    normed = rms_norm(x.double(), (width,), norm.double(), EPSILON)
    found = {
        "product": (product(x, matrix, gated=gated), wanted(x)),
        "norm": (product(x, matrix, norm=norm, gated=gated), wanted(normed)),
        "sum": (product(x, matrix, added=added, gated=gated), wanted(x) + added),
    }
    for name, (result, right) in found.items():
        assert result.shape == (1, 1, rows), name
        # the gate is rounded twice more
        assert relative_error(result, right) < TOLERANCE * (2 if gated else 1), name
    print("product", rows, width, gated, format)


def decode_step(
    shape: Shape, context: int, format: str = "bfloat16", batch: int = 1
) -> inference.DecodeStep:
    model = llama.Llama(shape, context, "bfloat16", "cpu", seed=0)
    for name, weights in model.named_parameters():
        if "norm" in name:  # each another, so that a mix-up shows
            torch.nn.init.uniform_(weights, 0.5, 1.5)
    step = inference.DecodeStep(model, batch, seed=0)
    model.quantize(format)
    step.read_prompt()
    return step


def check_step(
    shape: Shape, context: int, format: str = "bfloat16", batch: int = 1
) -> None:
    step = decode_step(shape, context, format, batch)
    wanted = step()[0].clone()
    written = [each.clone() for cache in step.caches for each in (cache.keys, cache.values)]
    fused = kernel_step(step)
    results = []
    for _ in range(2):
        for cache in step.caches:
            cache.keys[:, -1] = cache.values[:, -1] = 7.0
        results.append(fused()[0])
    assert torch.equal(*results), "a second step"
    assert relative_error(results[0], wanted) < TOLERANCE, "logits"
    found = [each for cache in step.caches for each in (cache.keys, cache.values)]
    for now, before in zip(found, written, strict=True):
        assert torch.equal(now[:, :-1], before[:, :-1]), "earlier tokens"
        assert relative_error(now[:, -1], before[:, -1]) < TOLERANCE, "cache"
    print("step", shape.heads, context, format, batch)


def shared(rank: Rank, batch: int) -> dict[str, float]:
    """Errors of the step that ranks share, and of that whose sums have a rank's own part alone."""
    step = decode_step(LLAMA["tiny"], 16, batch=batch)
    wanted = step()[0].clone()
    sharing.share(step, rank, peers.sum_by_collective)
    found = kernel_step(step, peers.sum_by_collective)()[0]
    for block in step.model.blocks:
        block.add_up = peers.sum_of_own
    own, own_wanted = kernel_step(step)()[0], step()[0]
    return {
        "shared": relative_error(found, wanted),
        "own": relative_error(own, own_wanted),
        "apart": relative_error(own, wanted),
    }


def check_ranks(batch: int) -> None:
    bench = Bench(detect_node(), {}, plan=PLAN)
    for errors in bench.ranks(shared, 2, batch, backend="gloo"):
        assert errors["shared"] < TOLERANCE and errors["own"] < TOLERANCE, errors
        assert errors["apart"] > 0.1, errors  # the other rank's part does matter
    print("ranks", batch)


def check_likeliest() -> None:
    for size in (300, 1024):
        logits = torch.randint(50, (3, size)).float()
        logits[1, 700 % size] = logits[1, 290] = 60.0
        assert torch.equal(likeliest(logits), logits.argmax(-1)), size
    print("likeliest")


def check_serving(format: str) -> None:
    decoder = llama.Llama(LLAMA["tiny"], 16, "bfloat16", "cpu", seed=0)
    decoder.quantize(format)
    requests = [server.Request(0.0, 3 if number < 4 else 2) for number in range(20)]
    prompts = torch.randint(256, (len(requests), 10))
    engine = slots.LlamaEngine(decoder, 32, prompts, by_kernels=True)
    counts = set()

    def decode(by_kernels: Callable[[], Any] = engine.decode) -> Any:
        counts.add(len(engine.inputs.last))
        return by_kernels()

    engine.decode = decode
    server.serve(engine, requests)
    bench = Bench(detect_node(), {}, plan=PLAN)
    serving.check_tokens(bench, decoder, requests, prompts)
    print("serving", format, sorted(counts))


def check_benchmark() -> None:
    bench = Bench(detect_node(), {}, plan=PLAN)
    LLAMA["smallest"] = Shape(
        layers=1, hidden=16, intermediate=16, heads=1, kv_heads=1, vocabulary=16
    )
    (point, *_) = fused_decoding.DECODE_FUSED.points()
    found = fused_decoding.measure(bench, **{**point, "model": "smallest", "context": 16})
    print(*(name for name, value in found.items() if value is not None))


if __name__ == "__main__":  # ranks import this file
    for rows, width, gated in (
        (5, 48, 0),
        (70, 4100, 0),
        (12, 40, 0),
        (12, 40, 4),
        (21, 1030, 7),
    ):
        check_product(rows, width, gated, "bfloat16")
    for format in ("int8", "fp8"):
        check_product(12, 40, 0, format)
        check_product(12, 40, 4, format)
    check_step(LLAMA["tiny"], 64)
    token_kernels.CHUNK = 2
    check_step(LLAMA["tiny"], 150)  # three parts of the cache, one of them not full
    token_kernels.CHUNK = 32
    check_step(LLAMA["tiny"], 150)
    small = replace(LLAMA["tiny"], heads=6, hidden=96, intermediate=40, vocabulary=300)
    check_step(small, 20)
    check_step(small, 20, "int8")
    batch_kernels.LEAST_TILES = 1  # one program for each tile
    check_step(LLAMA["tiny"], 70, batch=16)
    batch_kernels.LEAST_TILES = 96
    check_step(LLAMA["tiny"], 32, batch=32)
    small = replace(small, intermediate=96, vocabulary=320)
    check_step(small, 20, "int8", batch=16)
    check_step(LLAMA["tiny"], 20, "fp8", batch=16)
    check_likeliest()
    check_ranks(1)
    check_ranks(16)
    check_serving("bfloat16")
    check_serving("fp8")
    check_benchmark()
