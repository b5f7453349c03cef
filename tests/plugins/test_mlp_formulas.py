"""The formulas of `mlp` by hand, the coursework's own numbers among them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpml_plugins import HpmlError, published_figures
from hpml_plugins.plugins.mlp import charts as tables
from hpml_plugins.plugins.mlp.formulas import (
    IMAGES,
    LAUNCHING,
    ORDER,
    PRODUCTS,
    Job,
    leave_one_out,
    on_curve,
    on_line,
    sum_of_phases,
)
from hpml_plugins.plugins.mlp.model import OF_GRADIENTS, Point, predict_by_neighbours
from hpml_plugins.plugins.mlp.overlap import predict_batch
from hpml_plugins.plugins.mlp.split import predict_both

#: The coursework document's: 784 – 512 – 10, 3000 images over two processes.
PUBLISHED = Job(512, 3000, 2, way="mpi")


def roofline(
    intensity: float, flops: float, pci: float, mpi: float, share: float = 0.5
) -> float:
    """FLOP/s at this arithmetic intensity, as the chart draws it: AI / (AI / P_flops + s / P_pci +
    (1 − s) / P_mpi)."""
    return intensity / (intensity / flops + share / pci + (1 - share) / mpi)


def test_parameters_and_flops_by_hand() -> None:
    # W1 512 · 784, b1 512, W2 10 · 512, b2 10.
    assert PUBLISHED.parameters == 401_408 + 512 + 5_120 + 10 == 407_050
    tiny = Job(2, 5, inputs=3, classes=4)
    # For 5 images: 5 · 2 · 3 multiply-adds in the first layer, 5 · 2 · 4 in the second; 2 FLOP
    # each.
    assert {name: tiny.work[name] for name in PRODUCTS} == {
        "forward GEMM 1": 60,
        "forward GEMM 2": 80,
        "backward GEMM 1": 80,
        "backward GEMM 2": 80,
        "backward GEMM 3": 60,
    }
    # Both of the forward pass, first and third of the backward pass.
    assert tiny.counted_flops == 60 + 80 + 80 + 60 == 4 * 5 * 2 * (3 + 4)


def test_bytes_by_hand() -> None:
    # There and back, float32.
    assert PUBLISHED.copied_bytes == 2 * 407_050 * 4 == 3_256_400
    # Between two, as the coursework counts: b there, b back.
    assert PUBLISHED.reduced_bytes == 3_256_400
    # Four in a ring: 2 · 3 / 4 of the vector sent and as much received.
    assert replace(PUBLISHED, ranks=4).reduced_bytes == 2 * 2 * 3 / 4 * 407_050 * 4
    assert replace(PUBLISHED, ranks=1).reduced_bytes == 0
    assert PUBLISHED.work[IMAGES] == 1500 * 794 * 4
    assert PUBLISHED.images == 1500
    with pytest.raises(
        HpmlError, match="a batch of 10 cannot be shared out evenly over 4 ranks"
    ):
        Job(512, 10, 4)


def test_the_coursework_s_throughputs_follow_from_its_own_times() -> None:
    """What it publishes, by its formulas from the medians that it publishes."""
    told = {figure.quantity: figure.value for figure in published_figures("mpi_network")}
    times = dict.fromkeys((*ORDER, LAUNCHING), 0.0)
    times |= {phase: told[quantity] for phase, quantity in tables.PUBLISHED_PHASES.items()}
    rates = PUBLISHED.rates(times)
    # 4 · 1500 · 512 · 794 FLOP in 470.879 + 100.112 + 234.144 + 688.815 µs.
    assert rates["flops"] == pytest.approx(2_439_168_000 / 1493.95e-6, rel=1e-6)
    assert rates["flops"] == pytest.approx(told["compute"], rel=1e-4)
    assert rates["pci"] == pytest.approx(told["pcie"], rel=1e-4)
    assert rates["mpi"] == pytest.approx(told["mpi"], rel=1e-4)


def test_the_roofline_is_flop_over_the_seconds_of_a_batch() -> None:
    # 2,439,168,000 FLOP by 4 · 407,050 · 4 B.
    assert PUBLISHED.intensity == pytest.approx(2_439_168_000 / 6_512_800)
    seconds = PUBLISHED.roofline_seconds(flops=1e12, pci=10e9, mpi=5e9)
    assert seconds == pytest.approx(2.439168e-3 + 3_256_400 / 10e9 + 3_256_400 / 5e9)
    assert roofline(PUBLISHED.intensity, 1e12, 10e9, 5e9) == pytest.approx(
        2_439_168_000 / seconds
    )
    # Far right only computing is left, far left only passing on: AI · 2 / (1 / 10e9 + 1 / 5e9).
    assert roofline(1e12, 1e12, 10e9, 5e9) == pytest.approx(1e12, rel=1e-3)
    assert roofline(1e-3, 1e12, 10e9, 5e9) == pytest.approx(1e-3 * 20e9 / 3, rel=1e-3)
    # Of four ranks, 750 images each: 1,219,584,000 FLOP, 3,256,400 B copied and 4 · 3 / 4 · 407,050
    # · 4 B = 4,884,600 in the ring: 0.4 and 0.6 of all.
    four = replace(PUBLISHED, ranks=4)
    assert (
        four.copied_share
        == pytest.approx(3_256_400 / (3_256_400 + 4_884_600))
        == pytest.approx(0.4)
    )
    seconds = four.roofline_seconds(flops=1e12, pci=10e9, mpi=5e9)
    assert seconds == pytest.approx(1.219584e-3 + 0.32564e-3 + 0.97692e-3)
    assert roofline(four.intensity, 1e12, 10e9, 5e9, four.copied_share) == pytest.approx(
        1_219_584_000 / seconds
    )
    assert [replace(PUBLISHED, ranks=ranks).copied_share for ranks in (1, 2)] == [1, 0.5]
    assert replace(PUBLISHED, ranks=8, batch=3200).copied_share == pytest.approx(
        8 / (3 * 8 - 2)
    )
    # One rank adds nothing up.
    alone = Job(512, 1500)
    assert alone.roofline_seconds(flops=1e12, pci=10e9, mpi=5e9) == pytest.approx(
        2.439168e-3 + 3_256_400 / 10e9
    )


def test_more_images_raise_the_intensity_and_more_hidden_hardly_do() -> None:
    assert replace(PUBLISHED, batch=12000).intensity == pytest.approx(
        4 * PUBLISHED.intensity
    )
    assert replace(PUBLISHED, hidden=2048).intensity == pytest.approx(
        PUBLISHED.intensity, rel=1e-4
    )


def test_a_pipeline_by_hand() -> None:
    # Four and two seconds in two pieces: 2 + 1 s, and the longest stage's other 2 s.
    times = a_batch() | {"backward GEMM 3": 4.0, "all-reduce": 2.0}
    assert predict_batch(times, 2, ahead=False) == 5
    assert predict_batch(times, 1, ahead=False) == 6
    assert predict_batch(times, 1000, ahead=False) == pytest.approx(4, rel=1e-3)


def test_model_parallel_passes_on_outputs_and_not_weights() -> None:
    # 3000 images' ten outputs, float32, in proportion to the weights.
    share = 3000 * 10 / PUBLISHED.parameters
    assert share * PUBLISHED.reduced_bytes == pytest.approx(2 * 3000 * 10 * 4)
    assert share * PUBLISHED.copied_bytes == pytest.approx(240_000)
    assert share * replace(PUBLISHED, ranks=4).reduced_bytes == pytest.approx(3 * 120_000)


def a_batch(**taken: float) -> dict[str, float]:
    return {
        **dict.fromkeys((*ORDER, LAUNCHING), 0.0),
        **{name.replace("_", " "): s for name, s in taken.items()},
    }


def test_gains_are_predicted_from_phases_by_hand() -> None:
    times = a_batch(step=1.0)
    times |= {
        "copying images host to device": 10.0,
        "backward GEMM 3": 8.0,
        "device to host": 8.0,
        "all-reduce": 16.0,
    }
    times |= {"host to device": 8.0, "forward GEMM 1": 9.0}
    assert predict_batch(times, 1, ahead=False) == 60
    # Stages of 8, 8, 16 and 8: 40 / 8 + 7 · 16 / 8 = 19 instead of 40.
    assert predict_batch(times, 8, ahead=False) == 39
    assert predict_batch(times, 1, ahead=True) == 50
    assert predict_batch(times, 8, ahead=True) == 29
    data, model = predict_both(PUBLISHED, times)
    assert data == 50
    # Computing 17; 240,000 B of 3,256,400 that are copied in 16 s, and as many reduced in 16 s;
    # half of the step.
    assert model == pytest.approx(
        17 + 16 * 240_000 / 3_256_400 + 16 * 240_000 / 3_256_400 + 0.5
    )


def test_phases_add_up_and_a_gpu_waits_for_its_launches() -> None:
    times = a_batch(step=1.0)
    times |= {"forward GEMM 1": 3.0, LAUNCHING: 5.0}
    assert sum_of_phases(times, on_gpu=False) == 4
    # five seconds of launching hide the product's three
    assert sum_of_phases(times, on_gpu=True) == 6
    times[LAUNCHING] = 2.0
    assert sum_of_phases(times, on_gpu=True) == 4


def test_a_line_is_found_again_and_never_bends_below_zero() -> None:
    works = [1.0, 10.0, 100.0]
    seconds = [2 + work / 4 for work in works]
    assert on_line(works, seconds, 0) == pytest.approx(2)
    assert on_line(works, seconds, 40) == pytest.approx(12)
    # Time that does not grow with work has a latency and nothing else: of 2 and 2, 2.
    assert [on_line([1, 2], [2, 2], work) for work in (0, 1e6)] == pytest.approx([2, 2])
    # Through (1, 1) and (2, 4) it would begin at −2: it begins at 0, and slope s leaves (s − 1)² +
    # (s / 2 − 1)².
    assert on_line([1, 2], [1, 4], 1) == pytest.approx(1.2)
    # Constant works: what is least in relative squares of 1 and 3 is (1 + 1/3) / (1 + 1/9).
    assert on_line([0, 0], [1, 3], 0) == pytest.approx(1.2)
    with pytest.raises(HpmlError, match="through 1 point"):
        on_line([1], [1], 1)


def test_a_point_is_predicted_by_the_others_alone() -> None:
    works = [{"a": float(work)} for work in (1, 2, 3, 4)]
    seconds = [{"a": 1.0 + work["a"]} for work in works]
    seconds[3] = {"a": 100.0}
    predicted = leave_one_out(works, seconds, on_line)
    assert predicted[3]["a"] == pytest.approx(5)  # by 2, 3, 4 s
    assert predicted[0]["a"] != pytest.approx(2)  # the wild one was among its others


def test_a_curve_runs_through_its_neighbours_by_hand() -> None:
    # Ten times the work in ten times as long, then in three times as long: over logarithms, half
    # way is the root.
    works, seconds = [1.0, 10.0, 100.0], [1.0, 10.0, 30.0]
    assert on_curve(works, seconds, 10.0) == pytest.approx(10)
    assert on_curve(works, seconds, 10**0.5) == pytest.approx(10**0.5)
    assert on_curve(works, seconds, 10**1.5) == pytest.approx(300**0.5)
    # Beyond the end: three times as long for ten times the work.
    assert on_curve(works, seconds, 1000.0) == pytest.approx(90)
    assert on_curve(works, seconds, 0.1) == pytest.approx(0.1)
    # No slower than work grows, and never faster than less of it.
    assert on_curve([1.0, 10.0], [1.0, 1000.0], 100.0) == pytest.approx(10_000)
    assert on_curve([1.0, 10.0], [5.0, 1.0], 100.0) == pytest.approx(1)
    # Two times of one work: their geometric mean. What is always the same work: that.
    assert on_curve([1.0, 1.0], [1.0, 4.0], 1.0) == pytest.approx(2)
    assert on_curve([0.0, 0.0], [1.0, 4.0], 0.0) == pytest.approx(2)
    with pytest.raises(HpmlError, match="no time was measured"):
        on_curve([], [], 1.0)


def test_phases_on_the_host_are_predicted_by_points_that_differ_in_one_thing() -> None:
    def point(hidden: int, batch: int, images: float, gradients: float) -> Point:
        return {
            "hidden": hidden,
            "batch": batch,
            IMAGES: images,
            **dict.fromkeys(OF_GRADIENTS, gradients),
        }

    points = [
        point(128, 800, 1.0, 10.0),
        point(512, 800, 7.0, 20.0),
        point(2048, 800, 4.0, 30.0),
        point(512, 3200, 9.0, 50.0),
        point(512, 6400, 9.0, 80.0),
    ]
    # 512 is halfway between 128 and 2048 on a logarithmic axis: the geometric mean of 1 and 4,
    # whatever it took itself. Beyond the smallest batch, gradients take what the next one's take.
    assert predict_by_neighbours(points, 1) == pytest.approx(
        {IMAGES: 2.0, **dict.fromkeys(OF_GRADIENTS, 50.0)}
    )
    # 3200 is two thirds of the way from 800 to 6400, as logarithms go: 20 + 2 / 3 (80 − 20). No
    # other has this batch.
    assert predict_by_neighbours(points, 3) == pytest.approx(
        dict.fromkeys(OF_GRADIENTS, 60.0)
    )
    # Beyond the end times of images do not fall: 512 took 7 and 2048 less. No other batch has 128
    # hidden units.
    assert predict_by_neighbours(points, 0) == pytest.approx({IMAGES: 7.0})
