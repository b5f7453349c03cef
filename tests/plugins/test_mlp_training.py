"""The plugin `mlp` on the CPU: gradients against torch's, ranks over gloo and MPI, model parallel,
wrong results."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import unavailable

from hpml_plugins import Bench, Node, Rank, Record
from hpml_plugins.measure import SamplingPlan, why_no_mpi
from hpml_plugins.plugins.mlp import hpml_benchmarks, learning, model, reference
from hpml_plugins.plugins.mlp.formulas import ORDER, PRODUCTS, WAYS, Job
from hpml_plugins.testing import Context, import_before_fork, measure_point

SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)
BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}
SMALL = model.calibrated_first((32, 40), (16, 32), (40, 80))


@pytest.fixture(scope="module", autouse=True)
def libraries_are_loaded() -> None:
    import_before_fork(["torch", "numba"])


@pytest.fixture
def on_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "ON_CPU", SMALL)


def measured(name: str, node: Node, **params: Any) -> Record:
    return measure_point(BENCHMARKS[name], params, Context(node, plan=SHORT))


def test_the_reference_s_gradient_is_torch_s() -> None:
    import torch

    job = Job(5, 11, inputs=7, classes=3)
    weights = reference.first_weights(job, 1)
    images, labels = reference.random_batch(job, 2)
    own = reference.gradient(weights, images, reference.one_hot(labels, 3))
    tensors = [torch.from_numpy(weight).requires_grad_() for weight in weights]
    hidden = torch.sigmoid(torch.from_numpy(images) @ tensors[0].T + tensors[1])
    torch.nn.functional.cross_entropy(
        hidden @ tensors[2].T + tensors[3], torch.from_numpy(labels)
    ).backward()
    for found, wanted in zip(own, tensors, strict=True):
        assert found == pytest.approx(wanted.grad.numpy(), rel=1e-12, abs=1e-15)


def test_a_step_of_the_reference_by_hand() -> None:
    # One input, hidden and class apart: all weights 0, image 1. Hidden is ½, both outputs ½, the
    # label is the first.
    zeros = [np.zeros((1, 1)), np.zeros(1), np.zeros((2, 1)), np.zeros(2)]
    trained = reference.train(
        zeros, np.ones((1, 1)), np.array([0]), [slice(0, 1)], rate=1.0, reg=0.5
    )
    assert trained[3].tolist() == [0.5, -0.5]  # −(½ − 1), −½
    assert trained[2].tolist() == [[0.25], [-0.25]]  # times hidden
    assert trained[0].tolist() == [[0.0]]  # W2 was 0: nothing comes back
    # A weight of 2 decays by the rate times reg.
    decayed = reference.train(
        [zeros[0] + 2, *zeros[1:]], np.zeros((1, 1)), np.array([0]), [slice(0, 1)], 0.1, 0.5
    )
    assert decayed[0].tolist() == [[pytest.approx(2 * 0.95)]]


def test_batches_come_in_order_and_what_is_left_is_left_out() -> None:
    assert list(reference.in_batches(10, 4, epochs=2)) == [slice(0, 4), slice(4, 8)] * 2


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_data_parallel_over_gloo_is_checked_timed_and_taken_apart(
    ranks: int, node: Node
) -> None:
    params = {
        "way": "gloo",
        "hidden": 128,
        "batch": 800,
        "dtype": "float64",
        "product": "torch",
    }
    record = measured("mlp_phases_cpu", node, ranks=ranks, **params)
    assert (record.status, record.reason) == ("ok", "")
    assert "all ranks have the same weights" in record.checks
    assert record.value("error") < 2e-15  # float64: a few roundings
    phases = record.series["phases"]
    times = dict(zip(phases.columns["phase"], phases.numbers("time"), strict=True))
    assert all(times[name] > 0 for name in ORDER)
    assert record.value("compute") == pytest.approx(
        sum(times[name] for name in (*PRODUCTS, "element-wise"))
    )
    # 4 B' H (D + C) over the four products that count.
    counted = sum(times[name] for name in PRODUCTS if name != "backward GEMM 2")
    assert record.value("compute_rate") == pytest.approx(
        4 * 800 / ranks * 128 * 794 / counted
    )
    assert set(record.series["setup"].columns["part"]) >= {"imports", "train setup"}


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_over_mpi_weights_are_those_of_the_reference(ranks: int, node: Node) -> None:
    if reason := why_no_mpi():
        unavailable(reason)
    params = {
        "way": "mpi",
        "hidden": 128,
        "batch": 800,
        "dtype": "float32",
        "product": "torch",
    }
    record = measured("mlp_phases_cpu", node, ranks=ranks, **params)
    assert (record.status, record.reason) == ("ok", "")
    assert 0 < record.value("error") < 1e-6
    assert "MPI_Init" in record.series["setup"].columns["part"]
    assert record.series["rates"].numbers("mpi")[0] > 0


def test_without_mpirun_points_over_mpi_are_skipped_and_others_not(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    params = {
        "hidden": 128,
        "batch": 800,
        "dtype": "float32",
        "product": "torch",
        "ranks": 2,
    }
    record = measured("mlp_phases_cpu", node, way="mpi", **params)
    assert (record.status, record.reason) == (
        "skipped",
        "needs mpirun, which is not on this node (on Debian: apt-get install openmpi-bin)",
    )
    assert measured("mlp_phases_cpu", node, way="gloo", **params).status == "ok"


def test_gradients_that_are_not_added_up_give_no_number(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpml_plugins.plugins.mlp.exchange import OverHost

    # the ranks are forked: they see it
    monkeypatch.setattr(OverHost, "reduce", lambda exchange, vector: None)
    params = {
        "way": "gloo",
        "hidden": 128,
        "batch": 800,
        "dtype": "float32",
        "product": "torch",
        "ranks": 2,
    }
    record = measured("mlp_phases_cpu", node, **params)
    assert record.status == "failed"
    assert "gloo, torch's products: weights differ from NumPy's in float64" in record.reason
    assert record.metrics == {}


def test_the_grid_is_measured_and_predicted(node: Node, on_gloo: None) -> None:
    record = measured("mlp_model_cpu", node, ranks=2, way="gloo", product="torch")
    assert (record.status, record.reason) == ("ok", "")
    grid = record.series["grid"]
    # The calibrated point first: the rates are its own.
    assert (grid.numbers("hidden"), grid.numbers("batch")) == (
        [32, 16, 16, 32],
        [40, 40, 80, 80],
    )
    # 20 images on each of two ranks: 4 · 20 · 32 · 794 FLOP by 4 · (32 · 784 + 32 + 10 · 32 + 10) ·
    # 4 B.
    assert grid.numbers("flops")[0] == 4 * 20 * 32 * 794
    assert grid.numbers("intensity")[0] == pytest.approx(
        4 * 20 * 32 * 794 / (16 * (32 * 784 + 32 + 320 + 10))
    )
    errors = [
        abs(a / b - 1)
        for a, b in zip(grid.numbers("lines"), grid.numbers("whole"), strict=True)
    ]
    assert record.value("line_error") == pytest.approx(max(errors))
    # By the coursework's model the calibrated point takes what its counted phases took.
    taken = sum(
        grid.numbers(name)[0]
        for name in (*PRODUCTS, "device to host", "all-reduce", "host to device")
    )
    assert grid.numbers("roofline")[0] == pytest.approx(
        taken - grid.numbers("backward GEMM 2")[0]
    )


def test_gradients_in_pieces_give_the_same_weights(node: Node) -> None:
    record = measured(
        "mlp_overlap_cpu", node, ranks=2, way="gloo", hidden=128, batch=800, product="torch"
    )
    assert (record.status, record.reason) == ("ok", "")
    assert {
        "plain: weights differ from NumPy's in float64 by more than 1.2e-05",
        "pieces: weights differ from NumPy's in float64 by more than 1.2e-05",
    } <= set(record.checks)
    assert record.series["ways"].columns["variant"] == ["plain", "pieces"]
    times = record.series["ways"].numbers("time")
    assert record.value("gain") == pytest.approx(times[0] / times[1])


def add_up_in_pieces(rank: Rank) -> float:
    """The error of weights whose gradients went through the host in pieces, each waited for."""
    from hpml_plugins.plugins.mlp.training import Trainer

    job = Job(64, 80, 2, "float32", "torch", "gloo", waiting=True)
    trainer = Trainer(rank, job)
    return trainer.check(lambda: trainer.batch(8), "waiting")


@pytest.mark.slow
def test_pieces_that_are_waited_for_give_the_same_weights(node: Node) -> None:
    errors = Bench(node, {}, plan=SHORT).ranks(add_up_in_pieces, 2)
    assert errors[0] == errors[1] < 1.2e-5


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_model_parallel_gives_the_same_weights_for_fewer_bytes(
    ranks: int, node: Node
) -> None:
    record = measured(
        "mlp_split_cpu",
        node,
        ranks=ranks,
        way="gloo",
        hidden=128,
        batch=800,
        product="torch",
    )
    assert (record.status, record.reason) == ("ok", "")
    assert (
        "model parallel: weights differ from NumPy's in float64 by more than 1.2e-05"
        in record.checks
    )
    # 128 · 784 + 128 + 10 · 128 + 10 parameters against 800 images' ten outputs, float32.
    assert record.value("data_bytes") == 4 * 101_770
    assert record.value("model_bytes") == 4 * 8_000
    predicted = record.series["predicted"]
    assert predicted.numbers("handed") == predicted.numbers("counted")


@pytest.mark.parametrize(("dtype", "near"), [("float32", 3e-7), ("float64", 1e-15)])
def test_weights_are_right_for_few_steps_and_part_ways_at_large_rates(
    dtype: str, near: float, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "RATES", (0.01, 10.0))
    monkeypatch.setattr(learning, "STEPS", (3, 60))
    record = measured("mlp_weights_cpu", node, data="digits", dtype=dtype, product="torch")
    assert (record.status, record.reason) == ("ok", "")
    assert 0 < record.value("error") < near
    errors = record.series["errors"]
    rows = zip(*(errors.numbers(name) for name in ("rate", "steps", "error")), strict=True)
    last = {rate: error for rate, steps, error in rows if steps == 60}
    assert last[10.0] > 100 * last[0.01]
    assert record.value("late_error") == max(last.values())
    # NumPy against itself, started from weights rounded to float32, parts ways at the same rate.
    names = ("rate", "steps", "reference", "perturbed", "perturbed_error")
    twice = {
        row[:2]: row[2:]
        for row in zip(*(errors.numbers(name) for name in names), strict=True)
    }
    assert twice[0.01, 60][0] == twice[0.01, 60][1]
    assert twice[0.01, 60][2] < 1e-7 < 1e-5 < twice[10.0, 60][2]


def test_digits_are_learned_over_rates_and_numpy_agrees(node: Node) -> None:
    record = measured("mlp_learning_cpu", node, data="digits", sweep="rate")
    assert (record.status, record.reason) == ("ok", "")
    assert record.value("precision") > 0.93
    swept = dict(
        zip(
            record.series["rate"].numbers("rate"),
            record.series["rate"].numbers("precision"),
            strict=True,
        )
    )
    assert swept[0.001] < swept[0.1]  # too slow for five epochs
    of_numpy = record.series["numpy"]
    for rate, precision in zip(
        of_numpy.numbers("rate"), of_numpy.numbers("precision"), strict=True
    ):
        assert precision == pytest.approx(swept[rate], abs=0.02)


def test_pictures_in_noise_stand_in_for_a_data_set(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "SWEPT_HIDDEN", (2, 32))
    record = measured("mlp_learning_cpu", node, data="made", sweep="hidden")
    assert (record.status, record.reason) == ("ok", "")
    assert record.value("precision") > 0.95
    assert record.data == {}


def test_a_missing_data_set_skips_the_point(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("HPML_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    record = measured("mlp_learning_cpu", node, data="mnist", sweep="rate")
    assert record.status == "skipped"
    assert "mnist" in record.reason


def test_gpu_points_are_skipped_without_their_gpus(node: Node, gpu_node: Node) -> None:
    params = {
        "way": "nccl",
        "hidden": 512,
        "batch": 3000,
        "dtype": "float32",
        "product": "own",
    }
    assert (
        measured("mlp_phases", node, ranks=2, **params).reason
        == "needs 2 GPUs, this node has no GPU"
    )
    assert (
        measured("mlp_phases", gpu_node, ranks=4, **params).reason
        == "needs 4 GPUs, this node has 2"
    )


@pytest.mark.parametrize(
    ("hidden", "pieces", "rows"),
    [(10, 4, [(0, 2), (2, 5), (5, 7), (7, 10)]), (2, 8, [(0, 1), (1, 2)])],
)
def test_pieces_of_a_gradient_are_nearly_equal_and_whole(
    hidden: int, pieces: int, rows: list[tuple[int, int]]
) -> None:
    from hpml_plugins.plugins.mlp.network import Network, Phases, multiply_by_torch

    job = Job(hidden, 4, inputs=3, classes=2)
    network = Network(
        job, reference.first_weights(job, 0), "cpu", multiply_by_torch, Phases("cpu")
    )
    sent: list[tuple[int, int]] = []
    network.forward()
    network.backward(pieces, lambda begin, end: sent.append((begin, end)))
    # What is no part of W1 first, then rows of three numbers.
    assert sent == [
        (3 * hidden, job.parameters),
        *((3 * begin, 3 * end) for begin, end in rows),
    ]


def test_phases_add_up_by_name_and_only_while_active() -> None:
    from hpml_plugins.plugins.mlp.network import Phases

    phases = Phases("cpu")
    with phases("step"):
        time.sleep(0.001)
    assert phases.taken() == {}
    phases.active = True
    for _ in range(2):
        with phases("step", on_host=True):
            time.sleep(0.001)
    taken = phases.taken()
    assert taken["step"] >= 0.002
    assert phases.taken() == {}


def test_on_a_gpu_phases_are_nvtx_ranges_of_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    from hpml_plugins.plugins.mlp.network import Phases

    ranges: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", ranges.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: ranges.append("end"))
    phases = Phases("cuda:0", active=True)
    with phases("forward", on_host=True), phases("backward", on_host=True):
        pass
    assert ranges == ["forward", "backward", "end", "end"]


def test_an_mpi_without_cuda_says_so() -> None:
    import torch

    from hpml_plugins.plugins.mlp.exchange import why_not_cuda_aware

    assert (
        why_not_cuda_aware(None, torch.zeros(1))
        == "CUDA-aware MPI needs GPUs; this point has none"
    )


def test_a_job_travels_to_ranks_that_mpirun_starts() -> None:
    import pickle

    job = Job(512, 3000, 2, "float32", "own", "mpi")
    assert pickle.loads(pickle.dumps(job)) == job
    assert (job.launcher, replace(job, way="nccl").launcher) == ("mpi", "torch")


def test_ways_of_mpi_are_started_by_mpirun_and_those_through_the_host_are_known() -> None:
    job = Job(512, 3000, 2)
    by_mpi = [way for way in WAYS if replace(job, way=way).launcher == "mpi"]
    assert by_mpi == ["mpi", "mpi_pinned", "cuda_mpi"]
    through_host = [way for way in WAYS if replace(job, way=way).through_host]
    assert through_host == ["mpi", "mpi_pinned", "gloo"]
    assert all("host" in WAYS[way] for way in through_host)


def test_pinned_memory_without_a_gpu_skips_the_point(node: Node) -> None:
    if reason := why_no_mpi():
        unavailable(reason)
    params = {"hidden": 128, "batch": 800, "dtype": "float32", "product": "torch"}
    record = measured("mlp_phases_cpu", node, ranks=2, way="mpi_pinned", **params)
    assert (record.status, record.reason) == (
        "skipped",
        "pinned memory is for copies to and from GPUs; this point has none",
    )
