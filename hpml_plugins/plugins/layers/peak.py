"""The most memory that a step has allocated at once, beyond what was there before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

#: How often `peak_memory` calls its step.
PASSES = 2


def peak_memory(step: Callable[[], object], device: str) -> float:
    """Bytes that torch allocated at once for one call of `step`, above what it held before.

    device: "cuda", by the statistics of torch's allocator, rounded up as it does (512 B), or "cpu", by the allocations
    that torch's profiler sees; there, libraries that allocate for themselves (oneDNN's scratch memory) are not seen.
    The step runs once before, so that what it allocates for good is not counted.
    """
    import gc

    import torch

    step()
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated() - before)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = step()
    del kept
    events = profiler.profiler.kineto_results.events()
    changes = ((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return float(highest_sum(nbytes for _, nbytes in sorted(changes, key=lambda change: change[0])))


def highest_sum(changes: Iterable[int]) -> int:
    """The highest that a sum gets, from 0, as these are added one after the other."""
    total = highest = 0
    for change in changes:
        total += change
        highest = max(highest, total)
    return highest
