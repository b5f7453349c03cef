"""Figures that others publish: complete, found by topic and subject, and consistent where they are
of one another."""

from __future__ import annotations

import pytest

from hpml_plugins import published_figures
from hpml_plugins.model.units import unit


def values(about: str, **subject: str | int) -> dict[str, float]:
    found = published_figures(about, **subject)
    assert len({figure.quantity for figure in found}) == len(found)
    return {figure.quantity: figure.value for figure in found}


def test_every_figure_has_a_source_a_topic_and_a_unit_that_exists() -> None:
    figures = published_figures()
    assert len(figures) > 80
    for figure in figures:
        assert figure.source and figure.about and figure.what
        unit(figure.unit)
    assert {figure.document for figure in figures} >= {
        "000",
        "001",
        "002",
        "003",
        "paleo",
        "mlperf",
    }


def test_figures_are_found_by_topic_quantity_and_subject() -> None:
    (intensity,) = published_figures(
        "roofline", "intensity", model="resnet18", gpu="V100 SXM2"
    )
    assert (intensity.value, intensity.unit, intensity.document) == (
        21.94526421,
        "FLOP/B",
        "001",
    )
    assert (
        published_figures("no such topic")
        == published_figures("roofline", model="vgg16")
        == []
    )


@pytest.mark.parametrize("gpu", ["V100 SXM2", "A100 SXM4 40 GB"])
@pytest.mark.parametrize("model", ["resnet18", "resnet50"])
def test_a_roofline_point_agrees_with_itself(model: str, gpu: str) -> None:
    point = values("roofline", model=model, gpu=gpu)
    assert point["intensity"] == pytest.approx(point["flop"] / point["bytes"], rel=1e-6)
    assert point["rate"] == pytest.approx(point["flop"] / point["time"], rel=1e-6)
    assert point["throughput"] == pytest.approx(point["bytes"] / point["time"], rel=1e-6)


@pytest.mark.parametrize("gpu", ["V100 SXM2", "A100 SXM4 40 GB"])
def test_a_ridge_point_is_peak_over_bandwidth(gpu: str) -> None:
    roof = values("roof", gpu=gpu)  # 15.7e12 / 900e9 = 17.44; 19.5e12 / 1555e9 = 12.54
    assert roof["ridge"] == pytest.approx(roof["peak"] / roof["bandwidth"], abs=5e-3)


def test_the_throughputs_of_the_mpi_network_follow_from_its_times() -> None:
    found = values("mpi_network", ranks=2)
    inputs, hidden, classes, batch = 784, 512, 10, 3000 // 2
    # four matrix products: 2 · 2 B'H(D + C) = 4 · 1500 · 512 · 794 = 2,439,168,000 FLOP in 1,493.95
    # µs
    flop = 4 * batch * hidden * (inputs + classes)
    products = ("forward_gemm_1", "forward_gemm_2", "backward_gemm_1", "backward_gemm_3")
    assert flop == 2_439_168_000
    assert found["compute"] == pytest.approx(
        flop / sum(found[f"{name}_time"] for name in products), rel=1e-4
    )
    # the gradients, there and back: 2 · 4 (HD + H + CH + C) = 2 · 4 · 407,050 = 3,256,400 B
    nbytes = 2 * 4 * (hidden * inputs + hidden + classes * hidden + classes)
    assert nbytes == 3_256_400
    copies = found["memcpy_host_to_device_time"] + found["memcpy_device_to_host_time"]
    assert found["pcie"] == pytest.approx(nbytes / copies, rel=1e-4)  # in 256.015 µs
    # in 409.599 µs
    assert found["mpi"] == pytest.approx(nbytes / found["allreduce_time"], rel=1e-4)


def test_ratios_and_speedups_follow_from_what_they_are_made_of() -> None:
    for model, gpus in (("resnet18", 1), ("resnet50", 1), ("resnet18", 2), ("resnet50", 2)):
        memory = values("memory", model=model, gpus=gpus)
        assert memory["ratio"] == pytest.approx(
            memory["used"] / memory["parameter_size"], rel=1e-3
        )
    for gpu in ("V100 SXM2", "A100 SXM4 40 GB"):
        work = values("flop_complexity", model="resnet50", gpu=gpu)
        assert work["ratio"] == pytest.approx(
            work["actual"] / work["theoretical"], rel=1e-6
        )
    one, two = (values("data_parallel", gpus=gpus, batch=64) for gpus in (1, 2))
    # 84.09 / 44.42 = 1.893
    assert two["speedup"] == pytest.approx(one["time"] / two["time"], abs=5e-3)
