"""The benchmarks `swap_cuda` and `swap_cpu`: VGG16 with max pooling before ReLU instead of after
it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Node, Requires
from hpml_plugins.plugins.layers.shapes import MODES

#: VGG16 pools after five of its ReLUs.
PAIRS = 5
#: Images on which both orders are compared; a whole batch takes a CPU half a minute per pass.
CHECKED = 8


def measure(bench: Bench, *, mode: str, inplace: bool, batch: int, side: int) -> dict[str, Any]:
    """Time VGG16 on `batch` images of `side` × `side` in single precision, both orders alternately.

    mode: "forward", in eval mode, or "training", without an optimiser.  inplace: whether ReLUs
    overwrite their input.
    """
    if mode not in MODES:
        raise HpmlError(f"no mode {mode!r}; use one of {', '.join(MODES)}")
    import torch

    from hpml_plugins.plugins.layers import steps

    torch.manual_seed(bench.seed)
    network = steps.build_vgg16(bench.device, inplace=inplace)
    images = torch.randn(batch, 3, side, side, device=bench.device)
    classes = torch.randint(steps.CLASSES, (batch,), device=bench.device)

    bench.progress("checking that both orders agree", 0.0)
    found = {}
    for order in steps.ORDERS:
        pairs = steps.put_in_order(network, order)
        bench.check(pairs == PAIRS, f"VGG16 does not have {PAIRS} pairs of ReLU and max pooling")
        found[order] = steps.answers(network, images[:CHECKED], classes[:CHECKED])
    (output, gradient), (swapped_output, swapped_gradient) = found.values()
    bench.check(
        torch.equal(output, swapped_output), "the orders' outputs are not the same bit for bit"
    )
    error = float((gradient - swapped_gradient).norm() / gradient.norm())
    bench.check(error <= 1e-3, "the orders' gradients differ")
    network.train(mode == "training")

    def forward() -> Any:
        with torch.no_grad():
            return network(images)

    def training() -> Any:
        return torch.autograd.grad(steps.loss(network, images, classes), list(network.parameters()))

    def step_of(order: str) -> Callable[[], Any]:
        steps.put_in_order(network, order)
        return forward if mode == "forward" else training

    bench.progress("memory", 0.2)
    memory, seconds = {}, []
    for order in steps.ORDERS:
        started = time.perf_counter()
        memory[order] = steps.peak_memory(step_of(order), bench.device)
        seconds.append(time.perf_counter() - started)
    bench.progress("timing both orders alternately", 0.3)
    # the smaller one: the first order's time may include torch's loading for a first pass
    both = {order: partial(step_of, order) for order in steps.ORDERS}
    alternating = bench.time_alternately(both, seconds=min(seconds) / steps.PASSES)
    times = {
        "time": alternating.samples["normal"],
        "swapped_time": alternating.samples["swapped"],
        "speedup": alternating.ratio("normal", "swapped"),
    }
    for name, samples in times.items():
        bench.warn_if_imprecise(samples, name)
    return {
        **times,
        "rate": batch / times["time"],
        "memory": memory["normal"],
        "swapped_memory": memory["swapped"],
    }


def is_too_large(node: Node, point: dict[str, Any]) -> str:
    """Why the step is not measured on this node's CPU; empty if it is."""
    # 128 × 224² on two cores: half a minute a forward pass, 80 s in training, 8 passes a round
    large = point["mode"] == "training" and point["batch"] * point["side"] ** 2 > 10**6
    return "training with a batch of this size needs 8 cores" if large and node.num_cpu < 8 else ""


SWAP_CUDA = Benchmark(
    "swap_cuda",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of one pass over the batch, ReLU before max pooling"),
        Metric("swapped_time", "s", "lower", "of one pass over the batch, max pooling before ReLU"),
        Metric(
            "speedup",
            "1",
            "higher",
            "time over swapped_time, one ratio per pair of turns; above 1 swapping is faster",
        ),
        Metric("rate", "1/s", "higher", "images over the time"),
        Metric(
            "memory",
            "B",
            "lower",
            "most that a pass has allocated at once, beyond images and weights",
        ),
        Metric("swapped_memory", "B", "lower", "the same, max pooling before ReLU"),
    ),
    grid={"mode": MODES, "inplace": (True, False), "batch": (128,), "side": (224,)},
    requires=Requires(gpus=1, gpu_memory=32e9, modules=("torch", "torchvision")),
    version="2",  # 1: one point per order
    timeout=360,
    description=(
        "VGG16 with ReLU and max pooling in the usual order and swapped, timed alternately, on one"
        " GPU."
    ),
)
SWAP_CPU = replace(
    SWAP_CUDA,
    name="swap_cpu",
    grid={"mode": MODES, "inplace": (False,), "batch": (8, 128), "side": (32, 224)},
    requires=Requires(modules=("torch", "torchvision"), also=(is_too_large,)),
    timeout=1800,
    description=(
        "VGG16 with ReLU and max pooling in the usual order and swapped, timed alternately, on the"
        " CPU."
    ),
)
