"""One GPU: the time of an epoch over batch sizes, until memory ends. What everything else is held against."""

from __future__ import annotations

from dataclasses import replace

from hpml_plugins import Bench, Samples
from hpml_plugins.plugins.scaling.results import single_metrics
from hpml_plugins.plugins.scaling.workloads import CIFAR, SMALL, Dtype, Workload


def measure_single(bench: Bench, *, batch: int, dtype: Dtype) -> dict[str, Samples]:
    """ResNet18 on one GPU."""
    return _measure(bench, CIFAR, batch, dtype)


def measure_single_cpu(bench: Bench, *, batch: int, dtype: Dtype) -> dict[str, Samples]:
    """The small model on the CPU."""
    return _measure(bench, SMALL, batch, dtype)


def _measure(bench: Bench, workload: Workload, batch: int, dtype: Dtype) -> dict[str, Samples]:
    from hpml_plugins.plugins.scaling.training import memory_is_the_question, prepare

    prepare()
    with memory_is_the_question(bench, batch):
        return single_metrics(workload, batch, 1, time_alone(bench, workload, batch, dtype, graph=False))


def time_alone(bench: Bench, workload: Workload, batch: int, dtype: Dtype, *, graph: bool) -> Samples:
    """Samples of a step's time on one device, this bench's or rank's own. A rank may call it without the others."""
    import torch

    from hpml_plugins.plugins.scaling import training

    device = bench.device
    trainer = training.Trainer(
        training.make_module(workload, dtype, device, bench.seed),
        training.Pool(workload, batch, device, bench.seed),
        workload.lr,
    )
    captured = training.Captured(trainer) if graph else None
    step = captured.step if captured else trainer.step
    if captured:
        check_graph(bench, captured, dtype)
    count = training.window_of(step, device)
    time = bench.time(training.repeated(step, count), launch="visible", name="single")
    bench.check(bool(torch.isfinite(trainer.loss)), "the loss is finite")
    if captured:
        captured.drop()
    return per_step(time, count)


def per_step(window: Samples, count: int) -> Samples:
    """Seconds a step from seconds a window of `count` steps."""
    time = window / count
    return replace(time, info={**time.info, "steps": count * float(time.info["batch"])})


def check_graph(bench: Bench, captured: object, dtype: Dtype) -> None:
    """A replay must do what the launches do."""
    from hpml_plugins.plugins.scaling.training import Captured, tolerance

    assert isinstance(captured, Captured)
    bench.check(captured.differs() < tolerance(dtype), "a replayed step changes the state as a launched one does")
