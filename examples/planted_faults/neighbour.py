"""A program that uses a GPU for some of the time.

Called as `neighbour.py memory|clocks|link SHARE FILE PARENT`.
It opens CUDA when FILE exists, and ends with the process PARENT, which started it.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch


def step_of(kind: str) -> Callable[[], object]:
    """A step on the GPU of less than a millisecond; of the link to the host one of 20 ms."""
    if kind == "memory":
        x = torch.ones(2**26, device="cuda")
        y = torch.empty_like(x)
        return lambda: y.copy_(x)
    if kind == "clocks":
        torch.backends.cuda.matmul.allow_tf32 = False
        a = torch.ones(2048, 2048, device="cuda")
        b = torch.empty_like(a)
        return lambda: torch.mm(a, a, out=b)
    host, back = (torch.ones(2**26).pin_memory() for _ in range(2))
    device, returned = (torch.empty(2**26, device="cuda") for _ in range(2))
    stream = torch.cuda.Stream()

    def both_ways() -> None:
        device.copy_(host, non_blocking=True)
        with torch.cuda.stream(stream):
            back.copy_(returned, non_blocking=True)

    return both_ways


def main(kind: str, share: float, begin: Path, parent: int) -> None:
    """Repeat the step, and wait in between."""
    while not begin.exists() and os.getppid() == parent:
        time.sleep(0.05)
    step = step_of(kind)

    def timed() -> float:
        begun = time.perf_counter()
        step()
        torch.cuda.synchronize()
        return time.perf_counter() - begun

    busy = min(timed() for _ in range(10))
    print(f"{kind}: {busy * 1e3:.2f} ms of every {busy / share * 1e3:.2f} ms", flush=True)
    while os.getppid() == parent:
        time.sleep(max(0.0, busy / share - timed()))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
