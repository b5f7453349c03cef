"""The plugin `llm`: formulas by hand, the models against other code, both benchmarks in small on
the CPU."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from support import in_a_child

from hpml_plugins import Bench, Benchmark, HpmlError, Node, Record
from hpml_plugins.errors import CheckFailed
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.plugins.llm import decoding, gpt, hpml_benchmarks, llama, shapes, training
from hpml_plugins.plugins.llm.shapes import DECODED, TRAINED
from hpml_plugins.testing import Context, measure_point

SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def measured(benchmark: Benchmark, node: Node, **point: Any) -> Record:
    return measure_point(benchmark, point, Context(node, plan=SHORT))


def test_importing_llm_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.llm; print(*{'torch', 'triton', 'numpy', 'yaml'} &"
        " set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


# Formulas


def test_parameters_and_flop_of_training_by_hand() -> None:
    shape = TRAINED["gpt2-124m"]
    # a block: 768 · 2304 + 2304, 768 · 768 + 768, 2 · 768 · 3072 + 3072 + 768, two norms of 1536
    block = 1_771_776 + 590_592 + 4_722_432 + 3_072
    assert (
        shapes.trained_parameters(shape)
        == 50304 * 768 + 1024 * 768 + 12 * block + 1536
        == 124_475_904
    )
    # PaLM: 6 · (124,475,904 − 786,432) + 12 · 12 · 768 · 1024
    assert shapes.training_flop_per_token(shape, 1024) == 742_136_832 + 113_246_208


def test_the_model_has_as_many_parameters_as_the_formula() -> None:
    for name in ("tiny", "gpt2-124m"):
        with torch.device("meta"):
            model = gpt.Gpt(TRAINED[name], checkpointing=False)
        assert sum(
            each.numel() for each in model.parameters()
        ) == shapes.trained_parameters(TRAINED[name])


def test_work_of_decoding_by_hand() -> None:
    shape = DECODED["llama-3.1-8b"]
    # (4096 + 2048) · 4096 + 4096 · 4096 + 3 · 4096 · 14336 + 2 · 4096
    assert shapes.layer_weights(shape) == 25_165_824 + 16_777_216 + 176_160_768 + 8_192
    assert (
        shapes.decode_weights(shape)
        == 32 * 218_112_000 + 4096 + 128256 * 4096
        == 7_504_924_672
    )
    # with the table of embeddings: the published 8.03 B parameters
    assert shapes.decode_weights(shape) + 128256 * 4096 == 8_030_261_248
    assert shapes.decode_bytes(shape, 1, 2048, 2) == 15_009_849_344 + 8192 + 268_435_456
    assert shapes.decode_bytes(shape, 64, 2048, 2) == 15_009_849_344 + 64 * (
        8192 + 268_435_456
    )
    # norms are no products: 65 · 4096
    assert (
        shapes.decode_flop(shape, 1, 2048)
        == 2 * (7_504_924_672 - 266_240) + 4 * 32 * 4096 * 2048
    )


def test_an_unknown_model_or_format_names_the_known_ones(node: Node) -> None:
    with pytest.raises(HpmlError, match=r"no model 'gpt-5'; use one of gpt2-124m, tiny"):
        shapes.find_decoder("gpt-5", TRAINED)
    with pytest.raises(HpmlError, match="no format 'int2'; use one of bfloat16, float32"):
        decoding.measure(
            Bench(node, {}, plan=SHORT), model="tiny", batch=1, context=4, format="int2"
        )


def test_a_card_that_is_too_small_is_said_before_anything_is_filled(gpu_node: Node) -> None:
    point = {"model": "llama-3.1-8b", "batch": 64, "context": 2048, "format": "bfloat16"}
    assert decoding.fits(gpu_node, point) == ""
    small = msgspec.structs.replace(gpu_node.gpus[0], memory=24e9)
    node = msgspec.structs.replace(gpu_node, gpus=(small,))
    # 8,030,261,248 + 64 · 134,217,728 numbers of 2 B are 33.2 GB
    assert (
        decoding.fits(node, point)
        == "needs 37 GB of GPU memory for weights and cache; there are 24 GB"
    )
    assert decoding.fits(node, {**point, "batch": 1}) == ""


# Training


def test_training_is_measured_on_the_cpu(node: Node) -> None:
    (point,) = training.TRAINING_CPU.points()
    record = measured(training.TRAINING_CPU, node, **point)
    assert (record.status, record.reason) == ("ok", "")
    assert set(record.metrics) == {"time", "rate"}  # no peak and no allocator to ask
    assert record.metrics["rate"].median == pytest.approx(
        4 * 64 / record.metrics["time"].median, rel=0.1
    )
    assert record.work["time"].flop == 256 * shapes.training_flop_per_token(
        TRAINED["tiny"], 64
    )
    assert "the loss on one batch does not fall: the model does not train" in record.checks


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """What was compiled before must not serve here."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("checkpointing", [False, True])
@in_a_child
def test_all_blocks_share_one_compilation_and_agree_with_eager(
    checkpointing: bool, fresh_compiler: None
) -> None:
    from torch._dynamo.utils import counters

    shape = replace(TRAINED["tiny"], layers=3)
    trainer, plain = (
        gpt.Trainer(shape, 2, 16, each, "cpu", seed=0) for each in (checkpointing, False)
    )
    counters.clear()
    trainer.model.compile_parts("aot_eager")
    wanted = trainer.eager_loss()
    for _ in range(3):
        trainer.step()
        plain.step()
    assert counters["stats"]["unique_graphs"] == 2  # a block, and the head with the loss
    assert float(trainer.loss) == pytest.approx(float(plain.loss), rel=1e-5)
    assert float(trainer.loss) < wanted


def test_a_token_does_not_see_later_ones() -> None:
    trainer = gpt.Trainer(TRAINED["tiny"], 1, 32, False, "cpu", seed=0)
    before = trainer.eager_hidden(1)
    trainer.tokens[0, 20] = (trainer.tokens[0, 20] + 1) % 256
    after = trainer.eager_hidden(1)
    assert torch.equal(before[:, :20], after[:, :20])
    assert not torch.allclose(before[:, 20:], after[:, 20:])


@pytest.mark.parametrize("fault", ["blocks", "loss", "learning"])
@in_a_child
def test_a_wrong_training_step_fails(
    fault: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = gpt.Trainer(TRAINED["tiny"], 4, 64, False, "cpu", seed=0)
    if fault == "blocks":
        with monkeypatch.context() as patched:
            attend = gpt.scaled_dot_product_attention
            patched.setattr(
                gpt,
                "scaled_dot_product_attention",
                lambda q, k, v, is_causal: attend(q, k, v),
            )
            wanted = trainer.eager_hidden(training.CHECKED)
        monkeypatch.setattr(trainer, "eager_hidden", lambda count: wanted)
    elif fault == "loss":
        monkeypatch.setattr(
            trainer.model, "_head_loss", lambda *arguments: 1.1 * gpt.head_loss(*arguments)
        )
    else:
        trainer.optimizer.param_groups[0]["lr"] = 0.0
    message = {
        "blocks": "blocks differ",
        "loss": "loss differs",
        "learning": "does not fall",
    }[fault]
    with pytest.raises(CheckFailed, match=message):
        training.check_training(Bench(node, {}, plan=SHORT), trainer, math.log(256))


# Decoding


def test_decoding_is_measured_on_the_cpu(node: Node) -> None:
    (point,) = decoding.DECODE_CPU.points()
    record = measured(decoding.DECODE_CPU, node, **point)
    assert (record.status, record.reason) == ("ok", "")
    assert set(record.metrics) == {"time", "rate", "bandwidth"}
    assert record.work["time"].bytes == shapes.decode_bytes(DECODED["tiny"], 4, 256, 4)
    assert record.metrics["rate"].median == pytest.approx(
        4 / record.metrics["time"].median, rel=0.1
    )


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 2e-2)]
)
def test_a_step_is_its_layers_written_out(dtype: Any, tolerance: float) -> None:
    decode = llama.Decode(DECODED["tiny"], 3, 20, dtype, "cpu", seed=0)
    if dtype == torch.float64:  # float64 angles too
        cos, sin = decode._rotation("cpu")
        decode._cos, decode._sin = torch.cat([cos, cos]), torch.cat([-sin, sin])
    logits, tokens = decode.step()
    x = decode.embedding[decode.tokens]
    for layer in decode.layers:
        x = decode.exact_layer(layer, x)
    x = x.double()
    wanted = (
        x
        / (x.pow(2).mean(-1, keepdim=True) + llama.EPSILON).sqrt()
        @ decode.head.double().T
    )
    assert float((logits.double() - wanted).norm() / wanted.norm()) < tolerance
    assert torch.equal(tokens, logits.argmax(-1))
    assert torch.equal(decode.step()[0], logits)  # a call leaves the cache as it found it


def test_a_wrong_layer_fails(node: Node) -> None:
    decode = llama.Decode(DECODED["tiny"], 2, 20, torch.float32, "cpu", seed=0)
    decode._sin = -decode._sin
    with pytest.raises(CheckFailed, match="a layer differs from float64"):
        decoding.check_layer(Bench(node, {}, plan=SHORT), decode, 1e-5)


# On a GPU


@needs_gpu
def test_the_graph_of_a_decode_step_agrees_with_the_step() -> None:
    decode = llama.Decode(
        replace(DECODED["tiny"], hidden=256), 2, 64, torch.bfloat16, "cuda", seed=0
    )
    wanted = decode.step()[0].clone()
    replay, (logits, tokens) = decode.captured()
    logits.zero_()
    replay()
    assert float((logits - wanted).norm() / wanted.norm()) < decoding.GRAPH_TOLERANCE
    assert torch.equal(tokens, logits.argmax(-1))


@needs_gpu
@pytest.mark.parametrize("checkpointing", [False, True])
def test_compiled_training_agrees_with_eager_on_a_gpu(
    checkpointing: bool, fresh_compiler: None, node: Node
) -> None:
    trainer = gpt.Trainer(TRAINED["tiny"], 4, 64, checkpointing, "cuda", seed=0)
    training.check_training(Bench(node, {}, plan=SHORT), trainer, math.log(256))


def test_every_benchmark_is_offered() -> None:
    names = [benchmark.name for benchmark in hpml_benchmarks()]
    assert names == ["llm_training", "llm_decode", "llm_training_cpu", "llm_decode_cpu"]
