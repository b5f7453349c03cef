"""What the plugin `flops` draws, from the real Record of VGG19."""

from __future__ import annotations

import msgspec
import pytest

from hpml_plugins import Bench, Node, Record
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.plugins.flops import FLOPS
from hpml_plugins.plugins.flops.figures import (
    draw_layers,
    draw_models,
    family,
    layers_table,
    models_table,
    operators_table,
)

matplotlib = pytest.importorskip("matplotlib.figure")


@pytest.fixture(scope="module")
def vgg19() -> Record:
    """The Record of VGG19, as two machines would make it."""
    bench = Bench(Node("Linux", "x86_64", "CPU", 2, 1e9, "3.11"), {"model": "vgg19"})
    metrics = FLOPS.measure(bench, model="vgg19")
    return Record(
        benchmark="flops", plugin="flops", version="2", params=bench.params, status="ok", machine="a",
        metrics={name: MetricSamples("1", "lower", [value]) for name, value in metrics.items()}, series=bench.attached,
    )  # fmt: skip


def test_a_model_that_all_machines_count_alike_has_one_row(vgg19: Record) -> None:
    other = msgspec.structs.replace(vgg19, machine="b")
    odd = msgspec.structs.replace(
        vgg19, machine="c", metrics={**vgg19.metrics, "bytes": MetricSamples("B", "lower", [1.0])}
    )
    rows = list(models_table([vgg19, other, odd]).rows())
    assert [row["counted_on"] for row in rows] == ["a, b", "c"]
    # 2 · 19,632,062,464 FLOP over 825.5 MB
    assert rows[0]["intensity"] == pytest.approx(47.57, abs=0.01)
    assert models_table([]).columns == {}


def test_the_exercises_model_is_shown_layer_by_layer_and_by_operator(vgg19: Record) -> None:
    layers = list(layers_table([vgg19, vgg19]).rows())
    assert [row["type"] for row in layers] == ["Conv2d"] * 16 + ["Linear"] * 3
    # features.0: 64 · 224 · 224 results of 3 · 3 · 3 multiply-adds each
    assert layers[0]["multiply_adds"] == 64 * 224 * 224 * 27
    assert sum(float(str(row["share"])) for row in layers) == pytest.approx(1)
    other = msgspec.structs.replace(vgg19, params={"model": "resnet50"})
    assert len(layers_table([other])) == 0
    operators = {row["operator"]: row for row in operators_table([vgg19]).rows()}
    assert (operators["conv"]["calls"], operators["conv"]["counted"]) == (16, "multiply-adds")
    assert operators["conv"]["share"] == pytest.approx(0.9937, abs=5e-5)
    assert operators["relu_"]["counted"] == "no"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("vgg16_bn", "vgg"),
        ("resnext50_32x4d", "resnext"),
        ("wide_resnet50_2", "wide"),
        ("my.models:net", "my.models:net"),
    ],
)
def test_models_are_shown_by_family(model: str, name: str) -> None:
    assert family(model) == name


def test_a_few_models_bear_their_names(vgg19: Record) -> None:
    sheet = matplotlib.Figure(layout="constrained")
    draw_models(sheet, models_table([vgg19]))
    (axes,) = sheet.axes
    assert [text.get_text() for text in axes.texts] == ["vgg19"]
    assert list(axes.get_lines()[0].get_xdata()) == [19_632_062_464]


def test_layers_are_rows_with_their_multiply_adds_and_parameters(vgg19: Record) -> None:
    sheet = matplotlib.Figure(layout="constrained")
    draw_layers(sheet, layers_table([vgg19]))
    counts, parameters = sheet.axes
    assert len(counts.get_yticklabels()) == 19
    convolutions, linear = counts.get_lines()
    assert sum(convolutions.get_xdata()) == 19_508_428_800
    assert sum(linear.get_xdata()) == 123_633_664
    assert sum(sum(marks.get_xdata()) for marks in parameters.get_lines()) == 143_667_240
