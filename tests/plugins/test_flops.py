"""The plugin `flops`: counts held against hand arithmetic, against torch's own counter and against
torchvision."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pluggy
import pytest

from hpml_plugins import Bench, HpmlError, Node, hookspecs
from hpml_plugins.plugins import flops
from hpml_plugins.plugins.flops import FLOPS
from hpml_plugins.testing import Context, measure_point
from hpml_plugins.workloads.complexity import counting
from hpml_plugins.workloads.complexity import models as zoo

SIX = ["alexnet", "vgg16", "vgg19", "googlenet", "resnet18", "resnet50"]
#: A transformer, an einsum, another image size, an auxiliary classifier: each took a decision of
#: its own.
UNUSUAL = ["vit_b_16", "maxvit_t", "efficientnet_b1", "inception_v3"]

# VGG's convolutions, all 3 × 3 with padding 1: output side, channels in, channels out, and how many
# in VGG19. The multiply-adds of each, side² · in · out · 9:
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
# 102,760,448 + 16,777,216 + 4,096,000 = 123,633,664
VGG19_LINEAR = [(25_088, 4096), (4096, 4096), (4096, 1000)]


@pytest.fixture(scope="module")
def measured() -> Any:
    """`measured(name)`: what `flops` gave for a model and the bench that it used, each measured
    once."""
    known: dict[str, tuple[dict[str, float], Bench]] = {}

    def measure(model: str) -> tuple[dict[str, float], Bench]:
        if model not in known:
            node = Node(os="", arch="", cpu="", num_cpu=1, ram=0, python="3")
            bench = Bench(node, {"model": model})
            known[model] = dict(FLOPS.measure(bench, model=model)), bench
        return known[model]

    return measure


def rows_of(bench: Bench, series: str, key: str) -> dict[Any, dict[str, Any]]:
    """The rows of a series by one of its columns."""
    columns = bench.collected.series[series].columns
    names = [name for name in columns if name != key]
    return {
        row: dict(zip(names, cells, strict=True))
        for row, *cells in zip(
            columns[key], *(columns[name] for name in names), strict=True
        )
    }


def test_the_hook_offers_flops() -> None:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(flops)
    assert [
        [item.name for item in offered] for offered in manager.hook.hpml_benchmarks()
    ] == [["flops"]]


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.flops;"
        "print(*{'torch', 'torchvision', 'fvcore', 'numpy', 'numba'} & set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


def convolution_multiply_adds(
    out_channels: int, height: int, width: int, in_channels: int, kernel: int
) -> int:
    """Of one image. Source: torch/utils/flop_counter.py, conv_flop_count: a dot product per
    output."""
    return out_channels * height * width * in_channels * kernel**2


def linear_multiply_adds(in_features: int, out_features: int) -> int:
    """Of one vector."""
    return in_features * out_features


def test_the_grid_is_every_classifier_of_torchvision() -> None:
    from torchvision import models

    assert list(FLOPS.grid["model"]) == models.list_models(module=models)
    assert len(FLOPS.grid["model"]) == 80


def test_vgg19_by_hand_is_19_632_g_and_99_37_percent_convolutions(measured: Any) -> None:
    convolutions = sum(
        times * convolution_multiply_adds(c_out, side, side, c_in, 3)
        for side, c_in, c_out, times in VGG19_CONVOLUTIONS
    )
    linear = sum(linear_multiply_adds(*features) for features in VGG19_LINEAR)
    assert (convolutions, linear) == (19_508_428_800, 123_633_664)
    values, _ = measured("vgg19")
    assert values["multiply_adds"] == convolutions + linear == 19_632_062_464
    assert values["convolution_share"] == pytest.approx(0.9937, abs=5e-5)


def test_alexnet_by_hand(measured: Any) -> None:
    by_hand = [
        convolution_multiply_adds(64, 55, 55, 3, 11),  # 64 · 55² · 3 · 121 = 70,276,800
        convolution_multiply_adds(192, 27, 27, 64, 5),  # 192 · 27² · 64 · 25 = 223,948,800
        convolution_multiply_adds(384, 13, 13, 192, 3),  # 384 · 13² · 192 · 9 = 112,140,288
        convolution_multiply_adds(256, 13, 13, 384, 3),  # 256 · 13² · 384 · 9 = 149,520,384
        convolution_multiply_adds(256, 13, 13, 256, 3),  # 256 · 13² · 256 · 9 = 99,680,256
        linear_multiply_adds(9216, 4096),  # 37,748,736
        linear_multiply_adds(4096, 4096),  # 16,777,216
        linear_multiply_adds(4096, 1000),  # 4,096,000
    ]
    values, bench = measured("alexnet")
    assert by_hand == [
        70276800,
        223948800,
        112140288,
        149520384,
        99680256,
        37748736,
        16777216,
        4096000,
    ]
    assert [
        number
        for number in bench.collected.series["layers"].columns["multiply_adds"]
        if number
    ] == by_hand
    assert values["multiply_adds"] == sum(by_hand) == 714_188_480


@pytest.mark.parametrize("model", SIX)
def test_flops_are_twice_the_multiply_adds(model: str, measured: Any) -> None:
    values, _ = measured(model)
    assert values["flops"] == 2 * values["multiply_adds"]


@pytest.mark.parametrize("model", SIX)
def test_the_count_is_exactly_that_of_torchs_own_counter(model: str, measured: Any) -> None:
    """No tolerance: both count convolutions and linear layers without their bias, and nothing else
    here."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from torchvision import models

    without = {"aux_logits": False, "init_weights": False} if model == "googlenet" else {}
    with torch.device("meta"):
        network, image = (
            models.get_model(model, **without).eval(),
            torch.empty(1, 3, 224, 224),
        )
    with FlopCounterMode(display=False) as counter:
        network(image)
    assert measured(model)[0]["flops"] == counter.get_total_flops()


@pytest.mark.parametrize("model", [*SIX, *UNUSUAL])
def test_the_count_is_what_torchvision_publishes(model: str, measured: Any) -> None:
    from torchvision import models

    weights = models.get_model_weights(model).IMAGENET1K_V1
    assert measured(model)[0]["multiply_adds"] == pytest.approx(
        weights.meta["_ops"] * 1e9, rel=0.01
    )


@pytest.mark.parametrize("model", [*SIX, "vit_b_16", "maxvit_t", "efficientnet_b1"])
def test_the_parameters_are_what_torchvision_publishes(model: str, measured: Any) -> None:
    """inception_v3 is not here: torchvision publishes it with its auxiliary classifier."""
    from torchvision import models

    assert (
        measured(model)[0]["parameters"]
        == models.get_model_weights(model).IMAGENET1K_V1.meta["num_params"]
    )


@pytest.mark.parametrize("model", SIX)
def test_the_layers_add_up_to_the_model(model: str, measured: Any) -> None:
    values, bench = measured(model)
    layers = bench.collected.series["layers"].columns
    assert sum(layers["multiply_adds"]) == values["multiply_adds"]
    assert sum(layers["parameters"]) == values["parameters"]


def test_bytes_and_activations_of_a_linear_and_a_convolution_layer_by_hand(
    measured: Any,
) -> None:
    _, bench = measured("alexnet")
    rows = rows_of(bench, "layers", "layer")
    # classifier.6: 4096 in, 1000 out; read 4096 + 4096 · 1000 + 1000 numbers, write 1000: 4,102,096
    # · 4 B
    assert rows["classifier.6"] == {
        "type": "Linear",
        "multiply_adds": 4_096_000,
        "flops": 8_192_000,
        "activations": 1000,
        "activation_bytes": 4000,
        "bytes": 16_408_384,
        "parameters": 4_097_000,
    }
    # features.0: read 3 · 224² + 64 · 3 · 11² + 64 = 173,824 numbers, write 64 · 55² = 193,600:
    # 367,424 · 4 B
    assert rows["features.0"]["activations"] == 193_600
    assert rows["features.0"]["bytes"] == 1_469_696
    # in place: 193,600 numbers read and written, and no new memory
    assert (rows["features.1"]["bytes"], rows["features.1"]["activations"]) == (
        1_548_800,
        0,
    )


@pytest.mark.parametrize("model", [*SIX, "vit_b_16", "swin_t"])
def test_layers_and_operators_add_up_to_the_same(model: str, measured: Any) -> None:
    values, bench = measured(model)
    for name in ("layers", "operators"):
        columns = bench.collected.series[name].columns
        for metric in (
            "multiply_adds",
            "flops",
            "activations",
            "activation_bytes",
            "bytes",
        ):
            assert sum(columns[metric]) == values[metric], (name, metric)
        assert set(bench.collected.series[name].units) < set(columns)


def test_a_transformer_by_hand(measured: Any) -> None:
    values, bench = measured("vit_b_16")
    # patches 196 · 768 · 3 · 16² = 115,605,504; twelve blocks of 197 rows: QKV 768 · 2304, output
    # 768 · 768, MLP twice 768 · 3072: 197 · 7,077,888 = 1,394,343,936, and attention 59,610,624;
    # head 768,000
    by_hand = 115_605_504 + 12 * (1_394_343_936 + 59_610_624) + 768_000
    assert values["multiply_adds"] == by_hand == 17_563_828_224
    operators = rows_of(bench, "operators", "operator")
    assert operators["scaled_dot_product_attention"]["multiply_adds"] == 12 * 59_610_624
    assert operators["scaled_dot_product_attention"]["calls"] == 12
    assert (operators["gelu"]["counted"], operators["layer_norm"]["counted"]) == (
        "no",
        "apart",
    )


def test_what_was_not_counted_is_named(measured: Any) -> None:
    _, bench = measured("resnet18")
    assert bench.collected.warnings == [
        ("not counted as multiply-adds: adaptive_avg_pool2d 25088, batch_norm 4967424"),
        "not counted: add_ ×8, max_pool2d ×1, relu_ ×17",
    ]


def test_another_size_of_image_is_counted_at_that_size(measured: Any) -> None:
    usual, large = measured("resnet18")[0], measured("resnet18@3x448x448")[0]
    # 448 / 224 = 2 a side: the convolutions' work is 4 times that, the linear layer's the same
    assert large["multiply_adds"] == 4 * (usual["multiply_adds"] - 512_000) + 512_000


@pytest.mark.slow
def test_all_eighty_agree_with_torchvision_within_one_percent(measured: Any) -> None:
    """Or within half of the last decimal that torchvision gives, which for shufflenet_v2_x0_5 is
    more than 1 %."""
    from torchvision import models

    counted = {model: measured(model)[0] for model in FLOPS.grid["model"]}
    apart = {}
    for model, values in counted.items():
        for weights in models.get_model_weights(model):
            if weights.transforms().crop_size[0] == zoo.image_size(model):
                published = weights.meta["_ops"] * 1e9
                if abs(values["multiply_adds"] - published) > max(0.01 * published, 0.5e6):
                    apart[weights] = values["multiply_adds"] / published
                with_auxiliary = model in zoo.AUXILIARY and model != "googlenet"
                assert (
                    with_auxiliary or values["parameters"] == weights.meta["num_params"]
                ), weights
    assert apart == {}
    assert len(counted) == 80
    assert not any(
        "publishes" in warning
        for model in counted
        for warning in measured(model)[1].collected.warnings
    )


@pytest.mark.slow
def test_the_large_images_agree_with_torchvision_too(measured: Any) -> None:
    """The weights SWAG E2E were trained at 384 px; a ViT is built for its size, a RegNet takes
    any."""
    for model, published in (
        ("regnet_y_16gf", 46.735e9),
        ("regnet_y_32gf", 94.826e9),
        ("regnet_y_128gf", 374.57e9),
    ):
        assert measured(f"{model}@3x384x384")[0]["multiply_adds"] == pytest.approx(
            published, rel=0.01
        )


def test_an_unknown_model_is_refused_with_the_nearest_names(node: Node) -> None:
    with pytest.raises(
        HpmlError, match=r"no classifier 'resnet19'; did you mean 'resnet18'"
    ):
        FLOPS.measure(Bench(node, {}), model="resnet19")


def test_a_detection_model_is_no_classifier(node: Node) -> None:
    with pytest.raises(HpmlError, match="no classifier"):
        FLOPS.measure(Bench(node, {}), model="fasterrcnn_resnet50_fpn")


def test_a_count_that_torch_disagrees_with_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = counting.count

    def two_more(*args: Any) -> Any:
        operations, torchs = true(*args)
        return operations, replace(torchs, flops=torchs.flops + 2)

    monkeypatch.setattr(counting, "count", two_more)
    with pytest.raises(HpmlError) as raised:
        FLOPS.measure(Bench(node, {}), model="alexnet")
    assert "counted 1,428,376,960 FLOP (conv 1,311,133,056, linear 117,243,904)" in str(
        raised.value
    )
    assert "torch's flop_counter 1,428,376,962 FLOP (aten::convolution" in str(raised.value)


def test_counting_is_quiet(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    FLOPS.measure(Bench(node, {}), model="alexnet")
    assert capfd.readouterr() == ("", "")


NETS = """
import torch
from torch import nn

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return torch.cumsum(Square.apply(self.fc(x)), -1)

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(100, 16), nn.Linear(16, 100, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens):
        return self.out(self.embedding(tokens))

class Signal(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv1d(2, 4, 3), nn.ConvTranspose1d(4, 2, 3)

    def forward(self, x):
        return self.up(self.down(x))

class Sizes(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        rows = x.shape[0] * x.shape[1] // 8
        return self.fc(x.reshape(rows, 8))

class Dictionary(nn.Module):
    def forward(self, x):
        return x["image"]

def raises():
    raise RuntimeError("no weights\\nhere")

def number():
    return 3
"""


@pytest.fixture
def nets(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of foreign models, importable by the name returned."""
    (tmp_path / "foreign_nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "foreign_nets"


def test_a_factorys_model_is_counted_and_what_has_no_formula_is_named(
    nets: str, measured: Any
) -> None:
    values, bench = measured(f"{nets}:Own@8")
    # 8 · 4; 32 + 4
    assert (values["multiply_adds"], values["parameters"], values["convolution_share"]) == (
        32,
        36,
        0,
    )
    assert bench.collected.warnings == ["not counted: cumsum ×1, prim::PythonOp.Square ×1"]


def test_a_model_of_tokens_with_shared_weights_is_counted(nets: str, measured: Any) -> None:
    values, bench = measured(f"{nets}:Tokens@int64:7")
    assert (values["multiply_adds"], values["parameters"]) == (7 * 16 * 100, 1600)
    # and not again at `out`
    assert rows_of(bench, "layers", "layer")["embedding"]["parameters"] == 1600
    # the linear layer: 7 · 16 in, 16 · 100 weights, 7 · 100 out, 4 B each
    assert rows_of(bench, "layers", "layer")["out"]["bytes"] == 4 * (112 + 1600 + 700)


def test_arithmetic_with_sizes_is_not_arithmetic_with_tensors(
    nets: str, measured: Any
) -> None:
    _, bench = measured(f"{nets}:Sizes@16")
    assert bench.collected.warnings == []
    assert bench.collected.series["operators"].columns["operator"] == ["linear"]


def test_one_dimensional_and_transposed_convolutions_are_counted(
    nets: str, measured: Any
) -> None:
    values, _ = measured(f"{nets}:Signal@2x10")
    # 10 → 8 long: 4 · 8 · 2 · 3 = 192; back, from 8 long: 8 · 4 · 2 · 3 = 192
    assert (values["multiply_adds"], values["convolution_share"]) == (384, 1)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("resnet19", "torchvision has no classifier 'resnet19'; did you mean 'resnet18'"),
        ("no such", "neither a torchvision name nor module:factory"),
        ("resnet18@3x", "neither a torchvision name nor module:factory"),
        (
            "absent_module:net",
            "model 'absent_module:net' cannot be found: ModuleNotFoundError",
        ),
        (
            "foreign_nets:absent",
            "model 'foreign_nets:absent' cannot be found: AttributeError",
        ),
        ("foreign_nets:raises", "the factory raised RuntimeError: no weights here"),
        ("foreign_nets:number", "the factory returned a int, not a torch.nn.Module"),
        (
            "foreign_nets:Dictionary",
            "model 'foreign_nets:Dictionary' cannot be traced on float32 1x3x224x224: ",
        ),
        ("foreign_nets:Own@9", "cannot be traced on float32 1x9: RuntimeError"),
        ("foreign_nets:Own@int65:9", "torch has no dtype 'int65'"),
        ("vit_b_16@3x100x100", "model 'vit_b_16' cannot be traced on float32 1x3x100x100"),
    ],
)
def test_a_model_that_cannot_be_counted_says_so_in_one_line(
    nets: str, model: str, reason: str, node: Node
) -> None:
    record = measure_point(FLOPS, {"model": model}, Context(node))
    assert (record.status, record.metrics) == ("failed", {})
    assert reason in record.reason
    assert "\n" not in record.reason
