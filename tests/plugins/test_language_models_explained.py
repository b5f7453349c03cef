"""The plugin `language_models`: the parts of a step put together are the step, and what their times
predict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support import in_a_child

from hpml_plugins import Bench, HpmlError, Node, Samples
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.plugins.language_models import (
    communication,
    explanation,
    gpt,
    inference,
    launches,
    llama,
    parts,
)
from hpml_plugins.plugins.language_models.shapes import GPT, LLAMA
from hpml_plugins.testing import Context, measure_point

SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)
NAMES = ["embedding", "attention_in", "attention", "attention_out"]
NAMES += ["feed_forward_in", "feed_forward_out", "head"]


def of_decoding(layers: int, fix: parts.Compile) -> list[parts.Part]:
    shape = replace(LLAMA["tiny"], layers=layers)
    model = llama.Llama(shape, 32, "bfloat16", "cpu", seed=0)
    step = inference.DecodeStep(model, 2, seed=0)
    return parts.of_inference(model, step.last, step.caches, step.place, fix)


@in_a_child
def test_a_part_is_compiled_once_for_all_layers() -> None:
    from torch._dynamo.utils import counters

    compiled = of_decoding(3, parts.compiler({}, "aot_eager"))
    plain = of_decoding(3, parts.as_it_is)
    assert [part.name for part in compiled] == NAMES
    for part, wanted in zip(compiled, plain, strict=True):
        counters.clear()
        results = [each.step() for each in (part, wanted)]
        found, exact = (each[0] if isinstance(each, tuple) else each for each in results)
        assert torch.equal(found, exact)
        assert counters["stats"]["unique_graphs"] == (part.name != "embedding")


def test_the_parts_of_training_leave_no_gradient_and_train() -> None:
    trainer = gpt.Trainer(gpt.made(GPT["tiny"], False, "cpu", seed=0))
    text = gpt.random_text(GPT["tiny"], 2, 32, "cpu", seed=0)
    found = parts.of_training(trainer, text, parts.as_it_is)
    assert [part.name for part in found] == [*NAMES, "optimiser"]
    assert [part.count for part in found] == [1, 2, 2, 2, 2, 2, 1, 1]
    for part in found[:-1]:
        part.step()
        assert all(each.grad is None for each in trainer.model.parameters())
    before = [each.detach().clone() for each in trainer.model.parameters()]
    found[-1].step()
    after = list(trainer.model.parameters())
    # gradients of zero: what is left is the decay of the weights
    shrunk = 1 - gpt.LEARNING_RATE * gpt.WEIGHT_DECAY
    for old, new in zip(before, after, strict=True):
        assert torch.allclose(new, old * shrunk)


def test_a_prediction_is_the_sum_with_the_sum_of_the_intervals() -> None:
    times = {
        "attention": Samples.of([1.0, 2.0, 3.0], "s"),
        "head": Samples.of([10.0, 20.0, 60.0], "s"),
    }
    # of three samples the interval is the least and the greatest
    assert explanation.predict(times) == (22.0, 11.0, 63.0)
    times["head"] = times["head"].note(regime="sustained")  # now its mean counts
    assert explanation.predict(times) == (32.0, 11.0, 63.0)


@pytest.mark.parametrize(
    "rung",
    [
        "decode_tiny",
        pytest.param("prefill_tiny", marks=pytest.mark.slow),
        pytest.param("training_tiny", marks=pytest.mark.slow),
    ],
)
def test_a_rung_is_measured_on_the_cpu(rung: str, node: Node) -> None:
    context = Context(node, plan=SHORT)
    record = measure_point(explanation.EXPLAINED_CPU, {"rung": rung}, context)
    assert (record.status, record.reason) == ("ok", "")
    columns: dict[str, Any] = dict(record.series["parts"].columns)
    names = NAMES if rung != "training_tiny" else [*NAMES, "optimiser"]
    assert columns["part"] == names
    predicted = record.metrics["predicted"]
    assert predicted.value == pytest.approx(sum(columns["time"]))
    assert predicted.info["low"] == pytest.approx(sum(columns["low"]))
    assert predicted.info["high"] == pytest.approx(sum(columns["high"]))


def test_rungs_of_big_models_need_a_card_that_holds_them(
    gpu_node: Node, node: Node
) -> None:
    assert explanation.fits_rung(gpu_node, {"rung": "decode_64"}) == ""
    assert explanation.fits_rung(node, {"rung": "decode_64"}).startswith("needs 39 GB")
    assert explanation.fits_rung(node, {"rung": "training_64"}) == ""


@pytest.mark.parametrize(
    "rung", ["decode_tiny", pytest.param("training_tiny", marks=pytest.mark.slow)]
)
def test_launches_are_counted_by_part(rung: str, node: Node) -> None:
    context = Context(node, plan=SHORT)
    record = measure_point(launches.LAUNCHES_CPU, {"rung": rung}, context)
    assert (record.status, record.reason) == ("ok", "")
    columns: dict[str, Any] = dict(record.series["launches"].columns)
    assert columns["part"] == (NAMES if rung != "training_tiny" else [*NAMES, "optimiser"])
    median = {name: each.value for name, each in record.metrics.items()}
    assert sum(columns["launches"]) == median["of_parts"]
    assert median["gaps"] == pytest.approx(median["of_parts"] * median["gap"])
    # nothing is compiled on a CPU, so there is no fusion across the parts of a decode step
    if rung == "decode_tiny":
        assert median["launches"] == median["of_parts"]


def test_launches_by_hand(node: Node) -> None:
    bench = Bench(node, {}, plan=SHORT)
    x = torch.zeros(4)
    assert launches.count_launches(bench, lambda: x.add_(1)) == 1
    assert launches.count_launches(bench, lambda: [x.add_(1), x.mul_(2), x.sum()]) == 3
    with pytest.raises(HpmlError, match="sees no kernels"):
        launches.count_launches(bench, lambda: None)


def test_the_bytes_of_a_steps_collectives_by_hand() -> None:
    shape = GPT["gpt2-124m"]
    # 4 · 768² + 2 · 768 · 3072 + 2 · 768; (50304 + 1024) · 768 + 768
    assert communication.unit_sizes(shape) == (7_079_424, 39_420_672)
    sizes = communication.bucket_sizes(124_373_760)
    assert sum(sizes) == 124_373_760
    assert {*sizes[:-1]} == {25 * 1024 * 1024 // 4} and len(sizes) == 19


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_the_collectives_of_training_are_measured_on_the_cpu(way: str, node: Node) -> None:
    point = {"model": "tiny", "way": way, "ranks": 2}
    context = Context(node, plan=SHORT)
    record = measure_point(communication.COMMUNICATION_CPU, point, context)
    assert (record.status, record.reason) == ("ok", "")
    assert "a reduced gradient is wrong" in record.checks
    layer, rest = communication.unit_sizes(GPT["tiny"])
    # of two ranks each sends half of what is gathered or scattered; all numbers have 4 bytes here
    gathered = 2 * (2 * layer) + rest
    sent = 2 * layer + rest if way == "ddp" else (gathered + 2 * layer + rest) / 2
    assert record.metrics["sent"].value == 4 * sent


def test_an_unknown_way_names_the_known_ones(node: Node) -> None:
    with pytest.raises(HpmlError, match="no way 'zero'; use one of ddp, fsdp"):
        communication.measure(
            Bench(node, {}, plan=SHORT), model="tiny", way="zero", ranks=2
        )
