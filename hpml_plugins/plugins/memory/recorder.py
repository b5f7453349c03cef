"""A network that claims what its forward pass saves. It imports torch, so it is imported inside `measure` only."""

from __future__ import annotations

from typing import Any

import torch

from hpml_plugins.plugins.memory.holdings import Holdings


class Recorder(torch.nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """`network`, whose saved tensors are claimed in `held` while `on`.

    DataParallel runs each replica in a thread of its own, and autograd's hooks are a thread's: so they are set here, in
    the forward pass, and not around the call.
    """

    def __init__(self, network: Any, held: Holdings) -> None:
        super().__init__()
        self.network = network
        self.held = held
        self.on = False

    def forward(self, images: Any) -> Any:
        """The network's output."""
        if not self.on:
            return self.network(images)
        for module in self.network.modules():
            # A replica's parameters are plain tensors; DataParallel keeps them by this name.
            self.held.claim("parameters", getattr(module, "_former_parameters", {}).values())
            self.held.claim("buffers", (buffer for buffer in module._buffers.values() if buffer is not None))
        with self.held.watching():
            return self.network(images)
