"""Trying what may not fit: out-of-memory is an answer, and the process is as usable after it as before."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

from hpml_plugins import Bench, HpmlError

GIB = 2**30
CARD = "card"
#: Left of a whole card, B: CUDA loads a kernel at its first launch, and on a card full to the brim that fails.
SPARE = GIB // 2
#: How CUDA's libraries say that they could not allocate, where torch's own allocator was not asked.
_OUT_OF_MEMORY = ("out of memory", "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is torch's OutOfMemoryError, or a RuntimeError of CUDA, cuDNN or cuBLAS that says the same."""
    import torch

    said = isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _OUT_OF_MEMORY)
    return isinstance(error, torch.OutOfMemoryError) or said


class Trials:
    """Runs steps that may run out of GPU memory, and gives everything back after each.

    cleanup: drops what a step that was interrupted has left, such as gradients.  refusals: what steps failed of that
    was not memory (an operator that takes no tensor of that size, say): they count as not fitting, and are told.
    """

    def __init__(self, devices: Sequence[int], cleanup: Callable[[], object] = lambda: None) -> None:
        self.devices = devices
        self.cleanup = cleanup
        self.refusals: list[str] = []

    def survives(self, step: Callable[[], object]) -> bool:
        """Whether the step came to its end. Memory that it took is free again, whichever way it ended."""
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
        # Only here are the error and its traceback gone, and with them the frames that hold the step's tensors.
        self.cleanup()
        gc.collect()
        torch.cuda.empty_cache()
        return done


def set_limit(bench: Bench, limit: float | str, devices: Sequence[int]) -> float:
    """Let torch's allocator have no more than `limit` GiB of each card; returns that in B.

    limit: GiB, or "card" for all that is free but SPARE. The CUDA context is not in it; what torch has reserved already
    is. Skips the point where the cards have less free. Raises HpmlError for a limit that is neither.
    """
    import torch

    if limit != CARD and (isinstance(limit, str) or limit <= 0):
        raise HpmlError(f"limit is {limit!r}; use a number of GiB, or {CARD!r} for all of the card")
    free = min(torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) for device in devices)
    allowed = free - SPARE if isinstance(limit, str) else limit * GIB
    if allowed > free:
        bench.skip(f"a limit of {limit:g} GiB is more than the {free / GIB:.1f} GiB that are free on the card")
    for device in devices:
        torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.mem_get_info(device)[1], device)
    return float(allowed)
