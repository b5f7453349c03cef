"""The benchmarks `swap_cuda` and `swap_cpu`: VGG16 with max pooling before ReLU instead of after it."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires
from hpml_plugins.plugins.layers.peak import peak_memory

#: s of sampling; there are many points.
BUDGET = 1.0
MODES = ("forward", "training")
ORDERS = ("normal", "swapped")
#: VGG16 pools after five of its ReLUs.
PAIRS = 5


def measure(bench: Bench, *, order: str, mode: str, inplace: bool, batch: int, side: int) -> dict[str, Any]:
    """Time VGG16 on `batch` images of `side` × `side` in single precision.

    order: "normal", ReLU before max pooling, or "swapped".  mode: "forward", in eval mode without gradients, or
    "training": forward, loss and backward, without an optimiser.  inplace: whether ReLUs overwrite their input. Both
    orders must give the same output, bit for bit, and the same gradient.
    Raises HpmlError for another order or mode.
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
    found = {}
    for each in vgg.ORDERS:
        pairs = vgg.put_in_order(network, each)
        bench.check(pairs == PAIRS, f"VGG16 does not have {PAIRS} pairs of ReLU and max pooling")
        found[each] = vgg.answers(network, images, classes)
    (output, gradient), (swapped, its_gradient) = (found[each] for each in vgg.ORDERS)
    bench.check(torch.equal(output, swapped), "the orders' outputs are not the same bit for bit")
    error = float((gradient - its_gradient).norm() / gradient.norm())
    bench.check(error <= 1e-3, "the orders' gradients differ")
    del found, output, swapped, gradient, its_gradient

    vgg.put_in_order(network, order)
    network.train(mode == "training")

    def forward() -> Any:
        with torch.no_grad():
            return network(images)

    def training() -> Any:
        return torch.autograd.grad(vgg.loss(network, images, classes), list(network.parameters()))

    step = forward if mode == "forward" else training
    bench.progress("memory", 0.3)
    memory = peak_memory(step, bench.device)
    bench.progress("timing", 0.4)
    time = bench.time(step, budget=BUDGET)
    return {"time": time, "rate": batch / time, "memory": memory}


METRICS = (
    Metric("time", "s", "lower", "of one pass over the batch"),
    Metric("rate", "1/s", "higher", "images over the time"),
    Metric("memory", "B", "lower", "most that a pass has allocated at once, beyond images and weights"),
)
SWAP_CUDA = Benchmark(
    "swap_cuda",
    measure,
    metrics=METRICS,
    grid={"order": ORDERS, "mode": MODES, "inplace": (True, False), "batch": (128,), "side": (224,)},
    requires=Requires(gpus=1, gpu_memory=32e9, modules=("torch", "torchvision")),
    version="1",
    timeout=180,
    description="VGG16 with ReLU and max pooling in the usual order and swapped, on one GPU.",
)
SWAP_CPU = Benchmark(
    "swap_cpu",
    measure,
    metrics=METRICS,
    grid={"order": ORDERS, "mode": MODES, "inplace": (False,), "batch": (8,), "side": (32, 224)},
    requires=Requires(modules=("torch", "torchvision")),
    version="1",
    timeout=300,
    description="VGG16 with ReLU and max pooling in the usual order and swapped, on the CPU.",
)
