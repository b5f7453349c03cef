"""The plugin `vision`: its work by hand, and a training step in small on the CPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support import in_a_child

from hpml_plugins import Bench, HpmlError, Node
from hpml_plugins.errors import CheckFailed
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.plugins.vision import training
from hpml_plugins.testing import Context, measure_point

SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)
CPU_POINT: dict[str, Any] = {
    "model": "resnet18",
    "batch": 8,
    "dtype": "float32",
    "side": 32,
}


@pytest.fixture(autouse=True)
def same_precision_afterwards() -> Iterator[None]:
    """A trainer sets the precision of its process, which here is that of all tests."""
    products, convolutions = (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
    )
    searches = torch.backends.cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(products)
    torch.backends.cudnn.allow_tf32 = convolutions
    torch.backends.cudnn.benchmark = searches


def test_importing_vision_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.vision; print(*{'torch', 'torchvision', 'numpy'} &"
        " set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


def test_flop_of_resnet50_are_what_torchvision_publishes() -> None:
    from hpml_plugins.plugins.vision.trainer import forward_flop

    # 4.089 G multiply-adds; fvcore counts 4,089,184,256
    assert forward_flop("resnet50", 224) == 2 * 4_089_184_256


def test_a_training_step_is_measured_on_the_cpu(node: Node) -> None:
    from hpml_plugins.plugins.vision.trainer import forward_flop

    assert next(training.TRAINING_CPU.points()) == CPU_POINT
    record = measure_point(training.TRAINING_CPU, CPU_POINT, Context(node, plan=SHORT))
    assert (record.status, record.reason) == ("ok", "")
    assert set(record.metrics) == {"time", "rate"}
    assert record.metrics["rate"].value == pytest.approx(
        8 / record.metrics["time"].value, rel=0.2
    )
    assert record.work["time"].flop == 3 * 8 * forward_flop("resnet18", 32)
    assert (
        "the loss on one batch does not fall: the network does not train" in record.checks
    )


@in_a_child
def test_a_network_that_does_not_train_fails(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpml_plugins.plugins.vision.trainer.LEARNING_RATE", 0.0)
    monkeypatch.setattr(training, "WARM_UP_STEPS", 2)
    with pytest.raises(CheckFailed, match="does not train"):
        training.measure(Bench(node, {}, plan=SHORT), **CPU_POINT)


@pytest.mark.parametrize(
    ("dtype", "product", "convolutions"),
    [("float32", "highest", False), ("tf32", "high", True)],
)
def test_precision_of_float32_is_what_the_point_asks_for(
    dtype: str, product: str, convolutions: bool
) -> None:
    from hpml_plugins.plugins.vision.trainer import Trainer

    Trainer("resnet18", 1, dtype, 32, "cpu", 0)
    assert torch.get_float32_matmul_precision() == product
    assert torch.backends.cudnn.allow_tf32 is convolutions


@in_a_child
def test_bfloat16_is_autocast_over_float32_weights() -> None:
    from hpml_plugins.plugins.vision.trainer import Trainer

    trainer = Trainer("resnet18", 2, "bfloat16", 32, "cpu", 0)
    seen = []
    trainer.network.fc.register_forward_hook(
        lambda module, inputs, result: seen.append(result.dtype)
    )
    trainer.step()
    assert seen == [torch.bfloat16]
    assert {each.dtype for each in trainer.network.parameters()} == {torch.float32}


def test_an_unknown_model_is_named() -> None:
    from hpml_plugins.plugins.vision.trainer import build

    with pytest.raises(HpmlError, match="torchvision has no classifier 'resnet5'"):
        build("resnet5")
