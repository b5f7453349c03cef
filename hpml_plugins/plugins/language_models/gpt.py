"""A GPT-2-shaped decoder, its loss in chunks, and its training step. Imports torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import sdpa_kernel
from torch.nn.functional import cross_entropy, gelu, linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from hpml_plugins.plugins.language_models.llama import BACKENDS
from hpml_plugins.plugins.language_models.shapes import Shape

#: Standard deviation of the weights, as in GPT-2.
DEVIATION = 0.02
#: As for GPT-3 with 125 M parameters: Brown et al., arXiv 2005.14165, table 2.1 and appendix B.
LEARNING_RATE, BETAS, WEIGHT_DECAY = 6e-4, (0.9, 0.95), 0.1
#: Tokens whose exponentials exist at a time.
CHUNK = 16384
#: Sequences of the float32 reference at a time.
FEW = 4


def exponentials(x: Any, weight: Any, targets: Any, logits: Any) -> tuple[Any, Any]:
    """exp(x Wᵀ − logit of the row's target), of x's dtype, with 0 for the target itself, (tokens,
    vocabulary), and its sums in float32, (tokens, 1).

    x: (tokens, width).  weight: (vocabulary, width).  targets: (tokens,).  logits: of the targets,
    float32, (tokens, 1).
    """
    found = ((x @ weight.t()).float() - logits).exp()
    column = torch.arange(len(weight), device=x.device)
    found = found.masked_fill(column == targets[:, None], 0.0)
    return found.to(x.dtype), found.sum(1, keepdim=True)


class ChunkedLoss(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped to mypy here
    """Mean cross-entropy of x Wᵀ, whose exponentials exist for CHUNK tokens at a time. The forward
    pass computes the gradients, as it has the exponentials; backward scales them.

    Logits are taken relative to that of the target, whose probability is then 1 / (1 + sum of the
    others' exponentials): no pass looks for the largest, and p − 1 of a target does not cancel. The
    sums multiply the products' smaller factor or result, so the largest matrix is written once. The
    loss is infinite if that of one token is above 88.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, targets: Any, exponentials: Any) -> Any:
        """x: (tokens, width).  weight: (vocabulary, width), of x's dtype.  targets: (tokens,).
        exponentials: as the function of this name."""
        total = torch.zeros((), device=x.device)
        of_x, of_targets, of_weight = [], [], torch.zeros(weight.shape, device=x.device)
        for rows, wanted in zip(x.split(CHUNK), targets.split(CHUNK), strict=True):
            right = weight[wanted]
            logits = (rows.float() * right.float()).sum(1, keepdim=True)
            others, sums = exponentials(rows, weight, wanted, logits)
            total = total + sums.log1p().sum()
            share = 1 / (1 + sums)
            of_targets.append(-sums * share)
            of_rows = (others @ weight) * share + right * of_targets[-1]
            of_x.append((of_rows / len(x)).to(x.dtype))
            of_weight = of_weight + (others.t() @ (rows * share).to(x.dtype)).float()
        of_weight = of_weight.index_add(0, targets, x.float() * torch.cat(of_targets))
        ctx.save_for_backward(torch.cat(of_x), (of_weight / len(x)).to(weight.dtype))
        return total / len(x)

    @staticmethod
    def backward(ctx: Any, scale: Any) -> tuple[Any, Any, None, None]:
        """The gradients of x and the weight."""
        of_x, of_weight = ctx.saved_tensors
        return (
            of_x * scale.to(of_x.dtype),
            of_weight * scale.to(of_weight.dtype),
            None,
            None,
        )


class Layer(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Causal attention and a feed-forward block, each behind a LayerNorm, added to its input; no
    biases."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, inner = shape.hidden, shape.intermediate
        self.head_dim = shape.head_dim
        self.norm_attention = nn.LayerNorm(width, bias=False)
        self.queries = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, width, bias=False)
        self.values = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm_feed_forward = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Any) -> Any:
        """x: (batch, length, width). Returns the same, in the same dtype."""
        x = self.merge(x, attend(*self.project(x)))
        return self.contract(x, self.expand(x))

    def project(self, x: Any) -> tuple[Any, Any, Any]:
        """Queries, keys and values, (batch, heads, length, head_dim) each.

        Three products: the gradients of a single one would first have to be concatenated.
        """
        x = self.norm_attention(x)
        q, k, v = (
            product(x).unflatten(2, (-1, self.head_dim)).transpose(1, 2)
            for product in (self.queries, self.keys, self.values)
        )
        return q, k, v

    def merge(self, x: Any, mixed: Any) -> Any:
        """Add the output of attention, (batch, heads, length, head_dim), to x."""
        return x + self.out(mixed.transpose(1, 2).flatten(2))

    def expand(self, x: Any) -> Any:
        """The intermediate values of the feed-forward block, (batch, length, intermediate)."""
        return gelu(self.up(self.norm_feed_forward(x)), approximate="tanh")

    def contract(self, x: Any, inner: Any) -> Any:
        """Add the output of the feed-forward block to x."""
        return x + self.down(inner)


def attend(q: Any, k: Any, v: Any) -> Any:
    """Causal attention."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


class Gpt(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """The model; it returns its loss.

    dtype: of the products and of the values between layers; weights are float32.
    """

    def __init__(self, shape: Shape, *, checkpointing: bool, dtype: Any) -> None:
        super().__init__()
        self.checkpointing, self.dtype = checkpointing, dtype
        self.exponentials = exponentials
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = nn.Embedding(shape.positions, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.hidden, bias=False)
        self.initialise()

    def initialise(self) -> None:
        """Initialise the weights as GPT-2 does: those that add to the residual stream are
        smaller."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                nn.init.ones_(parameter)
            else:
                adds_up = name.endswith(("out.weight", "down.weight"))
                share = math.sqrt(2 * len(self.layers)) if adds_up else 1.0
                nn.init.normal_(parameter, std=DEVIATION / share)

    def hidden(self, tokens: Any) -> Any:
        """The input of the head, (batch, length, width)."""
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        x = x.to(self.dtype)
        for layer in self.layers:
            if self.checkpointing:
                x = checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = layer(x)
        return self.norm(x).to(self.dtype)

    def forward(self, tokens: Any, targets: Any) -> Any:
        """The mean loss of all tokens.  tokens, targets: (batch, length)."""
        with self.precision(), sdpa_kernel(BACKENDS, set_priority=True):
            return self.loss(self.hidden(tokens), targets)

    def loss(self, x: Any, targets: Any) -> Any:
        """The mean loss from the input of the head."""
        weight = self.embedding.weight.to(self.dtype)
        return ChunkedLoss.apply(x.flatten(0, 1), weight, targets.flatten(), self.exponentials)

    def precision(self) -> AbstractContextManager[Any]:
        """Products in `dtype`."""
        device = self.norm.weight.device.type
        enabled = self.dtype != torch.float32
        found: AbstractContextManager[Any] = torch.autocast(device, self.dtype, enabled=enabled)
        return found

    def reference_loss(self, tokens: Any, targets: Any) -> float:
        """The mean loss in float32, not compiled, by torch's cross-entropy, some sequences at a
        time."""
        dtype, self.dtype = self.dtype, torch.float32
        total = 0.0
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            for some, wanted in zip(tokens.split(FEW), targets.split(FEW), strict=True):
                logits = linear(self.hidden(some), self.embedding.weight)
                loss = cross_entropy(logits.flatten(0, 1), wanted.flatten())
                total += len(some) * float(loss)
        self.dtype = dtype
        return total / len(tokens)

    def compile_layers(self, backend: str = "inductor") -> None:
        """Compile one layer, shared by all, so that DDP and FSDP can wrap the model."""
        compile_in_this_process()
        for layer in self.layers:
            layer.compile(dynamic=False, backend=backend)


def compile_in_this_process() -> None:
    """Disable the pool of compiling processes, which takes seconds to start."""
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1


class Trainer:
    """Trains by fused AdamW.

    model: a Gpt, or its wrapper.  loss: of the last step.
    """

    def __init__(self, model: Any, *, learning_rate: float = LEARNING_RATE) -> None:
        self.model = model
        self._loss: Callable[..., Any] = model
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=learning_rate,
            betas=BETAS,
            weight_decay=WEIGHT_DECAY,
            fused=True,
        )
        self.loss: Any = None

    def compile_whole(self, backend: str = "inductor") -> None:
        """Compile the model with its loss as one function."""
        compile_in_this_process()
        self._loss = torch.compile(self.model, dynamic=False, backend=backend)

    def evaluate(self, tokens: Any, targets: Any) -> Any:
        """The mean loss."""
        return self._loss(tokens, targets)

    def step(self, tokens: Any, targets: Any) -> None:
        """Forward, backward, update."""
        loss = self._loss(tokens, targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = loss.detach()


def made(shape: Shape, checkpointing: bool, device: str, seed: int) -> Gpt:
    """The model with random weights: products in bfloat16 on a GPU, in float32 on a CPU."""
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    torch.manual_seed(seed)
    with torch.device(device):
        return Gpt(shape, checkpointing=checkpointing, dtype=dtype)


def random_text(shape: Shape, batch: int, length: int, device: str, seed: int) -> tuple[Any, Any]:
    """Tokens and the tokens that follow them, (batch, length) each."""
    generator = torch.Generator(device).manual_seed(seed)
    size = (batch, length + 1)
    text = torch.randint(shape.vocabulary, size, generator=generator, device=device)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()
