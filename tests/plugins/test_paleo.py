"""The plugin `paleo`: predictions held against hand arithmetic and torch's own counter,
measurements taken here."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pluggy
import pytest

from hpml_plugins import (
    Bench,
    HpmlError,
    Node,
    Samples,
    count_model,
    find_gpu,
    gpu_types,
    hookspecs,
)
from hpml_plugins.errors import Skipped
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.plugins import paleo
from hpml_plugins.plugins.paleo import COMMUNICATION, MEASURE, PREDICT, formulas, measure
from hpml_plugins.plugins.paleo.formulas import layer_costs, predict
from hpml_plugins.testing import Context, measure_point

SHORT = SamplingPlan(precision=0.5, budget=0.02, warm_up=0.01, fewest=3)

NETS = """
import torch
from torch import nn
from torch.nn import functional

class Small(nn.Module):
    "A convolution, a batch norm called once, a ReLU in place called twice, a residual and a linear layer."
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.twin, self.drop, self.fc = nn.Conv2d(4, 4, 3, padding=1), nn.Dropout(), nn.Linear(4, 10)

    def forward(self, x):
        x = self.relu(self.norm(self.conv(x)))
        x = self.relu(self.twin(x) + x)
        return self.fc(self.drop(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1)))

class Chooses(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = self.fc(x)
        return x if x.sum() > 0 else -x

class Unscored(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x)

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(100, 16), nn.Linear(16, 100)

    def forward(self, tokens):
        return self.out(self.embedding(tokens)).mean(1)
"""  # noqa: E501


@pytest.fixture
def nets(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of foreign models, importable by the name returned."""
    (tmp_path / "paleo_nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "paleo_nets"


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Measuring on a CPU sets torch to one thread, for the process of the point."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def vgg16() -> Any:
    """The count of VGG16."""
    return count_model("vgg16")


def columns_of(bench: Bench, series: str) -> dict[str, list[Any]]:
    return bench.collected.series[series].columns


def test_the_hooks_offer_three_benchmarks_and_five_figures() -> None:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(paleo)
    (benchmarks,) = manager.hook.hpml_benchmarks()
    assert [one.name for one in benchmarks] == [
        "paleo_predict",
        "paleo_measure",
        "paleo_communication",
    ]
    (figures,) = manager.hook.hpml_figures()
    assert [one.name for one in figures] == [
        "predicted",
        "against",
        "ppp",
        "sums",
        "communication",
    ]


def test_importing_paleo_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.paleo;"
        "print(*{'torch', 'torchvision', 'fvcore', 'numpy', 'matplotlib'} & set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


def test_a_layers_time_by_hand() -> None:
    # 10 GFLOP at 5 TFLOP/s = 2 ms, 1 GB at 500 GB/s = 2 ms, together 4 ms; at half of the peak 8 ms
    assert formulas.layer_time(10e9, 1e9, 5e12, 500e9) == pytest.approx(4e-3)
    assert formulas.layer_time(10e9, 1e9, 5e12, 500e9, ppp=0.5) == pytest.approx(8e-3)
    assert formulas.percent_of_peak(10e9, 4e-3, 5e12) == pytest.approx(
        0.5
    )  # 2.5 of 5 TFLOP/s
    with pytest.raises(ValueError, match="not above 0"):
        formulas.layer_time(1, 1, 1, 1, ppp=0)


def test_bytes_of_a_batch_hold_the_weights_once_by_hand() -> None:
    # VGG16's last layer, 4096 → 1000: weights and biases 4,097,000 · 4 B = 16,388,000; in and out
    # 5,096 · 4 B = 20,384
    assert formulas.bytes_of_batch(16_408_384, 4_097_000, 1, 4) == 16_408_384
    assert formulas.bytes_of_batch(16_408_384, 4_097_000, 32, 4) == 16_388_000 + 32 * 20_384
    assert formulas.bytes_of_batch(16_408_384, 4_097_000, 1, 8) == 2 * 16_408_384


def test_a_ring_by_hand() -> None:
    # 2 · 3/4 · 1 GB at 450 GB/s = 3.33 ms; at 0.72 of it 4.63 ms; two ranks: 1 GB, 2.22 ms
    assert formulas.ring_all_reduce_time(1e9, 4, 450e9) == pytest.approx(
        3.3333e-3, rel=1e-4
    )
    assert formulas.ring_all_reduce_time(1e9, 4, 450e9, 0.72) == pytest.approx(
        4.6296e-3, rel=1e-4
    )
    assert formulas.ring_all_reduce_time(1e9, 2, 450e9) == pytest.approx(
        2.2222e-3, rel=1e-4
    )
    with pytest.raises(HpmlError, match="use two or more"):
        formulas.ring_all_reduce_time(1, 1, 1)


def test_paleos_defaults_are_data() -> None:
    assert (formulas.default_ppp("compute"), formulas.default_ppp("communication")) == (
        0.62,
        0.72,
    )


def test_vgg16_on_half_a_k80_by_hand(vgg16: Any) -> None:
    """15.47 G multiply-adds = 30.94 GFLOP: 7.08 ms in single precision, 21.27 ms in double."""
    # thirteen convolutions: 86,704,128 + 6 · 1,849,688,064 + 3 · 924,844,032 + 3 · 462,422,016 =
    # 15,346,630,656 three linear layers: 102,760,448 + 16,777,216 + 4,096,000 = 123,633,664
    assert vgg16.total.multiply_adds == 15_346_630_656 + 123_633_664 == 15_470_264_320
    k80 = find_gpu("Tesla K80")
    assert k80 and (k80.float32, k80.float64) == (4.37e12, 1.455e12)
    for dtype, seconds in (
        ("float32", 30.940528640e9 / 4.37e12),
        ("float64", 30.940528640e9 / 1.455e12),
    ):
        found = predict(layer_costs(vgg16, 1, dtype), k80, dtype, 1.0)
        assert found and found["at_peak"] == pytest.approx(seconds)
    assert pytest.approx(7.08e-3, abs=5e-6) == 30.940528640e9 / 4.37e12
    assert pytest.approx(21.27e-3, abs=10e-6) == 30.940528640e9 / 1.455e12


def test_a_prediction_is_flop_over_peak_and_bytes_over_bandwidth_over_the_share(
    vgg16: Any,
) -> None:
    h200 = find_gpu("NVIDIA H200")
    assert h200
    costs = layer_costs(vgg16)
    found = predict(costs, h200, "float32", 0.62)
    assert found
    # 30.94 GFLOP / 67 TFLOP/s = 461.8 µs; all bytes / 4.8 TB/s; both / 0.62
    by_hand = (30.940528640e9 / 67e12 + vgg16.total.bytes / 4.8e12) / 0.62
    assert found["forward"] == pytest.approx(by_hand)
    assert found["at_peak"] == pytest.approx(461.8e-6, rel=1e-4)
    double = predict(layer_costs(vgg16, 1, "float64"), h200, "float64", 1.0)
    assert double and (double["peak_of"], double["peak"]) == ("float64_tensor", 67e12)


@pytest.mark.parametrize(
    "model", [pytest.param("vgg16", marks=pytest.mark.slow), "googlenet", "resnet50"]
)
def test_a_training_steps_flop_are_exactly_those_that_torch_counts(model: str) -> None:
    """Three times forward, less the gradient of the picture, held against torch's counter over a
    real backward pass."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from torchvision import models

    without = {"aux_logits": False, "init_weights": False} if model == "googlenet" else {}
    with torch.device("meta"):
        network, images = models.get_model(model, **without), torch.empty(2, 3, 224, 224)
    with FlopCounterMode(display=False) as counter:
        network(images).sum().backward()
    assert (
        sum(cost.training_flop for cost in layer_costs(count_model(model), 2))
        == counter.get_total_flops()
    )


def test_the_first_layer_has_no_gradient_of_the_picture(vgg16: Any) -> None:
    costs = {cost.layer: cost for cost in layer_costs(vgg16)}
    first, second = costs["features.0"], costs["features.2"]
    assert first.flop == 2 * 86_704_128  # 224² · 3 · 64 · 9 multiply-adds
    assert (first.training_flop, first.training_bytes) == (2 * first.flop, 2 * first.nbytes)
    assert (second.training_flop, second.training_bytes) == (
        3 * second.flop,
        3 * second.nbytes,
    )
    relu = costs["features.1"]
    assert (relu.flop, relu.training_bytes) == (0, 2 * relu.nbytes)


def test_predicting_gives_every_gpu_type_with_a_published_peak(node: Node) -> None:
    bench = Bench(node, {})
    values = PREDICT.measure(bench, model="vgg16", dtype="float64")
    assert values["k80_at_peak"] == pytest.approx(21.27e-3, abs=10e-6)
    columns = columns_of(bench, "gpus")
    assert columns["gpu"] == [gpu.name for gpu in gpu_types() if gpu.float64]
    assert columns["forward"][0] == values["k80_forward"]
    assert sum(columns_of(bench, "layers")["k80_forward"]) == pytest.approx(
        values["k80_forward"]
    )
    assert all(
        math.isfinite(number) and number > 0
        for name in ("forward", "training")
        for number in columns[name]
    )
    assert all(
        a < f < t
        for a, f, t in zip(
            columns["at_peak"], columns["forward"], columns["training"], strict=True
        )
    )


@pytest.mark.parametrize(
    ("model", "dtype", "status", "reason"),
    [
        (
            "vgg61",
            "float32",
            "failed",
            "torchvision has no classifier 'vgg61'; did you mean 'vgg19'?",
        ),
        (
            "vgg16",
            "float31",
            "failed",
            "no precision 'float31'; use one of float64, float32",
        ),
        (
            "resnet18",
            "tf32",
            "skipped",
            "Tesla K80, of which the metrics are, has no published tf32 peak",
        ),
        ("vit_b_16@3x100x100", "float32", "failed", "model 'vit_b_16' cannot be traced"),
    ],
)
def test_what_cannot_be_predicted_says_so(
    model: str, dtype: str, status: str, reason: str, node: Node
) -> None:
    record = measure_point(PREDICT, {"model": model, "dtype": dtype}, Context(node))
    assert record.status == status
    assert reason in record.reason


def test_types_without_a_published_peak_are_named(node: Node) -> None:
    bench = Bench(node, {})
    with pytest.raises(Skipped):
        PREDICT.measure(bench, model="alexnet", dtype="bfloat16")
    (warning,) = bench.collected.warnings
    assert warning.startswith("left out, no published bfloat16 peak: Tesla K80, P100 SXM2")


def test_a_model_is_measured_whole_and_by_layer(nets: str, node: Node) -> None:
    bench = Bench(node, {}, plan=SHORT)
    values = measure.measure(bench, model=f"{nets}:Small@3x16x16", dtype="float32", batch=1)
    assert set(values) == {metric.name for metric in MEASURE.metrics}
    columns = columns_of(bench, "layers")
    rows = {
        row[0]: dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    }
    # the model's own functions: a sum and a pooling; flatten and dropout only give views
    assert {path: row["calls"] for path, row in rows.items()} == {
        "conv": 1,
        "norm": 1,
        "relu": 2,
        "twin": 1,
        "": 2,
        "fc": 1,
    }
    # 16² · 4 · 3 · 9 = 27,648 multiply-adds; 16² · 4 · 4 · 9 = 36,864; 4 · 10 = 40
    assert [rows[path]["flops"] for path in ("conv", "twin", "fc")] == [
        2 * 27_648,
        2 * 36_864,
        80,
    ]
    hidden = values["layers_hidden"].median
    assert hidden == pytest.approx(sum(row["alone"] for row in rows.values()))
    assert values["hidden_ratio"] == pytest.approx(hidden / values["forward"].median)
    forward_flop = 2 * (27_648 + 36_864 + 40)
    assert values["rate"].values == pytest.approx(
        [forward_flop / seconds for seconds in values["forward"].values]
    )
    # three times that, less the gradient of the picture
    training_flop = 3 * forward_flop - 2 * 27_648
    rates = [training_flop / seconds for seconds in values["training"].values]
    assert values["training_rate"].values == pytest.approx(rates)
    assert any(
        "no published peak of a CPU" in warning for warning in bench.collected.warnings
    )
    assert len(bench.collected.checks) == 3


def test_taking_apart_does_not_change_what_comes_out(nets: str, node: Node) -> None:
    """Layers in place are timed again and again on copies: the pass itself must not notice."""
    import torch

    from hpml_plugins.plugins.paleo.network import Network, time_alone, time_synchronised

    network = Network(f"{nets}:Small@3x16x16", "float64", 2, "cpu", 0)
    graph = network.graph()
    layers, scores = time_alone(Bench(node, {}, plan=SHORT), graph, network.images)
    assert torch.equal(scores, network.forward())
    passes = time_synchronised(graph, network.images, layers)
    assert len(passes) >= 3
    assert {len(taken) for taken in passes} == {len(layers)} == {8}


def test_equal_layers_are_timed_once(
    nets: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpml_plugins.plugins.paleo import network as module

    network = module.Network("vgg16@3x32x32", "float32", 1, "cpu", 0)
    timed = []
    one = Samples.of([1.0], "s")
    monkeypatch.setattr(
        module, "_time_alone", lambda bench, call, *rest: timed.append(call) or one
    )
    found, _ = module.time_alone(Bench(node, {}), network.graph(), network.images)
    # 13 convolutions: in groups of 2, 2, 3, 3, 3 the last of each group of three is like the
    # second, and the last group of all is one and the same kind (512 → 512 on 2 × 2)
    assert sum("Conv2d" in repr(call) for call in timed) == 9
    assert (
        sum(
            "conv" in repr(layer).lower() or layer.path.startswith("features")
            for layer in found
        )
        == 31
    )


@pytest.mark.parametrize(
    ("point", "status", "reason"),
    [
        (
            {"model": "resnet19", "dtype": "float32", "batch": 1},
            "failed",
            "torchvision has no classifier 'resnet19'",
        ),
        (
            {"model": "resnet18", "dtype": "float8", "batch": 1},
            "failed",
            "no precision 'float8'; use one of",
        ),
        (
            {"model": "resnet18", "dtype": "tf32", "batch": 1},
            "skipped",
            "tf32 is measured on GPUs only",
        ),
        (
            {"model": "resnet18", "dtype": "float32", "batch": 32},
            "skipped",
            "a batch of 32 is measured on GPUs only",
        ),
        (
            {"model": "resnet18", "dtype": "float32", "batch": 0},
            "failed",
            "batch is 0; use 1 or more",
        ),
        (
            {"model": "paleo_nets:Chooses@8", "dtype": "float32", "batch": 1},
            "failed",
            "taken apart into layers",
        ),
        (
            {"model": "paleo_nets:Unscored@3x8x8", "dtype": "float32", "batch": 1},
            "failed",
            "one row of scores",
        ),
        (
            {"model": "paleo_nets:Tokens@int64:7", "dtype": "float32", "batch": 1},
            "failed",
            "does not take pictures",
        ),
    ],
)
def test_what_cannot_be_measured_says_so(
    point: dict[str, Any], status: str, reason: str, nets: str, node: Node
) -> None:
    record = measure_point(MEASURE, point, Context(node, plan=SHORT))
    assert (record.status, record.metrics) == (status, {})
    assert reason in record.reason
    assert "\n" not in record.reason


def test_a_precision_that_the_card_lacks_is_said() -> None:
    assert (
        measure.why_not("tf32", "cuda", "7.0")
        == "tf32 needs compute capability 8.0, this card has 7.0"
    )
    assert measure.why_not("float64", "cuda", "7.0") == ""
    assert measure.why_not("bfloat16", "cuda", "") == ""


def test_a_card_without_a_published_peak_is_said(gpu_node: Node, node: Node) -> None:
    import msgspec

    def said(name: str, dtype: str) -> list[str]:
        card = msgspec.structs.replace(gpu_node.gpus[0], name=name)
        bench = Bench(msgspec.structs.replace(gpu_node, gpus=(card,)), {}, gpus=1)
        measure.warn_of_unknown_peak(bench, dtype)
        return bench.collected.warnings

    assert said("NVIDIA H200", "float64") == []
    assert said("Tesla V100-SXM2-16GB", "tf32") == [
        "no platform percent of peak: V100 SXM2 16 GB has no published tf32 peak"
    ]
    assert said("Some Card", "float32") == [
        "no platform percent of peak: unknown card Some Card: no published peak"
    ]


def test_two_ranks_sum_a_models_gradients(nets: str, node: Node) -> None:
    record = measure_point(
        COMMUNICATION, {"model": "squeezenet1_1", "ranks": 2}, Context(node, plan=SHORT)
    )
    assert record.status == "ok", record.reason
    # 1,235,496 parameters · 4 B; two ranks: 2 (2 − 1) / 2 = 1 times the bytes cross a link
    assert record.metrics["bytes"].samples == [1_235_496 * 4]
    rates = [4_941_984 / seconds for seconds in record.metrics["time"].samples]
    assert record.metrics["bus_bandwidth"].samples == pytest.approx(rates)


def test_ranks_that_cannot_be_had_are_said(node: Node) -> None:
    with pytest.raises(HpmlError, match="use two or more"):
        COMMUNICATION.measure(Bench(node, {}), model="resnet18", ranks=1)
    with pytest.raises(Skipped, match="more than two ranks"):
        COMMUNICATION.measure(Bench(node, {}), model="resnet18", ranks=4)
