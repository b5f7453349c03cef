"""A layer of a mixture of experts, by stages: routing, permutation, grouped products, combination.
Imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from hpml_plugins.plugins.kernels.formulas import assignment
from hpml_plugins.plugins.kernels.models import Model

#: The margin of a token's logits for its own experts over the others, which are normal numbers.
MARGIN = 16.0


@dataclass(frozen=True)
class Routing:
    """The routing of tokens. weights: of each token's experts, (tokens, top).  rows: the token of
    each row of the permuted input, sorted by expert, (tokens · top,).  order: the index of each row
    among the choices of all tokens.  ends: the row behind the last one of each expert, int32.
    """

    weights: Any
    rows: Any
    order: Any
    ends: Any


@dataclass(frozen=True)
class Experts:
    """The weights of a layer. router: (experts, hidden).  gate_up: (experts, 2 · intermediate,
    hidden).  down: (experts, hidden, intermediate).  numbers: 0, 1, … of the experts.  top: experts
    per token.
    """

    router: Any
    gate_up: Any
    down: Any
    numbers: Any
    top: int

    def choose(self, x: Any) -> tuple[Any, Any]:
        """The weights and the experts of each token, (tokens, top): softmax over the highest
        logits."""
        highest, chosen = (x @ self.router.T).float().topk(self.top, dim=1)
        return highest.softmax(1), chosen

    def route(self, x: Any) -> Routing:
        """Choose experts and sort the choices by expert."""
        weights, chosen = self.choose(x)
        experts, order = chosen.flatten().sort(stable=True)
        # not bincount, which synchronises with the device
        ends = torch.searchsorted(experts, self.numbers, right=True, out_int32=True)
        return Routing(weights, order // self.top, order, ends)

    def permute(self, x: Any, routing: Routing) -> Any:
        """The tokens, each once per expert, grouped by expert."""
        return x[routing.rows]

    def combine(self, outputs: Any, routing: Routing) -> Any:
        """The weighted sum of each token's outputs."""
        weights = routing.weights.flatten()[routing.order].to(outputs.dtype)
        tokens = len(routing.weights)
        result = torch.zeros(tokens, outputs.shape[1], dtype=outputs.dtype, device=outputs.device)
        return result.index_add_(0, routing.rows, outputs * weights[:, None])

    def forward(self, x: Any) -> Any:
        """The whole layer, without waiting for the device."""
        routing = self.route(x)
        both = grouped(self.permute(x, routing), self.gate_up, routing.ends)
        gate, up = both.chunk(2, dim=1)
        inner = torch.nn.functional.silu(gate) * up
        return self.combine(grouped(inner, self.down, routing.ends), routing)

    def exact(self, x: Any, token: int) -> Any:
        """The layer's result for one token, in float64, by its definition, with the experts that
        `choose` selects."""
        weights, chosen = self.choose(x[token : token + 1])
        value, total = x[token].double(), 0.0
        for weight, expert in zip(weights[0].double(), chosen[0].tolist(), strict=True):
            gate, up = (self.gate_up[expert].double() @ value).chunk(2)
            total = total + weight * (
                self.down[expert].double() @ (torch.nn.functional.silu(gate) * up)
            )
        return total


def grouped(rows: Any, weights: Any, ends: Any) -> Any:
    """Each expert's rows times its weight, (experts, n, k), by one kernel: (rows, n)."""
    return torch._grouped_mm(rows, weights.transpose(1, 2), offs=ends)


def looped(rows: Any, weights: Any, counts: list[int], out: Any) -> Any:
    """The same by one product per expert, into out.  counts: rows of each expert, on the host."""
    for part, weight, result in zip(rows.split(counts), weights, out.split(counts), strict=True):
        if len(part):
            torch.mm(part, weight.t(), out=result)
    return out


def build(
    shape: Model, counts: list[int], tokens: int, device: str, seed: int
) -> tuple[Experts, Any]:
    """A layer of the model, and `tokens` tokens that its router sends to the experts with these
    counts.

    The router's rows are orthonormal; a token has normal numbers plus MARGIN times the rows of its
    experts.
    """
    generator = torch.Generator(device).manual_seed(seed)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def draw(*size: int) -> Any:
        made = torch.empty(size, dtype=dtype, device=device)
        for part in made:
            part.copy_(torch.randn(part.shape, generator=generator, device=device) * 0.02)
        return made

    random = torch.randn(shape.hidden, shape.experts, generator=generator, device=device)
    router = torch.linalg.qr(random)[0].T.contiguous()
    chosen = torch.tensor(assignment(counts, tokens), device=device)
    x = torch.randn(tokens, shape.hidden, generator=generator, device=device) + MARGIN * router[
        chosen
    ].sum(1)
    shuffled = x[torch.randperm(tokens, generator=generator, device=device)]
    gate_up = draw(shape.experts, 2 * shape.intermediate, shape.hidden)
    down = draw(shape.experts, shape.hidden, shape.intermediate)
    numbers = torch.arange(shape.experts, device=device)
    return Experts(router.to(dtype), gate_up, down, numbers, shape.top), shuffled.to(dtype)


def expected_ends(counts: list[int]) -> list[int]:
    """The row after each expert's last one."""
    return list(accumulate(counts))
