"""A GPT-2-shaped decoder and its training step. Imports torch: imported on use only."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.nn.functional import (
    cross_entropy,
    gelu,
    layer_norm,
    linear,
    scaled_dot_product_attention,
)
from torch.utils.checkpoint import checkpoint

from hpml_plugins.plugins.llm.shapes import Decoder

#: Standard deviation of the weights, as in GPT-2.
DEVIATION = 0.02
#: GPT-3's of 125 M parameters: Brown et al., arXiv 2005.14165, table 2.1 and appendix B.
LEARNING_RATE, BETAS, WEIGHT_DECAY = 6e-4, (0.9, 0.95), 0.1
#: Sequences that the uncompiled model computes at a time.
CHUNK = 4


class Block(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Causal attention and a feed-forward block, each behind a LayerNorm and beside a residual
    connection."""

    def __init__(self, shape: Decoder) -> None:
        super().__init__()
        width, inner = shape.hidden, shape.intermediate
        self.heads = shape.heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_feed_forward = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x: Any) -> Any:
        """x: (batch, length, width), float32. Returns the same."""
        batch, length, width = x.shape
        parts = self.qkv(self.norm_attention(x)).split(width, dim=2)
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts
        )
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        inner = gelu(self.up(self.norm_feed_forward(x)), approximate="tanh")
        return x + self.down(inner)


def head_loss(x: Any, weight: Any, bias: Any, embedding: Any, targets: Any) -> Any:
    """The mean cross-entropy of all tokens.

    x: (batch, length, width), of the last block.  weight, bias: of the last LayerNorm.  embedding:
    (vocabulary, width). targets: (batch, length).
    """
    logits = linear(layer_norm(x, weight.shape, weight, bias), embedding)
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


class Gpt(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """The model; its blocks and the loss run as they are written until `compile_parts` is
    called."""

    def __init__(self, shape: Decoder, *, checkpointing: bool) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = nn.Embedding(shape.positions, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.hidden)
        self._head_loss: Callable[..., Any] = head_loss
        self._initialise(shape.layers)

    def _initialise(self, layers: int) -> None:
        """As GPT-2: normal weights, zero biases, smaller where a residual connection adds up what 2
        L blocks give."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                adds_up = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(
                    parameter, std=DEVIATION / math.sqrt(2 * layers) if adds_up else DEVIATION
                )
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def compile_parts(self, backend: str = "inductor") -> None:
        """Compile each block by itself, and the head with the loss.

        The blocks share their code and differ in their weights, which are inputs of the compiled
        code: the first one is compiled, the others use it. Compiling the whole model takes several
        times as long.
        """
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1  # a pool of processes takes seconds to start
        for block in self.blocks:
            block.compile(dynamic=False, backend=backend)
        self._head_loss = torch.compile(head_loss, dynamic=False, backend=backend)

    def embedded(self, tokens: Any) -> Any:
        """What the first block is given, (batch, length, width)."""
        return self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]

    def hidden(self, tokens: Any, *, eager: bool = False) -> Any:
        """The last block's result, (batch, length, width).  eager: by the code that was not
        compiled."""
        x = self.embedded(tokens)
        for block in self.blocks:
            if eager:
                x = block.forward(x)
            elif self.checkpointing:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x)
        return x

    def loss(self, hidden: Any, targets: Any, *, eager: bool = False) -> Any:
        """The mean loss of what `hidden` returned."""
        function = head_loss if eager else self._head_loss
        return function(hidden, self.norm.weight, self.norm.bias, self.embedding.weight, targets)


class Trainer:
    """Trains on one batch of random tokens, over and over, by AdamW, fused.

    On a GPU products are computed in bfloat16 by autocast and the parts are compiled; on a CPU all
    is float32, eager. loss: of the last step.
    """

    def __init__(
        self, shape: Decoder, batch: int, length: int, checkpointing: bool, device: str, seed: int
    ) -> None:
        torch.manual_seed(seed)
        with torch.device(device):
            self.model = Gpt(shape, checkpointing=checkpointing)
            text = torch.randint(shape.vocabulary, (batch, length + 1))
        self.tokens, self.targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=LEARNING_RATE,
            betas=BETAS,
            weight_decay=WEIGHT_DECAY,
            fused=True,
        )
        self.device = device
        self.loss: Any = None
        if device == "cuda":
            self.model.compile_parts()

    def step(self) -> None:
        """Forward, backward, update."""
        self.train(keep=0)

    def train(self, *, keep: int) -> Any:
        """One step; returns what the last block made of the first `keep` sequences."""
        with self._precision():
            hidden = self.model.hidden(self.tokens)
            loss = self.model.loss(hidden, self.targets)
        kept = hidden[:keep].detach().clone()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = loss.detach()
        return kept

    def embedded(self, count: int) -> Any:
        """What the first block is given of the first `count` sequences."""
        with torch.no_grad():
            return self.model.embedded(self.tokens[:count])

    def eager_hidden(self, count: int) -> Any:
        """What the last block makes of the first `count` sequences, by the code that was not
        compiled."""
        with torch.no_grad(), self._precision():
            return self.model.hidden(self.tokens[:count], eager=True)

    def eager_loss(self) -> float:
        """The mean loss of the batch, by the code that was not compiled, some sequences at a
        time."""
        total = 0.0
        with torch.no_grad(), self._precision():
            for tokens, targets in zip(
                self.tokens.split(CHUNK), self.targets.split(CHUNK), strict=True
            ):
                hidden = self.model.hidden(tokens, eager=True)
                total += len(tokens) * float(self.model.loss(hidden, targets, eager=True))
        return total / len(self.tokens)

    def _precision(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = torch.autocast(
            self.device, torch.bfloat16, enabled=self.device == "cuda"
        )
        return found
