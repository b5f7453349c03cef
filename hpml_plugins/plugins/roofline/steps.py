"""The counted and timed steps: models and single operations. As a program: runs one step for ncu to
count.

python -m hpml_plugins.plugins.roofline.steps model '["resnet50", "train", "bfloat16", 32, "cuda",
0]' python -m hpml_plugins.plugins.roofline.steps kernel '["matmul_float32_2048", "cuda", 0]'

Imports torch: imported inside `measure` only.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from hpml_plugins import Bench
from hpml_plugins.plugins.roofline import formulas

STEPS = ("forward", "train")
SIZE, CLASSES = 224, 1000
#: Low: at 0.01 the loss of a ResNet50 on a few images rises again after three steps.
LEARNING_RATE = 0.001
#: Elements of the vectors: 512 MiB of float32, several times the L2 of any card.
ELEMENTS = 2**27
ROWS = 2**15  # of softmax, over ELEMENTS / ROWS = 4096 columns
#: Multiply-adds of each element in the kernel `fma_float16`.
REPEATS = 64
FMA_ELEMENTS = 2**22
SCALE = 1.5
#: Before the step that ncu counts.
WARM_UP = 2


def use(dtype: str) -> Any:
    """Set how torch computes float32, and return the torch.dtype of tensors in this precision.

    By default torch lets cuDNN round float32 convolutions to TF32; "float32" here disables that.
    """
    allowed = dtype == "tf32"
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    return torch.float32 if allowed else getattr(torch, dtype)


class Step(NamedTuple):
    """run: runs it once.  error: of a result, relative (2-norm).  estimate: its (FLOP, bytes) by
    formula."""

    run: Callable[[], Any]
    error: Callable[[], float]
    estimate: Callable[[], tuple[float, float]]


def _relative(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.to(truth) - truth).norm() / truth.norm())


def model_step(model: str, step: str, dtype: str, batch: int, device: str, seed: int) -> Step:
    """A forward pass, or a training step whose `run` returns the loss, of a torchvision classifier
    on random images.

    Its error is that of two images' logits in eval mode, against float32 on the CPU.
    """
    from torchvision.models import get_model

    kind = use(dtype)
    torch.manual_seed(seed)
    on_cpu = get_model(model, weights=None).eval()
    images = torch.randn(batch, 3, SIZE, SIZE)
    network = copy.deepcopy(on_cpu).to(device, kind)
    on_device = images.to(device, kind)
    labels = torch.randint(CLASSES, (batch,)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)

    def forward() -> Any:
        with torch.no_grad():
            return network(on_device)

    def train() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(network(on_device), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def error() -> float:
        with torch.no_grad():
            found = network.eval()(on_device[:2])
            network.train(step == "train")
            return _relative(found, on_cpu(images[:2]))

    network.train(step == "train")
    run = train if step == "train" else forward
    return Step(run, error, lambda: estimate(run))


def estimate(run: Callable[[], Any]) -> tuple[float, float]:
    """(FLOP, bytes) of one call of `run`, for use without counters.

    FLOP: torch's formulas of convolutions, matrix products and attention, 2 a multiply-add; nothing
    else is counted. bytes: each operator other than a view reads all its inputs and writes all its
    results once, as if nothing stayed in a cache between operators or was fused: more than a device
    with a cache moves.
    """
    with FlopCounterMode(display=False) as flop, Traffic() as traffic:
        run()
    return float(flop.get_total_flops()), float(traffic.nbytes)


class Traffic(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped to mypy here
    """Sums the bytes of the inputs and results of every operator other than a view."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        # A view moves no bytes, and neither does an allocation.
        if not func.is_view and not func.overloadpacket.__name__.startswith(("empty", "new_empty")):
            leaves = tree_leaves([args, kwargs, result])
            self.nbytes += sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
        return result


def kernel_step(name: str, device: str, seed: int, elements: int = ELEMENTS) -> Step:
    """An operation by name: see `formulas.parse`. Its error is that of a part of the last
    result."""
    kind, dtype, size = formulas.parse(name)
    torch.manual_seed(seed)
    if kind == "matmul":
        return _matmul(dtype, size, device)
    return _fma() if kind == "fma" else _streaming(kind, elements, device)


def checked_kernel(bench: Bench, name: str) -> Step:
    """The same after one run, with its result compared with float64."""
    step = kernel_step(name, bench.device, bench.seed)
    step.run()
    error, most = step.error(), formulas.TOLERANCE[formulas.parse(name)[1]]
    bench.check(
        error < most, f"{name}: the result differs from float64's by {error:.1e} of its length"
    )
    return step


#: Kind → function that computes it from a and b into `out`, arrays read and written, FLOP per
#: element.
_STREAMING: dict[str, tuple[Callable[[Any, Any, Any], Any], int, int]] = {
    # STREAM's Scale and Triad (McCalpin): one multiplication, one multiply-add an element. STREAM's
    # Copy is not a kernel in torch but a copy by the driver, which ncu does not count: `roof_copy`
    # times it.
    "scale": (lambda a, b, out: torch.mul(a, SCALE, out=out), 2, 1),
    "triad": (lambda a, b, out: torch.add(a, b, alpha=SCALE, out=out), 3, 2),
    # A comparison is not a floating-point operation, neither here nor for the counters.
    "relu": (lambda a, b, out: torch.clamp_min(a, 0, out=out), 2, 0),
    # By convention 5 an element: compare, subtract, exponential, add, divide.
    "softmax": (lambda a, b, out: torch.softmax(a, 1, out=out), 2, 5),
}


def _streaming(kind: str, elements: int, device: str) -> Step:
    compute, arrays, flop = _STREAMING[kind]
    a, b = (
        torch.randn(elements, device=device).view(-1, elements // min(ROWS, elements))
        for _ in range(2)
    )
    out = torch.empty_like(a)
    return Step(
        lambda: compute(a, b, out),
        lambda: _relative(out[:8], compute(a[:8].double(), b[:8].double(), None)),
        lambda: (float(flop * elements), float(arrays * out.nbytes)),
    )


def _matmul(dtype: str, n: int, device: str) -> Step:
    kind = use(dtype)
    a, b = (torch.randn(n, n, device=device, dtype=kind) for _ in range(2))
    out = torch.empty_like(a)
    return Step(
        lambda: torch.mm(a, b, out=out),
        lambda: _relative(out[:8], a[:8].double() @ b.double()),
        lambda: (float(formulas.matmul_flop(n)), float(3 * out.nbytes)),  # two read, one written
    )


def _fma() -> Step:
    """x ← x · y + z, REPEATS times an element, in packed pairs: a known number of FLOP, all outside
    tensor cores."""
    from hpml_plugins.plugins.roofline.packed import multiply_add

    x, y, z = (torch.rand(FMA_ELEMENTS, device="cuda").mul_(0.5).half() for _ in range(3))
    out = torch.empty_like(x)

    def error() -> float:
        truth, by, plus = (values[:4096].double() for values in (x, y, z))
        for _ in range(REPEATS):
            truth = truth * by + plus
        return _relative(out[:4096], truth)

    flop = float(2 * REPEATS * FMA_ELEMENTS)
    return Step(
        lambda: multiply_add(x, y, z, out, REPEATS), error, lambda: (flop, float(4 * out.nbytes))
    )


def main(what: str, arguments: str) -> None:
    """Run a step a few times, then once with the profiler on."""
    builders: dict[str, Callable[..., Step]] = {"model": model_step, "kernel": kernel_step}
    run = builders[what](*json.loads(arguments)).run
    for _ in range(WARM_UP):
        run()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    run()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
