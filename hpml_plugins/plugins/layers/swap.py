"""The benchmarks `swap_cuda` and `swap_cpu`: VGG16 with max pooling before ReLU instead of after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires
from hpml_plugins.plugins.layers.interleaved_timing import time_in_turns, warn_if_unsure
from hpml_plugins.plugins.layers.peak import PASSES, peak_memory

MODES = ("forward", "training")
#: VGG16 pools after five of its ReLUs.
PAIRS = 5


def measure(bench: Bench, *, mode: str, inplace: bool, batch: int, side: int) -> dict[str, Any]:
    """Time VGG16 on `batch` images of `side` × `side` in single precision, both orders in turns.

    mode: "forward", in eval mode without gradients, or "training": forward, loss and backward, without an optimiser.
    inplace: whether ReLUs overwrite their input. Normal is ReLU before max pooling, swapped after it; both orders must
    give the same output, bit for bit, and the same gradient.
    Raises HpmlError for another mode.
    """
    if mode not in MODES:
        raise HpmlError(f"no mode {mode!r}; use one of {', '.join(MODES)}")
    import torch

    from hpml_plugins.plugins.layers import vgg

    torch.manual_seed(bench.seed)
    network = vgg.build(bench.device, inplace=inplace)
    images = torch.randn(batch, 3, side, side, device=bench.device)
    classes = torch.randint(vgg.CLASSES, (batch,), device=bench.device)

    bench.progress("checking that both orders agree", 0.0)
    _check_that_orders_agree(bench, network, images, classes)
    network.train(mode == "training")

    def forward() -> Any:
        with torch.no_grad():
            return network(images)

    def training() -> Any:
        return torch.autograd.grad(vgg.loss(network, images, classes), list(network.parameters()))

    def step_of(order: str) -> Callable[[], Any]:
        vgg.put_in_order(network, order)
        return forward if mode == "forward" else training

    bench.progress("memory", 0.2)
    memory, took = {}, []
    for order in vgg.ORDERS:
        started = time.perf_counter()
        memory[order] = peak_memory(step_of(order), bench.device)
        took.append(time.perf_counter() - started)
    bench.progress("timing both orders in turns", 0.3)
    # The first order's may hold what torch loads for a first pass.
    normal, swapped, speedup = time_in_turns(bench, step_of, vgg.ORDERS, min(took) / PASSES)
    for name, samples in (("time", normal), ("swapped_time", swapped), ("speedup", speedup)):
        warn_if_unsure(bench, name, samples)
    return {
        "time": normal,
        "swapped_time": swapped,
        "speedup": speedup,
        "rate": batch / normal,
        "memory": memory["normal"],
        "swapped_memory": memory["swapped"],
    }


def _check_that_orders_agree(bench: Bench, network: Any, images: Any, classes: Any) -> None:
    import torch

    from hpml_plugins.plugins.layers import vgg

    found = {}
    for order in vgg.ORDERS:
        pairs = vgg.put_in_order(network, order)
        bench.check(pairs == PAIRS, f"VGG16 does not have {PAIRS} pairs of ReLU and max pooling")
        found[order] = vgg.answers(network, images, classes)
    (output, gradient), (swapped, its_gradient) = (found[order] for order in vgg.ORDERS)
    bench.check(torch.equal(output, swapped), "the orders' outputs are not the same bit for bit")
    error = float((gradient - its_gradient).norm() / gradient.norm())
    bench.check(error <= 1e-3, "the orders' gradients differ")


METRICS = (
    Metric("time", "s", "lower", "of one pass over the batch, ReLU before max pooling"),
    Metric("swapped_time", "s", "lower", "of one pass over the batch, max pooling before ReLU"),
    Metric("speedup", "1", "higher", "time over swapped_time, one ratio a round of both; above 1 swapping is faster"),
    Metric("rate", "1/s", "higher", "images over the time"),
    Metric("memory", "B", "lower", "most that a pass has allocated at once, beyond images and weights"),
    Metric("swapped_memory", "B", "lower", "the same, max pooling before ReLU"),
)
SWAP_CUDA = Benchmark(
    "swap_cuda",
    measure,
    metrics=METRICS,
    grid={"mode": MODES, "inplace": (True, False), "batch": (128,), "side": (224,)},
    requires=Requires(gpus=1, gpu_memory=32e9, modules=("torch", "torchvision")),
    version="2",  # 1: a point an order
    timeout=360,
    description="VGG16 with ReLU and max pooling in the usual order and swapped, in turns, on one GPU.",
)
SWAP_CPU = Benchmark(
    "swap_cpu",
    measure,
    metrics=METRICS,
    grid={"mode": MODES, "inplace": (False,), "batch": (8,), "side": (32, 224)},
    requires=Requires(modules=("torch", "torchvision")),
    version="2",  # 1: a point an order
    timeout=600,
    description="VGG16 with ReLU and max pooling in the usual order and swapped, in turns, on the CPU.",
)
