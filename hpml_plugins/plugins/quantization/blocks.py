"""A sequential network as the blocks that integers compute; what cannot be quantized, by name and with the reason.

Imports torch: imported on use only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

Kind = Literal["weights", "shape", "float"]


@dataclass(frozen=True)
class Block:
    """One module, with the ReLU behind it.

    kind: "weights", a convolution or linear layer; "shape", what only chooses or moves integers (max pooling); "float",
    what stays in floating point, and why.
    """

    name: str
    module: nn.Module
    kind: Kind
    relu: bool = False
    why: str = ""

    def run(self, values: Any) -> Any:
        """In floating point, as the network has it."""
        values = self.module(values)
        return torch.relu(values) if self.relu else values


def blocks_of(network: nn.Sequential) -> list[Block]:
    """The modules in order. A ReLU behind weights is part of their block: the clamp of their result does it."""
    blocks: list[Block] = []
    for name, module in network.named_children():
        if isinstance(module, nn.ReLU) and blocks and blocks[-1].kind == "weights" and not blocks[-1].relu:
            last = blocks[-1]
            blocks[-1] = Block(last.name, last.module, "weights", relu=True)
        elif why := _cannot(module):
            blocks.append(Block(name, module, "float", why=why))
        else:
            blocks.append(Block(name, module, "weights" if isinstance(module, nn.Conv2d | nn.Linear) else "shape"))
    return blocks


def left_in_float(blocks: list[Block]) -> dict[str, str]:
    """Layer → why it is not quantized; empty when every one is."""
    return {block.name: block.why for block in blocks if block.kind == "float"}


def _cannot(module: nn.Module) -> str:
    if isinstance(module, nn.Conv2d | nn.Linear):
        parameters = [module.weight, *([] if module.bias is None else [module.bias])]
        if not all(bool(torch.isfinite(each).all()) for each in parameters):
            return "its weights are not finite"
    if isinstance(module, nn.Conv2d):
        plain = module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
        return "" if plain and not isinstance(module.padding, str) else "only plain convolutions are quantized here"
    if isinstance(module, nn.MaxPool2d):
        fits = module.kernel_size == module.stride and not module.padding and not module.ceil_mode
        return "" if fits and module.dilation == 1 else "only pooling without overlap and padding is quantized here"
    if isinstance(module, nn.Linear | nn.Flatten):
        return ""
    return f"{type(module).__name__} has no rule here"
