"""The plugin `scaling` over gloo: the same code as on GPUs, bytes against hand arithmetic, ranks
that fail."""

from __future__ import annotations

import os
import signal
import statistics
from pathlib import Path
from typing import Any

import pytest

from hpml_plugins import Node, Record
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.plugins.scaling import ddp, hpml_benchmarks, loading
from hpml_plugins.plugins.scaling.jobs import SMALL, Job
from hpml_plugins.testing import Context, import_before_fork, measure_point

#: Turns of each kind of step (`training.TURNS`, which imports torch).
TURNS = 4
SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)
BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}


@pytest.fixture(scope="module", autouse=True)
def libraries_are_loaded() -> None:
    import_before_fork(["torch", "torch._dynamo", "torchvision"])


def measured(name: str, node: Node, **params: Any) -> Record:
    return measure_point(BENCHMARKS[name], params, Context(node, plan=SHORT))


def median(record: Record, metric: str) -> float:
    return statistics.median(record.metrics[metric].samples)


@pytest.mark.parametrize(
    ("ranks", "scaling"), [(2, "weak"), pytest.param(4, "strong", marks=pytest.mark.slow)]
)
def test_ddp_over_gloo_is_checked_timed_and_profiled(
    ranks: int, scaling: str, node: Node
) -> None:
    record = measured(
        "scaling_ddp_cpu", node, ranks=ranks, batch=32, dtype="float32", scaling=scaling
    )
    assert (record.status, record.reason) == ("ok", "")
    assert any(
        check.startswith("DDP's gradient is the mean of the ranks' own (off by ")
        for check in record.checks
    )
    assert "all ranks have the same parameters" in record.checks
    # 1024 images: 32 each on two ranks are 16 steps; 32 shared out over four, 32 steps.
    steps = {"weak": 16, "strong": 32}[scaling]
    pairs = zip(
        record.metrics["step"].samples, record.metrics["epoch"].samples, strict=True
    )
    assert all(epoch == pytest.approx(steps * step) for step, epoch in pairs)
    speedups, efficiencies = (
        record.metrics["speedup"].samples,
        record.metrics["efficiency"].samples,
    )
    assert efficiencies == pytest.approx([speedup / ranks for speedup in speedups])
    assert median(record, "communication") > 0
    assert 0 < median(record, "exposed") <= median(record, "communication")
    assert median(record, "computation") > 0
    profile = record.series["profile"].columns
    assert median(record, "bus_bandwidth") == pytest.approx(
        profile["utilization"][0] * median(record, "ceiling"), rel=0.1
    )
    assert profile["single"][0] > 0
    assert record.series["ranks"].columns["rank"] == list(range(ranks))
    assert record.metrics["step"].info["data"] == "synthetic-8, on the device"
    assert record.metrics["step"].info["over_ranks"] == "max"


def test_the_parts_of_a_step_are_of_windows_that_took_turns(node: Node) -> None:
    record = measured(
        "scaling_ddp_cpu", node, ranks=2, batch=32, dtype="float32", scaling="weak"
    )
    profile = {name: column[0] for name, column in record.series["profile"].columns.items()}
    assert 0 < profile["apart"] < 2 * profile["together"]
    speedup = record.metrics["speedup"]
    assert len(speedup.samples) == speedup.info["turns"] == TURNS
    # Whatever disturbs the turns, the ratio of two medians lies within the ratios of the turns.
    of_medians = 2 * profile["single"] / profile["together"]
    least, most = min(speedup.samples), max(speedup.samples)
    assert least * (1 - 1e-6) <= of_medians <= most * (1 + 1e-6)


def test_all_kinds_take_turns_and_a_step_before_each_does_not_count() -> None:
    from hpml_plugins.plugins.scaling.training import time_in_turns

    class Counting:
        def __init__(self, kind: str) -> None:
            self.kind = kind

        def step(self) -> None:
            called.append((self.kind, 0))

        def steps(self, count: int) -> None:
            called.append((self.kind, count))

    called: list[tuple[str, int]] = []
    trainers: Any = {"apart": Counting("apart"), "together": Counting("together")}
    found = time_in_turns(trainers, {"apart": 3, "single": 2, "together": 5})
    assert [len(samples) for samples in found.values()] == [
        TURNS
    ] * 3  # others run "single"
    apart, together = (
        [(kind, 0), *[(kind, count)] * 3] for kind, count in (("apart", 3), ("together", 5))
    )
    assert called == [*apart, *together, *together, *apart] * (TURNS // 2)


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_loading_copying_and_training_are_timed_alone_and_together(
    ranks: int, node: Node
) -> None:
    record = measured("scaling_loading_cpu", node, batch=32, ranks=ranks)
    assert (record.status, record.reason) == ("ok", "")
    assert "the copied batch is the loaded one" in record.checks
    assert median(record, "epoch") == pytest.approx(
        1024 / (32 * ranks) * median(record, "step")
    )
    assert min(median(record, name) for name in ("step", "train", "copy", "loading")) > 0
    assert record.metrics["step"].info["data"].startswith("synthetic-8, in host memory")


def test_the_loader_gives_normalised_images_of_another_order_for_another_seed() -> None:
    import torch

    one, same, other = (
        next(loading.load(SMALL, 64, seed, pin=False)) for seed in (3, 3, 4)
    )
    images, labels = one
    assert (images.shape, images.dtype, labels.shape) == (
        (64, *SMALL.shape),
        torch.float32,
        (64,),
    )
    # (x / 255 - 0.5) / 0.25
    assert -2.0 <= float(images.min()) < -1.9 < 1.9 < float(images.max()) <= 2.0
    assert torch.equal(one[1], same[1])
    assert not torch.equal(one[1], other[1])


def test_a_gradient_that_is_not_the_mean_gives_no_number(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_reduction(rank: Any, module: Any, *, lean: bool) -> Any:
        return module

    monkeypatch.setattr(
        ddp, "wrapped", without_reduction
    )  # the ranks are forked: they see it
    record = measured(
        "scaling_ddp_cpu", node, ranks=2, batch=32, dtype="float32", scaling="weak"
    )
    assert record.status == "failed"
    assert (
        "check failed: DDP's gradient is the mean of the ranks' own (off by "
        in record.reason
    )
    assert record.metrics == {}


def test_a_rank_killed_between_steps_fails_the_point_and_leaves_no_orphan(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpml_plugins.plugins.scaling import training

    whole = training.Trainer.train_on
    steps = 0

    def dies_in_the_eighth_step(trainer: Any, images: Any, labels: Any) -> None:
        nonlocal steps
        (tmp_path / str(os.getpid())).touch()
        steps += trainer.module.__class__.__name__ == "DistributedDataParallel"
        if steps == 8 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        whole(trainer, images, labels)

    monkeypatch.setattr(training.Trainer, "train_on", dies_in_the_eighth_step)
    record = measured(
        "scaling_ddp_cpu", node, ranks=2, batch=32, dtype="float32", scaling="weak"
    )
    assert (record.status, record.reason) == (
        "failed",
        "rank 1 died of SIGKILL (killed, perhaps for want of memory)",
    )
    ran = [int(path.name) for path in tmp_path.iterdir()]
    assert len(ran) == 2
    assert [number for number in ran if Path(f"/proc/{number}").exists()] == []


def test_a_batch_that_does_not_fit_skips_the_point(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from hpml_plugins.plugins.scaling import training

    def asks_too_much(trainer: Any, images: Any, labels: Any) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 64.00 GiB. GPU 0 has a total capacity of 139.80"
            " GiB of which 9 are free. Including non-PyTorch memory"
        )

    monkeypatch.setattr(training.Trainer, "train_on", asks_too_much)
    record = measured(
        "scaling_ddp_cpu", node, ranks=2, batch=512, dtype="float32", scaling="weak"
    )
    assert record.status == "skipped"
    assert (
        record.reason
        == "batch 512 does not fit into GPU memory: Tried to allocate 64.00 GiB. "
        "GPU 0 has a total capacity of 139.80 GiB of which 9 are free"
    )


def test_one_process_alone_is_timed(node: Node) -> None:
    record = measured("scaling_single_cpu", node, batch=32, dtype="float32")
    assert (record.status, record.reason) == ("ok", "")
    pairs = zip(
        record.metrics["step"].samples, record.metrics["epoch"].samples, strict=True
    )
    assert all(epoch == pytest.approx(32 * step) for step, epoch in pairs)  # 1024 / 32


def test_bf16_computes_in_bf16_and_reduces_float32() -> None:
    import torch

    from hpml_plugins.plugins.scaling.training import gradient, make_batches, make_module

    module = make_module(SMALL, "bf16", "cpu", seed=0)
    seen = []
    module.model.stem[0].register_forward_hook(lambda *given: seen.append(given[2].dtype))
    assert (
        gradient(module, *next(make_batches(SMALL, 4, "cpu", 0)), seed=0).dtype
        == torch.float32
    )
    assert seen == [torch.bfloat16]


def test_what_ddp_hands_over_for_resnet18_by_hand(node: Node) -> None:
    record = measured("scaling_wire_ddp", node, ranks=2, model="resnet18")
    assert (record.status, record.reason) == ("ok", "")
    # torchvision's ResNet18 has 11,689,512 parameters; 1000 classes 513,000 → ten 5,130; stem 7×7
    # 9,408 → 3×3 1,728.
    parameters = 11_689_512 - 513_000 + 5_130 - 9_408 + 1_728
    assert parameters == 11_173_962
    # 20 normalisations over 5 · 64, 5 · 128, 5 · 256, 5 · 512 channels: mean and variance of each,
    # and a counter.
    channels = 5 * (64 + 128 + 256 + 512)
    expected = {"gradients": 4 * parameters, "buffers": 4 * 2 * channels + 8 * 20}
    expected |= {"parameters": 0, "inputs": 0, "outputs": 0}
    assert {name: median(record, name) for name in expected} == expected
    # At the start every parameter and buffer once, and their shapes, 8 B each number, to see that
    # all have the same.
    assert (
        4 * parameters + expected["buffers"]
        < median(record, "at_start")
        < 4 * parameters + 50_000
    )


def test_four_ranks_hand_over_as_much_each_as_two(node: Node) -> None:
    record = measured("scaling_wire_ddp", node, ranks=4, model="small")
    # Convolutions 3·16·9 + 2·16·16·9, three normalisations of 2·16, the classifier 64·10 + 10.
    assert median(record, "gradients") == 4 * (432 + 4608 + 96 + 650)
    assert median(record, "buffers") == 3 * (4 * 2 * 16 + 8)


def test_what_dataparallel_moves_is_what_is_not_on_the_first_gpu() -> None:
    import torch

    from hpml_plugins.plugins.scaling.wire import foreign_bytes

    # Two chunks of 2×3 float32, one elsewhere: 24 B.
    chunks = [torch.zeros(2, 3), torch.zeros(2, 3, device="meta")]
    assert foreign_bytes(chunks, "cpu") == 24
    assert foreign_bytes(chunks, "meta") == 24
    assert foreign_bytes(chunks[:1], "cpu") == 0


def test_the_copies_of_dataparallel_are_counted_by_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch
    from torch.nn.parallel import comm

    from hpml_plugins.plugins.scaling.wire import counted_copies

    # Three GPUs are played by the CPU and "meta": what is tested is the counting, not the copying.
    monkeypatch.setattr(
        comm, "broadcast_coalesced", lambda tensors, devices: [list(tensors)] * len(devices)
    )
    monkeypatch.setattr(comm, "reduce_add_coalesced", lambda inputs, destination: inputs[0])
    monkeypatch.setattr(
        comm, "scatter", lambda tensor, devices: (tensor[:2], *[tensor[2:].to("meta")] * 2)
    )
    monkeypatch.setattr(comm, "gather", lambda tensors, dim, destination: tensors[0])
    weight, statistic = torch.zeros(10), torch.zeros(4)
    original = comm.scatter
    with counted_copies([statistic], "cpu") as counted:
        comm.broadcast_coalesced([weight], [0, 1, 2])
        comm.broadcast_coalesced([statistic], [0, 1, 2])
        comm.scatter(torch.zeros(3, 5), [0, 1, 2])
        comm.gather([weight, weight.to("meta"), weight.to("meta")], 0, 0)
        comm.reduce_add_coalesced([[weight], [weight.to("meta")], [weight.to("meta")]], 0)
    assert counted == {
        "parameters": 80,  # 10 float32 to two others
        "buffers": 32,  # 4 float32 to two others
        "inputs": 40,  # a row of 5 to each of two others
        "outputs": 80,
        "gradients": 80,
    }
    assert comm.scatter is original


@pytest.mark.parametrize(("recipe", "last_rate"), [("plain", 0.1), ("both", 0.8)])
def test_large_batches_train_with_the_recipe_s_rate(
    recipe: str, last_rate: float, node: Node
) -> None:
    record = measured(
        "scaling_large_batch_cpu", node, ranks=2, data="digits", batch=512, recipe=recipe
    )
    assert (record.status, record.reason) == ("ok", "")
    epochs = record.series["epochs"].columns
    # 721 images on each rank are one batch of 512; 2 · 512 / 128 is 8 times the rate.
    assert epochs["steps"] == [1, 2, 3, 4, 5]
    assert epochs["lr"][-1] == pytest.approx(last_rate)
    assert record.metrics["test_accuracy"].samples == [epochs["test_accuracy"][-1]]
    assert record.data["digits"]["train"] == 1442


def test_a_small_batch_learns_the_digits(node: Node) -> None:
    record = measured(
        "scaling_large_batch_cpu", node, ranks=2, data="digits", batch=64, recipe="plain"
    )
    assert record.metrics["test_accuracy"].samples[0] > 0.8
    assert (
        record.metrics["train_loss"].samples[0]
        < record.series["epochs"].columns["train_loss"][0]
    )


def test_ranks_that_keep_their_own_statistics_drift_apart(node: Node) -> None:
    record = measured("scaling_statistics_cpu", node, ranks=2, data="digits", batch=64)
    assert (record.status, record.reason) == ("ok", "")
    ranks = record.series["ranks"].columns
    assert ranks["rank"] == [0, 1]
    # Two ranks are equally far from their mean, on either side of it.
    assert (
        ranks["mean_drift"][0] == pytest.approx(ranks["mean_drift"][1])
        and ranks["mean_drift"][0] > 0
    )
    assert (
        ranks["variance_drift"][0] == pytest.approx(ranks["variance_drift"][1])
        and ranks["variance_drift"][0] > 0
    )
    assert min(ranks["test_accuracy"]) > 0.8
    assert record.metrics["spread"].samples[0] == max(ranks["test_accuracy"]) - min(
        ranks["test_accuracy"]
    )
    record = measured("scaling_statistics_cpu", node, ranks=4, data="digits", batch=512)
    assert record.reason == "4 ranks with 512 images each need 2048 images, digits has 1442"


def test_gpu_points_are_skipped_without_their_gpus(node: Node, gpu_node: Node) -> None:
    record = measured("scaling_ddp", node, gpus=2, batch=128, dtype="float32")
    assert record.reason == "needs 2 GPUs, this node has no GPU"
    record = measured("scaling_dp", gpu_node, gpus=4, batch=128, dtype="float32")
    assert record.reason == "needs 4 GPUs, this node has 2"


def test_a_batch_that_cannot_be_shared_out_is_refused() -> None:
    from hpml_plugins import HpmlError

    assert Job(SMALL, 512, "float32", 4, "strong").share == 128
    with pytest.raises(HpmlError, match="a batch of 10 cannot be shared out evenly over 4"):
        Job(SMALL, 10, "float32", 4, "strong")


def test_a_trace_is_kept_only_where_a_folder_is_named(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.setenv("HPML_SCALING_TRACES", str(tmp_path / "traces"))
    params = {"ranks": 2, "batch": 32, "dtype": "float32", "scaling": "weak"}
    assert measured("scaling_ddp_cpu", node, **params).status == "ok"
    kept = sorted((tmp_path / "traces").iterdir())
    assert [path.name for path in kept] == [
        "small-batch32-float32-rank0of2.json",
        "small-batch32-float32-rank1of2.json",
    ]
    assert "gloo:all_reduce" in {
        each["name"] for each in json.loads(kept[0].read_text())["traceEvents"]
    }


def test_a_job_travels_to_spawned_ranks() -> None:
    import pickle

    job = Job(SMALL, 32, "float32", 2)
    assert pickle.loads(pickle.dumps(job)) == job


@pytest.mark.parametrize(("replays", "right"), [(1, True), (2, False), (0, False)])
def test_a_graph_that_does_not_do_what_the_step_does_is_seen(
    replays: int, right: bool
) -> None:
    from types import SimpleNamespace

    from hpml_plugins.plugins.scaling.training import (
        TOLERANCE,
        Trainer,
        make_batches,
        make_module,
    )

    trainer = Trainer(
        make_module(SMALL, "float32", "cpu", seed=0),
        make_batches(SMALL, 16, "cpu", seed=0),
        lr=0.1,
    )
    trainer.step()
    trainer.images, trainer.labels = next(trainer.batches)

    def replay() -> None:
        for _ in range(replays):
            trainer.train_on(trainer.images, trainer.labels)

    # capturing needs a GPU; what is tested is the comparison
    trainer.graph = SimpleNamespace(replay=replay)
    assert (trainer.replay_error() < TOLERANCE["float32"]) is right
