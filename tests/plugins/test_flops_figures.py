"""What the plugin `flops` draws, from the real Record of VGG19."""

from __future__ import annotations

import msgspec
import pytest
from charted import picture
from records import a_record

from hpml_plugins import Bench, Node, Record
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.plugins.flops import FLOPS
from hpml_plugins.plugins.flops.charts import FIGURES, family, layers, models, operators

CHARTS = {figure.name: figure for figure in FIGURES}


@pytest.fixture(scope="module")
def vgg19() -> Record:
    """The Record of VGG19, as two machines would make it."""
    bench = Bench(Node("Linux", "x86_64", "CPU", 2, 1e9, "3.11"), {"model": "vgg19"})
    metrics = FLOPS.measure(bench, model="vgg19")
    return a_record(
        FLOPS, metrics, params=bench.params, machine="a", series=bench.collected.series
    )


def test_a_model_that_all_machines_count_alike_has_one_row(vgg19: Record) -> None:
    other = msgspec.structs.replace(vgg19, machine="b")
    odd = msgspec.structs.replace(
        vgg19,
        machine="c",
        metrics={**vgg19.metrics, "bytes": MetricSamples("B", "lower", [1.0])},
    )
    rows = list(models([vgg19, other, odd]).rows())
    assert [row["counted_on"] for row in rows] == ["a, b", "c"]
    # 2 · 19,632,062,464 FLOP over 825.5 MB
    assert rows[0]["intensity"] == pytest.approx(47.57, abs=0.01)
    assert models([]).columns == {}


def test_the_exercises_model_is_shown_layer_by_layer_and_by_operator(vgg19: Record) -> None:
    rows = list(layers([vgg19, vgg19]).rows())
    assert [row["type"] for row in rows] == ["Conv2d"] * 16 + ["Linear"] * 3
    # features.0: 64 · 224 · 224 results of 3 · 3 · 3 multiply-adds each
    assert rows[0]["multiply_adds"] == 64 * 224 * 224 * 27
    assert sum(float(str(row["share"])) for row in rows) == pytest.approx(1)
    other = msgspec.structs.replace(vgg19, params={"model": "resnet50"})
    assert len(layers([other])) == 0
    found = {row["operator"]: row for row in operators([vgg19]).rows()}
    assert (found["conv"]["calls"], found["conv"]["counted"]) == (16, "multiply-adds")
    assert found["conv"]["share"] == pytest.approx(0.9937, abs=5e-5)
    assert found["relu_"]["counted"] == "no"


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


def test_the_largest_model_of_a_family_bears_its_name(vgg19: Record) -> None:
    small = msgspec.structs.replace(
        vgg19,
        params={"model": "vgg11"},
        metrics={**vgg19.metrics, "parameters": MetricSamples("1", "lower", [1e6])},
    )
    drawn = picture(CHARTS["models"], [vgg19, small])
    assert len(drawn.marks["point"]) == 2
    assert any(
        "multiply-adds per input: 19632062464" in point for point in drawn.marks["point"]
    )
    names = [mark for mark in drawn.marks["text mark"] if not mark.endswith("label: ")]
    assert len(names) == 1
    assert "label: vgg" in names[0]


def test_layers_are_rows_with_their_multiply_adds_and_parameters(vgg19: Record) -> None:
    drawn = picture(CHARTS["layers"], [vgg19])
    assert len([text for text in drawn.texts if text.startswith("vgg19, ")]) == 19
    assert len(drawn.marks["point"]) == 2 * 19
    table = layers([vgg19])
    by_type = {
        kind: sum(row["multiply_adds"] for row in rows)
        for (kind,), rows in table.groups("type").items()
    }
    assert by_type == {"Conv2d": 19_508_428_800, "Linear": 123_633_664}
    assert sum(table.columns["parameters"]) == 143_667_240
