"""A process of `machine_compile`: the first call of a compiled function. Prints its seconds and its
error as JSON."""

from __future__ import annotations

import json
import sys
import time


def main(device: str) -> None:
    """Compile a network of two layers and run its forward and backward pass; imports and context
    are not timed."""
    import torch

    torch.manual_seed(0)
    layers = (
        torch.nn.Linear(64, 128),
        torch.nn.GELU(),
        torch.nn.LayerNorm(128),
        torch.nn.Linear(128, 8),
    )
    network = torch.nn.Sequential(*layers).to(device)
    x = torch.randn(32, 64, device=device)

    def gradient(function: torch.nn.Module) -> torch.Tensor:
        network.zero_grad()
        function(x).square().sum().backward()
        grad = network[0].weight.grad
        assert grad is not None
        return grad.clone()

    wanted = gradient(network)
    compiled = torch.compile(network)
    started = time.perf_counter()
    found = gradient(compiled)
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    error = float((found - wanted).abs().max() / wanted.abs().max())
    print(json.dumps([seconds, error]))


if __name__ == "__main__":
    main(sys.argv[1])
