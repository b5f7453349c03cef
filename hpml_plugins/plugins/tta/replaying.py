"""A function of no arguments that is called again and again: as it is, or as one CUDA graph. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch


def own_stream(device: str) -> Any:
    """What to be inside of, from the first use of the network on: a stream that is not the default one, on a GPU.

    A graph cannot be captured on the default stream, and gradients are accumulated on the stream on which a network was
    first used.
    """
    if not device.startswith("cuda"):
        return nullcontext()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)


class Replay:
    """Calls of a function whose inputs and results stay where they are.

    It is first called `warm_up` times: what is compiled, tried out or allocated at first use must be before a capture.
    Must be made and used on a stream of one's own (`own_stream`). times: how often a call calls the function.
    """

    def __init__(self, function: Callable[[], Any], *, graph: bool, warm_up: int = 3, times: int = 1) -> None:
        self._function, self._graph, self._result, self.times = function, None, None, times
        for _ in range(warm_up):
            function()
        if not graph:
            return
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        # "thread_local": NCCL's watchdog thread may look at its events meanwhile.
        with torch.cuda.graph(
            self._graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
        ):  # fmt: skip
            for _ in range(times):
                self._result = function()
        torch.cuda.synchronize()

    def __call__(self) -> Any:
        """What the function returns; of a graph, the tensors that every call writes to."""
        if self._graph is not None:
            self._graph.replay()
            return self._result
        result = None
        for _ in range(self.times):
            result = self._function()
        return result

    def drop(self) -> None:
        """Let go of the graph: NCCL's communicator cannot be taken down while one holds it."""
        if self._graph is not None:
            torch.cuda.synchronize()
            self._graph.reset()
            self._graph = None


def synchronise(device: str) -> None:
    """Wait until the device has done what it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
