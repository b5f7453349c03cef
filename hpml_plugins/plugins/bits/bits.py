"""The benchmark `bits`: products, a reduction, copies and a training step with fixed inputs,
repeated and compared bit for bit, with a digest of each.

Libraries choose the same kernels on all cards of a type with the same software, so a sound card
gives the same bits as all others. The digests are a series of the Record, by which `hpml accept`
compares cards.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires

#: The name of the series of digests, and of its columns.
DIGESTS, STEP, SHA256 = "digests", "step", "sha256"
#: Sides of the matrices on a GPU and on a CPU.
SIDE, CPU_SIDE = 4096, 512
#: Values that are copied and added up, of 4 B each.
COPIED, CPU_COPIED = 2**26, 2**20
#: How often each step is repeated.
REPEATS = 20
#: Training: images of a batch, and steps.
IMAGES, TRAINED = 64, 3
#: For tests: one bit of every result of a step is flipped if this is the value of
#: CUDA_VISIBLE_DEVICES ("cpu" if that is not set).
FLIP_VARIABLE, PLANTED = "HPML_FLIP_BIT", "float32 product"


def measure(bench: Bench) -> dict[str, float]:
    """Run each step, repeat it, and compare every repeat with the first result."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(1)  # the order of a CPU's sums depends on it
    digests = {}
    steps = _steps(bench.device)
    if is_flipped(os.environ):
        steps[PLANTED] = _flipping(steps[PLANTED])
    for number, (name, step) in enumerate(steps.items()):
        bench.progress(name, number / len(steps))
        first = step()
        differing = sum(not _same(bench.result(step()), first) for _ in range(REPEATS))
        what = f"{differing} of {REPEATS} repeats of the {name} differ from the first"
        bench.check(not differing, what)
        digests[name] = hashlib.sha256(_bits(first).cpu().numpy().tobytes()).hexdigest()
    bench.series(DIGESTS, {STEP: list(digests), SHA256: list(digests.values())})
    return {"repeats": float(REPEATS * len(steps))}


def is_flipped(environ: Mapping[str, str]) -> bool:
    """Whether a bit is to be flipped in this process."""
    return environ.get(FLIP_VARIABLE) == environ.get("CUDA_VISIBLE_DEVICES", "cpu")


def _steps(device: Any) -> dict[str, Callable[[], Any]]:
    """Each step by its name; it returns a tensor on the device."""
    import torch

    on_gpu = torch.device(device).type == "cuda"
    side, copied = (SIDE, COPIED) if on_gpu else (CPU_SIDE, CPU_COPIED)
    generator = torch.Generator().manual_seed(52)
    a, b = (torch.randn(side, side, generator=generator).to(device) for _ in range(2))
    half = a.bfloat16(), b.bfloat16()
    values = torch.arange(copied, dtype=torch.int32, device=device)
    values *= 2654435761 - 2**32  # Knuth's multiplicative hash: all bits change
    host = values[: copied // 16].cpu()
    rows = values.view(-1, 4096) / 2.0**28
    return {
        "float32 product": lambda: a @ b,
        "bfloat16 product": lambda: half[0] @ half[1],
        "reduction": lambda: torch.cat([rows.sum(1), rows.softmax(1).sum(1)]),
        "copy": values.clone,
        "copy from the host": lambda: host.to(device),
        "training step": lambda: _train(device),
    }


def _train(device: Any) -> Any:
    """The weights of a small convolutional network after a few steps of SGD."""
    import torch
    from torch import nn

    torch.use_deterministic_algorithms(True, warn_only=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(52)
        net = nn.Sequential(
            nn.Conv2d(3, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 28 * 28, 10),
        ).to(device)
        images, labels = (
            torch.randn(IMAGES, 3, 32, 32).to(device),
            torch.arange(IMAGES).to(device) % 10,
        )
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(TRAINED):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimiser.step()
    return torch.cat([each.detach().flatten() for each in net.parameters()])


def _bits(tensor: Any) -> Any:
    import torch

    return tensor.contiguous().view(-1).view(torch.uint8)


def _same(found: Any, first: Any) -> bool:
    import torch

    return bool(torch.equal(_bits(found), _bits(first)))


def _flipping(step: Callable[[], Any]) -> Callable[[], Any]:
    """The step, with the lowest bit of the first byte of its results flipped."""

    def flipped() -> Any:
        result = step()
        _bits(result)[0] ^= 1
        return result

    return flipped


BITS = Benchmark(
    "bits",
    measure,
    [Metric("repeats", "1", None, "of steps that were compared with their first result")],
    requires=Requires(gpus=1, gpu_memory=6e9, modules=("torch",), cpu_fallback=True),
    rounds=1,
    description="Products, a reduction, copies and a training step, compared bit for bit.",
)
