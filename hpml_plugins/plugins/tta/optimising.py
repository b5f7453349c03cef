"""Optimisers with learning rates in tensors on the device, where a captured step reads them.
Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from hpml_plugins.plugins.tta.networks import SpeedNet
from hpml_plugins.plugins.tta.recipes import Recipe

#: Coefficients of the quintic iteration: steepest at 0, so that a few rounds suffice. Singular
#: values end between about 0.5 and 1.5. Source: Jordan et al., Muon: an optimizer for hidden layers
#: in neural networks, kellerjordan.github.io/posts/muon.
QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalised(matrices: Any, iterations: int) -> Any:
    """U Vᵀ of each matrix U S Vᵀ, roughly: Newton–Schulz rounds.  matrices: (number, rows,
    columns)."""
    a, b, c = QUINTIC
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(x.dtype)
    for _ in range(iterations):
        square = x @ x.mT
        x = a * x + (b * square + c * (square @ square)) @ x
    return x.mT if tall else x


class Muon:
    """Orthogonalised momentum, with weights kept at a fixed norm; handles all matrices of one shape
    together."""

    def __init__(
        self, weights: Sequence[Any], momentum: float, iterations: int, device: str
    ) -> None:
        shapes: dict[Any, list[Any]] = {}
        for weight in weights:
            shapes.setdefault(tuple(weight.shape), []).append(weight)
        self.weights, self.groups = weights, list(shapes.values())
        self.momentum, self.iterations = momentum, iterations
        self.work = torch.bfloat16 if device.startswith("cuda") else torch.float32
        self.buffers = [
            torch.zeros(len(group), *group[0].flatten(1).shape, device=device)
            for group in self.groups
        ]

    def gradients(self) -> list[list[Any]]:
        return [[weight.grad for weight in group] for group in self.groups]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def update(
        self, groups: list[list[Any]], gradients: list[list[Any]], buffers: list[Any], rate: Any
    ) -> None:
        """One update of these weights.  rate: a tensor. All inputs are arguments, so that it can be
        compiled."""
        for group, grads, buffer in zip(groups, gradients, buffers, strict=True):
            gradient = torch.stack([grad.flatten(1) for grad in grads]).float()
            buffer.mul_(self.momentum).add_(gradient)
            update = orthogonalised(
                (gradient + self.momentum * buffer).to(self.work), self.iterations
            ).float()
            values = torch.stack([weight.flatten(1) for weight in group]).float()
            norm = values.norm(dim=(1, 2), keepdim=True)
            values = values * (len(group[0]) ** 0.5 / norm) - rate * update
            for weight, value in zip(group, values.unbind(), strict=True):
                weight.copy_(value.view(weight.shape))


class Optimiser:
    """SGD, and Muon if the recipe has it, with every rate read from a table on the device by the
    step's number.

    compiled: compiles a function.
    """

    def __init__(
        self,
        network: Any,
        recipe: Recipe,
        steps: int,
        steps_an_epoch: int,
        device: str,
        compiled: Callable[[Any], Any],
        peak: float = 1.0,
    ) -> None:
        shares = [recipe.schedule.share_of_peak(step, steps) for step in range(steps)]
        bias_steps = recipe.whiten_bias_epochs * steps_an_epoch
        # The rates of the whitening's bias, which is trained for a limited number of steps.
        falling = [
            max(0.0, 1.0 - step / bias_steps) if bias_steps else 1.0 for step in range(steps)
        ]
        tables: list[list[float]] = []
        groups: list[dict[str, Any]] = []
        for parameters, rate, decay, of_bias in _groups(network, recipe):
            # A fused step reads its rate on the device; the others take it from the host.
            groups.append(
                {"params": parameters, "weight_decay": decay, "lr": torch.zeros((), device=device)}
            )
            tables.append([rate * peak * share for share in (falling if of_bias else shares)])
        self.sgd = torch.optim.SGD(
            groups,
            lr=0.0,
            momentum=recipe.sgd.momentum,
            nesterov=recipe.sgd.nesterov,
            fused=device.startswith("cuda"),
        )
        self.muon: Muon | None = None
        self._muon_update: Any = None
        if recipe.muon:
            weights = _convolutions(network)
            self.muon = Muon(weights, recipe.muon.momentum, recipe.muon.iterations, device)
            self._muon_update = compiled(self.muon.update)
            tables.append([recipe.muon.lr * share for share in shares])
        self._tables = torch.tensor(tables, dtype=torch.float32, device=device)

    def zero_grad(self) -> None:
        self.sgd.zero_grad(set_to_none=True)
        for weight in self.muon.weights if self.muon else ():
            weight.grad = None

    def step(self, number: Any) -> None:
        """Update.  number: of the step, int64 (1,), on the device."""
        rates = self._tables.index_select(1, number.clamp(max=self._tables.shape[1] - 1))[:, 0]
        for group, rate in zip(self.sgd.param_groups, rates.unbind(), strict=False):
            group["lr"].copy_(rate)
        self.sgd.step()
        if self.muon:
            self._muon_update(self.muon.groups, self.muon.gradients(), self.muon.buffers, rates[-1])

    def reset(self) -> None:
        """Reset to the state before the first step; the tensors keep their addresses, which graphs
        use."""
        for state in self.sgd.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"].zero_()
        for buffer in self.muon.buffers if self.muon else ():
            buffer.zero_()


def _convolutions(network: Any) -> list[Any]:
    return [
        parameter
        for parameter in network.parameters()
        if parameter.ndim == 4 and parameter.requires_grad
    ]


def _groups(network: Any, recipe: Recipe) -> list[tuple[list[Any], float, float, bool]]:
    """(parameters, rate, weight decay, whether the whitening's bias) of each group of SGD."""
    sgd = recipe.sgd
    left = {
        id(parameter): parameter for parameter in network.parameters() if parameter.requires_grad
    }

    def take(parameters: Iterable[Any]) -> list[Any]:
        return [left.pop(id(parameter)) for parameter in parameters if id(parameter) in left]

    if recipe.muon:
        take(_convolutions(network))
    groups: list[tuple[list[Any], float, float, bool]] = []
    if isinstance(network, SpeedNet):
        groups.append((take([network.whitening.bias]), sgd.lr, 0.0, True))
        groups.append((take([network.head.weight]), sgd.head_lr or sgd.lr, 0.0, False))
    if groups or not sgd.decay_norms:
        # Normalisations and biases: no other parameter has one dimension.
        groups.append(
            (
                take(parameter for parameter in network.parameters() if parameter.ndim == 1),
                sgd.lr,
                0.0,
                False,
            )
        )
    groups.append((take(network.parameters()), sgd.lr, sgd.weight_decay, False))
    if sgd.head_lr is not None:
        groups = [
            (parameters, rate, sgd.weight_decay / rate, of_bias)
            for parameters, rate, _, of_bias in groups
        ]
    return [group for group in groups if group[0]]
