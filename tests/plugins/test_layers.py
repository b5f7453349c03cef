"""The plugin `layers`: formulas by hand, steps held against float64, memory to the byte, and the
swap of VGG16."""

from __future__ import annotations

from typing import Any

import pytest
from charted import picture
from msgspec.structs import replace
from records import a_record

from hpml_plugins import Bench, HpmlError, Node, Record, Samples, Series
from hpml_plugins.measure import SamplingPlan, to_metrics
from hpml_plugins.node.needs import unmet
from hpml_plugins.plugins.layers import LAYERS_CPU, SWAP_CPU
from hpml_plugins.plugins.layers.charts import FIGURES, layers, swap
from hpml_plugins.plugins.layers.layers import flop, largest_bytes, measure_energy
from hpml_plugins.store import current_records
from hpml_plugins.testing import Context, measure_point

SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)


def test_flop_of_the_layers_by_hand() -> None:
    # 2 · 256 · 25,088 · 4,096
    assert flop("linear", 256, "forward") == 52_613_349_376
    # 2 · 128 · 224 · 224 · 3 · 9 = 346,816,512 an image; training does three such products
    assert flop("conv", 2, "forward") == 2 * 346_816_512
    assert flop("conv", 1, "training") == 3 * 346_816_512
    assert flop("relu", 256, "forward") == 0


def test_the_largest_tensor_by_hand() -> None:
    assert largest_bytes("conv", 256) == 256 * 128 * 224 * 224 * 4 == 6_576_668_672
    assert (
        largest_bytes("linear", 8) == 25_088 * 4_096 * 4
    )  # the weight, far more than eight rows
    assert largest_bytes("relu", 1) == 602_112


def test_an_unknown_layer_names_the_known_ones() -> None:
    from hpml_plugins.plugins.layers.steps import build

    with pytest.raises(
        HpmlError, match="no layer 'gelu'; use one of relu, maxpool, conv, linear"
    ):
        build("gelu", "cpu")


@pytest.mark.parametrize(
    ("layer", "most"), [("relu", 0.0), ("maxpool", 0.0), ("conv", 1e-5)]
)
def test_layers_agree_with_float64_and_their_input_is_left_alone(
    layer: str, most: float
) -> None:
    import torch

    from hpml_plugins.plugins.layers.steps import build, error_against_float64

    torch.manual_seed(0)
    values = torch.randn(3, 3, 224, 224)
    before = values.clone()
    assert error_against_float64(build(layer, "cpu"), values) <= most
    assert torch.equal(values, before)


def test_a_wrong_gradient_is_seen() -> None:
    import torch

    from hpml_plugins.plugins.layers.steps import error_against_float64

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: Any) -> Any:
            return values * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * (2 if gradient.dtype is torch.float64 else 2.2)

    class Doubling(torch.nn.Module):
        def forward(self, values: Any) -> Any:
            return Wrong.apply(values)

    assert error_against_float64(Doubling(), torch.randn(4, 5)) == pytest.approx(
        0.1, rel=1e-3
    )


def test_relu_in_place_trains_without_a_copy() -> None:
    import torch

    from hpml_plugins.plugins.layers.steps import step_of

    values = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    step = step_of(torch.nn.ReLU(inplace=True), values, "training")
    (gradient,) = step()
    assert values.tolist() == [[0.0, 2.0], [3.0, 0.0]]
    assert ((gradient != 0) == (values > 0)).all()


def test_an_unknown_mode_names_the_known_ones() -> None:
    import torch

    from hpml_plugins.plugins.layers.steps import step_of

    with pytest.raises(HpmlError, match="no mode 'backward'; use one of forward, training"):
        step_of(torch.nn.ReLU(), torch.ones(1), "backward")


def test_the_highest_of_a_running_sum() -> None:
    from hpml_plugins.plugins.layers.steps import highest_sum

    assert highest_sum([4, 4, -8, 6]) == 8
    assert highest_sum([-5, 3]) == 0
    assert highest_sum([]) == 0


def test_peak_memory_on_a_cpu_is_counted_to_the_byte() -> None:
    import torch

    from hpml_plugins.plugins.layers.steps import peak_memory

    values = torch.ones(1000)

    def step() -> Any:
        first = values + values  # 4000 B
        second = first * values  # 4000 B more
        del first
        return second[:500] + values[:500]  # 2000 B more, after 4000 were given back

    assert peak_memory(step, "cpu") == 8000


def test_a_layer_is_measured_on_the_cpu(node: Node) -> None:
    params: dict[str, Any] = {"layer": "maxpool", "mode": "forward", "batch": 8}
    bench = Bench(node, params, plan=SHORT)
    measured = LAYERS_CPU.measure(bench, **params)
    assert bench.collected.checks == ["output or gradients differ from float64"]
    # 8 · 3 · 112 · 112 results of 4 bytes, and as many places of 8 bytes
    assert measured["memory"] == 8 * 3 * 112 * 112 * 12
    assert "power" not in bench.collected.series


def test_a_layer_too_large_for_the_memory_is_skipped(node: Node) -> None:
    params: dict[str, Any] = {"layer": "conv", "mode": "training", "batch": 256}
    record = measure_point(LAYERS_CPU, params, Context(node))
    # 6 · 6,576,668,672 B = 36.75 GiB
    assert (record.status, record.reason) == (
        "skipped",
        "needs 37 GiB of memory, this node has 16",
    )


def test_putting_vgg16_in_order_changes_places_and_nothing_else() -> None:
    import torch
    from torchvision.models import vgg16

    from hpml_plugins.plugins.layers.steps import put_in_order

    with torch.device("meta"):
        network = vgg16(weights=None, init_weights=False)
    before = list(network.features)
    assert put_in_order(network, "swapped") == 5
    assert [type(layer).__name__ for layer in network.features][2:6] == [
        "Conv2d",
        "MaxPool2d",
        "ReLU",
        "Conv2d",
    ]
    assert sorted(map(id, network.features)) == sorted(map(id, before))
    assert put_in_order(network, "normal") == 5
    assert [type(layer) for layer in network.features] == [type(layer) for layer in before]


LARGE = "training with a batch of this size needs 8 cores"


@pytest.mark.parametrize(
    ("cores", "mode", "side", "reason"),
    [
        (2, "training", 32, ""),
        (2, "forward", 224, ""),
        (2, "training", 224, LARGE),
        (8, "training", 224, ""),
    ],
)
def test_training_with_the_course_s_batch_needs_eight_cores(
    node: Node, cores: int, mode: str, side: int, reason: str
) -> None:
    point = {"mode": mode, "inplace": False, "batch": 128, "side": side}
    assert unmet(SWAP_CPU, point, replace(node, num_cpu=cores)) == [reason] * bool(reason)


@pytest.mark.slow
def test_both_orders_of_vgg16_are_measured_in_one_point(node: Node) -> None:
    params: dict[str, Any] = {"mode": "forward", "inplace": True, "batch": 1, "side": 32}
    bench = Bench(node, params, plan=SHORT)
    measured = SWAP_CPU.measure(bench, **params)
    assert "the orders' outputs are not the same bit for bit" in bench.collected.checks
    metrics = to_metrics(SWAP_CPU, measured)
    # at least the first two convolutions' results, 64 · 32 · 32 numbers of 4 bytes each
    assert (
        min(metrics["memory"].value, metrics["swapped_memory"].value)
        >= 2 * 64 * 32 * 32 * 4
    )
    assert metrics["rate"].samples == [1 / seconds for seconds in metrics["time"].samples]
    assert (
        0.5 < metrics["speedup"].value < 2
    )  # neither order does anything like twice the work
    assert len(metrics["speedup"].samples) == 6


# Drawing


def record(
    benchmark: str, params: dict[str, Any], time: float, memory: float, **series: Series
) -> Record:
    metrics = {"time": time, "memory": memory}
    units = {"memory": "B"}
    return a_record(
        benchmark, metrics, units=units, params=params, machine="here", series=series
    )


def test_power_comes_from_the_series_and_is_not_known_without_them() -> None:
    watched = Series({"power": [100.0, 650.0], "memory_used": [1e9, 2e9]})
    counted = Series({"power": [600.0], "energy": [0.3]})
    on_gpu = {"layer": "relu", "mode": "forward", "batch": 256}
    table = layers(
        [
            record("layers_cuda", on_gpu, 1e-4, 0.0, power=counted, gpu0=watched),
            record("layers_cpu", on_gpu, 1e-2, 0.0),
        ]
    )
    assert table.columns["device"] == ["cuda", "cpu"]
    assert table.columns["power"] == [600.0, None]
    assert table.columns["highest_power"] == [650.0, None]
    assert table.columns["memory_in_use"] == [2e9, None]
    assert table.columns["time_per_input"] == pytest.approx([1e-4 / 256, 1e-2 / 256])
    drawn = picture(FIGURES[0], table)
    assert {"time per input", "memory per input", "power"} <= drawn.texts
    assert len(drawn.marks["point"]) == 2 + 2 + 1  # the second has no power


def swap_record(machine: str, speedups: list[float], memory: tuple[float, float]) -> Record:
    metrics = {
        "time": 3.0,
        "swapped_time": 2.0,
        "speedup": speedups,
        "memory": memory[:1],
        "swapped_memory": memory[1:],
    }
    params = {"mode": "forward", "inplace": False, "batch": 8, "side": 224}
    return a_record(SWAP_CPU, metrics, params=params, machine=machine)


def test_what_the_swap_saves_is_drawn_from_its_speedup() -> None:
    table = swap(
        [
            swap_record("here", [1.25, 2.0, 1.6], (400.0, 300.0)),
            swap_record("there", [0.8], (0.0, 0.0)),
        ]
    )
    assert table.columns["speedup"] == [1.6, 0.8]
    assert table.columns["ratio"] == [1.5, 1.5]  # 3 s over 2 s
    assert (table.columns["speedup_low"], table.columns["speedup_high"]) == (
        [1.25, None],
        [2.0, None],
    )
    assert table.columns["memory_ratio"] == [0.75, None]
    # 1 − 1 / 1.6 = 37.5 %, 1 − 1 / 0.8 = −25 %; from 1 − 1 / 1.25 = 20 % to 1 − 1 / 2 = 50 %
    assert table.columns["time_saved"] == pytest.approx([0.375, -0.25])
    assert (
        table.columns["time_saved_low"][0],
        table.columns["time_saved_high"][0],
    ) == pytest.approx((0.2, 0.5))
    assert table.columns["memory_saved"] == [0.25, None]
    drawn = picture(FIGURES[1], table).marks
    assert len(drawn["point"]) == 3
    assert any(
        "time saved: 0.2;" in whisker and "time_saved_high: 0.5" in whisker
        for whisker in drawn["rule mark"]
    )


def test_records_of_a_point_an_order_are_not_drawn() -> None:
    rest = {"mode": "forward", "inplace": False, "batch": 8, "side": 224}
    old = [
        record("swap_cpu", {"order": order, **rest}, 2.0, 400.0)
        for order in ("normal", "swapped")
    ]
    new = swap_record("here", [1.6], (400.0, 300.0))
    assert [
        each
        for each in current_records([*old, new], {})
        if each.version == SWAP_CPU.version
    ] == [new]
    assert len(swap(old)) == 0
    assert swap([*old, new]) == swap([new])


def test_the_energy_of_a_layer_comes_with_its_power_and_the_idle_part(
    gpu_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Samples.of([0.4, 0.5], "J", power=500.0, gross=0.6, calls=2000.0)
    monkeypatch.setattr(Bench, "energy", lambda bench, step: found)
    bench = Bench(gpu_node, {}, gpus=1)
    assert measure_energy(bench, lambda: None) == found
    assert bench.collected.series["power"].columns == {
        "power": [500.0],
        "energy": [0.6],
        "calls": [2000.0],
        "time": [2.4],
    }
    assert measure_energy(Bench(gpu_node, {}), lambda: None) is None  # on the CPU
