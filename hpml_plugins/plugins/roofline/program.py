"""The program that runs under ncu: one step between the profiler's start and stop.

python -m hpml_plugins.plugins.roofline.program model resnet50 train bfloat16 32 0
python -m hpml_plugins.plugins.roofline.program kernel matmul_float32_2048 0
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

WARM_UP = 2


def step_of(arguments: list[str], device: str) -> Callable[[], Any]:
    """The step that the arguments name: `model NAME STEP PRECISION BATCH SEED` or `kernel NAME SEED`."""
    what, *rest = arguments
    if what == "model":
        from hpml_plugins.plugins.roofline.models import ModelStep

        model, step, dtype, batch, seed = rest
        return ModelStep(model, step, dtype, int(batch), device, int(seed)).step.run
    from hpml_plugins.plugins.roofline.kernels import kernel

    name, seed = rest
    return kernel(name, device, int(seed)).run


def main(arguments: list[str]) -> None:
    """Run the step a few times, then once with the profiler on."""
    import torch

    run = step_of(arguments, "cuda")
    for _ in range(WARM_UP):
        run()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    run()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
