"""The plugin `flops`: counts held against hand arithmetic, against torch's own counter and against torchvision."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pluggy
import pytest

from hpml_plugins import Bench, HpmlError, Node, hookspecs
from hpml_plugins.errors import CheckFailed
from hpml_plugins.plugins import flops
from hpml_plugins.plugins.flops import FLOPS, benchmark, formulas

SIX = ["alexnet", "vgg16", "vgg19", "googlenet", "resnet18", "resnet50"]
#: A transformer, an einsum, another image size, an auxiliary classifier: each took a decision of its own.
UNUSUAL = ["vit_b_16", "maxvit_t", "efficientnet_b1", "inception_v3"]

# VGG's convolutions, all 3 × 3 with padding 1: output side, channels in, channels out, and how many in VGG19.
# The multiply-adds of each, side² · in · out · 9:
VGG19_CONVOLUTIONS = [
    (224, 3, 64, 1),  # 224² ·   3 ·  64 · 9 =    86,704,128
    (224, 64, 64, 1),  # 224² ·  64 ·  64 · 9 = 1,849,688,064
    (112, 64, 128, 1),  # 112² ·  64 · 128 · 9 =   924,844,032
    (112, 128, 128, 1),  # 112² · 128 · 128 · 9 = 1,849,688,064
    (56, 128, 256, 1),  #  56² · 128 · 256 · 9 =   924,844,032
    (56, 256, 256, 3),  #  56² · 256 · 256 · 9 = 1,849,688,064, three times
    (28, 256, 512, 1),  #  28² · 256 · 512 · 9 =   924,844,032
    (28, 512, 512, 3),  #  28² · 512 · 512 · 9 = 1,849,688,064, three times
    (14, 512, 512, 4),  #  14² · 512 · 512 · 9 =   462,422,016, four times
]  # sum: 86,704,128 + 8 · 1,849,688,064 + 3 · 924,844,032 + 4 · 462,422,016 = 19,508,428,800
VGG19_LINEAR = [(25_088, 4096), (4096, 4096), (4096, 1000)]  # 102,760,448 + 16,777,216 + 4,096,000 = 123,633,664


@pytest.fixture(scope="module")
def measured() -> Any:
    """`measured(name)`: what `flops` gave for a model and the bench that it used, each measured once."""
    known: dict[str, tuple[dict[str, float], Bench]] = {}

    def measure(model: str) -> tuple[dict[str, float], Bench]:
        if model not in known:
            node = Node(os="", arch="", cpu="", num_cpu=1, ram=0, python="3")
            bench = Bench(node, {"model": model})
            known[model] = dict(FLOPS.measure(bench, model=model)), bench
        return known[model]

    return measure


def test_the_hook_offers_flops() -> None:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(flops)
    assert [[item.name for item in offered] for offered in manager.hook.hpml_benchmarks()] == [["flops"]]


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.flops;"
        "print(*{'torch', 'torchvision', 'fvcore', 'numpy', 'numba'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_the_grid_is_the_six_models() -> None:
    assert list(FLOPS.grid["model"]) == SIX


def test_vgg19_by_hand_is_19_632_g_and_99_37_percent_convolutions(measured: Any) -> None:
    convolutions = sum(
        times * formulas.convolution_multiply_adds(c_out, side, side, c_in, 3)
        for side, c_in, c_out, times in VGG19_CONVOLUTIONS
    )
    linear = sum(formulas.linear_multiply_adds(*features) for features in VGG19_LINEAR)
    assert (convolutions, linear) == (19_508_428_800, 123_633_664)
    values, _ = measured("vgg19")
    assert values["multiply_adds"] == convolutions + linear == 19_632_062_464
    assert values["convolution_share"] == pytest.approx(0.9937, abs=5e-5)


def test_alexnet_by_hand(measured: Any) -> None:
    by_hand = [
        formulas.convolution_multiply_adds(64, 55, 55, 3, 11),  # 64 · 55² · 3 · 121 = 70,276,800
        formulas.convolution_multiply_adds(192, 27, 27, 64, 5),  # 192 · 27² · 64 · 25 = 223,948,800
        formulas.convolution_multiply_adds(384, 13, 13, 192, 3),  # 384 · 13² · 192 · 9 = 112,140,288
        formulas.convolution_multiply_adds(256, 13, 13, 384, 3),  # 256 · 13² · 384 · 9 = 149,520,384
        formulas.convolution_multiply_adds(256, 13, 13, 256, 3),  # 256 · 13² · 256 · 9 = 99,680,256
        formulas.linear_multiply_adds(9216, 4096),  # 37,748,736
        formulas.linear_multiply_adds(4096, 4096),  # 16,777,216
        formulas.linear_multiply_adds(4096, 1000),  # 4,096,000
    ]
    values, bench = measured("alexnet")
    assert by_hand == [70276800, 223948800, 112140288, 149520384, 99680256, 37748736, 16777216, 4096000]
    assert bench.attached["layers"].columns["multiply_adds"] == by_hand
    assert values["multiply_adds"] == sum(by_hand) == 714_188_480


def test_a_grouped_convolution_by_hand() -> None:
    # depthwise: 32 · 112² outputs of 1 · 9 multiply-adds
    assert formulas.convolution_multiply_adds(32, 112, 112, 32, 3, groups=32) == 3_612_672


def test_attention_by_hand() -> None:
    assert formulas.attention_multiply_adds(12, 197, 197, 64, 64) == 59_610_624


@pytest.mark.parametrize("model", SIX)
def test_flops_are_twice_the_multiply_adds(model: str, measured: Any) -> None:
    values, _ = measured(model)
    assert values["flops"] == 2 * values["multiply_adds"]


@pytest.mark.parametrize("model", SIX)
def test_the_count_is_exactly_that_of_torchs_own_counter(model: str, measured: Any) -> None:
    """No tolerance: both count convolutions and linear layers without their bias, and nothing else here."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from torchvision import models

    without = {"aux_logits": False, "init_weights": False} if model == "googlenet" else {}
    with torch.device("meta"):
        network, image = models.get_model(model, **without).eval(), torch.empty(1, 3, 224, 224)
    with FlopCounterMode(display=False) as counter:
        network(image)
    assert measured(model)[0]["flops"] == counter.get_total_flops()


@pytest.mark.parametrize("model", [*SIX, *UNUSUAL])
def test_the_count_is_what_torchvision_publishes(model: str, measured: Any) -> None:
    from torchvision import models

    weights = models.get_model_weights(model).IMAGENET1K_V1
    assert measured(model)[0]["multiply_adds"] == pytest.approx(weights.meta["_ops"] * 1e9, rel=0.01)


@pytest.mark.parametrize("model", [*SIX, "vit_b_16", "maxvit_t", "efficientnet_b1"])
def test_the_parameters_are_what_torchvision_publishes(model: str, measured: Any) -> None:
    """inception_v3 is not here: torchvision publishes it with its auxiliary classifier."""
    from torchvision import models

    assert measured(model)[0]["parameters"] == models.get_model_weights(model).IMAGENET1K_V1.meta["num_params"]


@pytest.mark.parametrize("model", SIX)
def test_the_layers_add_up_to_the_model(model: str, measured: Any) -> None:
    values, bench = measured(model)
    layers = bench.attached["layers"].columns
    assert sum(layers["multiply_adds"]) == values["multiply_adds"]
    assert sum(layers["parameters"]) == values["parameters"]


def test_a_layers_index_finds_its_name(measured: Any) -> None:
    from torchvision import models

    _, bench = measured("alexnet")
    names = [name for name, _ in models.alexnet().named_modules()]
    first = int(bench.attached["layers"].columns["index"][0])
    assert names[first] == "features.0"


def test_what_was_not_counted_is_named(measured: Any) -> None:
    _, bench = measured("resnet18")
    assert bench.warnings == [
        "left out, not multiply-adds (fvcore's counts): adaptive_avg_pool2d 25088, batch_norm 4967424",
        "not counted: aten::add_ ×8, aten::max_pool2d ×1, aten::relu_ ×17",
    ]


def test_a_model_is_counted_at_the_size_it_was_trained_for() -> None:
    from hpml_plugins.plugins.flops.models import image_size

    assert [image_size(name) for name in ("resnet50", "inception_v3", "efficientnet_b1")] == [224, 299, 240]


def test_an_unknown_model_is_refused_with_the_nearest_names(node: Node) -> None:
    with pytest.raises(HpmlError, match=r"no classifier 'resnet19'; did you mean resnet18"):
        FLOPS.measure(Bench(node, {}), model="resnet19")


def test_a_detection_model_is_no_classifier(node: Node) -> None:
    with pytest.raises(HpmlError, match="no classifier"):
        FLOPS.measure(Bench(node, {}), model="fasterrcnn_resnet50_fpn")


def test_a_count_that_torch_disagrees_with_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    true = benchmark.counted_by_torch
    monkeypatch.setattr(benchmark, "counted_by_torch", lambda *given: true(*given) + 2)
    with pytest.raises(CheckFailed, match="flop_counter"):
        FLOPS.measure(Bench(node, {}), model="alexnet")


def test_counting_is_quiet(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    FLOPS.measure(Bench(node, {}), model="alexnet")
    assert capfd.readouterr() == ("", "")
