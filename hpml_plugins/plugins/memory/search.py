"""Finds the largest size that fits into a GPU's memory; the process continues after running out of
memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hpml_plugins import Bench, HpmlError

GIB = 2**30
CARD = "card"
#: Kept free on a whole card, B: CUDA loads a kernel at its first launch, which fails on a
#: completely full card.
SPARE = GIB // 2
#: Messages of CUDA's libraries about failed allocations outside torch's allocator.
_OUT_OF_MEMORY = ("out of memory", "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED")


@dataclass(frozen=True)
class Found:
    """The largest size that fitted, 0 for none; the smallest that did not, None for none; all
    tries, in order."""

    largest: int
    too_large: int | None
    tries: tuple[tuple[int, bool], ...]


def largest_that_fits(
    fits: Callable[[int], bool], *, start: int = 1, most: int = 1 << 20, tolerance: float = 0.0
) -> Found:
    """Search for the largest n in 1 … most with fits(n), in steps that double from `start`, then by
    bisection.

    tolerance: the search ends once the smallest n that did not fit is no further away than this
    share of the largest that did. If memory is fragmented, the answer is still an n that fitted,
    with a larger one that did not; no n is tried twice.  start: within 1 … most.
    """
    tries: list[tuple[int, bool]] = []
    low, high = 0, most + 1

    def attempt(size: int) -> bool:
        nonlocal low, high
        fitted = bool(fits(size))
        low, high = (size, high) if fitted else (low, size)
        tries.append((size, fitted))
        return fitted

    step = max(1, start // 32)
    if attempt(start):
        while low < most and attempt(min(most, low + step)):
            step *= 2
    else:
        while high > 1 and not attempt(max(1, high - step)):
            step *= 2
    while low and high <= most and high - low > max(1, int(tolerance * low)):
        attempt((low + high) // 2)
    return Found(low, high if high <= most else None, tuple(tries))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is torch's OutOfMemoryError, or a RuntimeError of CUDA, cuDNN or cuBLAS with the
    same meaning."""
    import torch

    said = isinstance(error, RuntimeError) and any(
        phrase in str(error) for phrase in _OUT_OF_MEMORY
    )
    return isinstance(error, torch.OutOfMemoryError) or said


class Trials:
    """Runs steps that may run out of GPU memory, and frees everything after each.

    cleanup: drops leftovers of an interrupted step.  refusals: other errors of steps, which count
    as not fitting.
    """

    def __init__(
        self, devices: Sequence[int], cleanup: Callable[[], object] = lambda: None
    ) -> None:
        self.devices = devices
        self.cleanup = cleanup
        self.refusals: list[str] = []

    def survives(self, step: Callable[[], object]) -> bool:
        """Whether the step succeeded. Its memory is free again in either case."""
        import torch

        try:
            step()
            for device in self.devices:
                torch.cuda.synchronize(device)
            done = True
        except RuntimeError as error:
            if not is_out_of_memory(error):
                self.refusals.append(" ".join(str(error).split())[:200])
            done = False
        # Only here have the error, its traceback, and thus the frames with the step's tensors been
        # freed.
        self.cleanup()
        gc.collect()
        torch.cuda.empty_cache()
        return done

    def peaks(self, bench: Bench, step: Callable[[], object], what: str) -> list[float]:
        """The most that torch had allocated on each device during the step, B. Checks that the
        step, `what`, fits."""
        import torch

        for device in self.devices:
            torch.cuda.reset_peak_memory_stats(device)
        bench.check(self.survives(step), f"{what} does not fit")
        return [float(torch.cuda.max_memory_allocated(device)) for device in self.devices]

    def largest(
        self, bench: Bench, run: Callable[[int], object], what: str, allowed: float, **search: Any
    ) -> tuple[Found, list[float]]:
        """Search for the largest size for which `run` fits into `allowed` B; returns the result and
        its `peaks`."""

        def fits(size: int) -> bool:
            bench.progress(f"{size} {what}")
            return self.survives(partial(run, size))

        found = largest_that_fits(fits, **search)
        bench.check(found.largest > 0, f"not even one of the {what} fits")
        peaks = self.peaks(bench, partial(run, found.largest), "what fitted once")
        bench.check(max(peaks) <= allowed, "more was allocated than the limit allows")
        if found.too_large is None:
            bench.warn(f"the search ended at its bound: more than {found.largest} {what} may fit")
        for refusal in dict.fromkeys(self.refusals):
            bench.warn(f"a try failed, not for want of memory: {refusal}")
        return found, peaks


def set_limit(bench: Bench, limit: float | str, devices: Sequence[int]) -> float:
    """Limit torch's allocator to `limit` GiB of each card, without the CUDA context; returns the
    limit in B.

    limit: GiB, or "card" for all free memory except SPARE; the point is skipped if less is free.
    Raises HpmlError.
    """
    import torch

    if limit != CARD and (isinstance(limit, str) or limit <= 0):
        raise HpmlError(f"limit is {limit!r}; use a number of GiB, or {CARD!r} for all of the card")
    free = min(
        torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
        for device in devices
    )
    allowed = free - SPARE if isinstance(limit, str) else limit * GIB
    if allowed > free:
        bench.skip(
            f"a limit of {limit:g} GiB is more than the {free / GIB:.1f} GiB that are free on the"
            " card"
        )
    for device in devices:
        torch.cuda.set_per_process_memory_fraction(
            allowed / torch.cuda.mem_get_info(device)[1], device
        )
    return float(allowed)
