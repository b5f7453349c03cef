"""A model with weights on the device that measures: its forward pass and its training step. Imports torch."""

from __future__ import annotations

import copy
from typing import Any

import torch

from hpml_plugins import HpmlError, build_model
from hpml_plugins.plugins.paleo import precisions


class Network:
    """A model, a batch of random inputs and labels, in a precision on a device, made from the seed.

    Weights are drawn by He et al.'s rule, so that numbers neither vanish nor overflow on their way through the layers.
    Raises HpmlError for an unknown model, and for one that does not take pictures or give one row of scores each.
    """

    def __init__(self, model: str, dtype: str, batch: int, device: str, seed: int) -> None:
        self.name = model
        self.device = device
        kind = precisions.use(dtype)
        network, one = build_model(model)
        if not one.is_floating_point():
            raise HpmlError(f"model {model!r} does not take pictures: its input is {one.dtype}")
        torch.manual_seed(seed)
        self.network = _drawn(network.to(device)).to(kind)
        self.images = torch.randn(batch, *one.shape[1:], device=device).to(kind)
        scores = self._run()
        if not isinstance(scores, torch.Tensor) or scores.dim() != 2:
            raise HpmlError(f"model {model!r} does not give one row of scores for each input")
        self.labels = torch.randint(scores.shape[1], (batch,), device=device)
        self.loss: Any = None

    def forward(self) -> Any:
        """One forward pass in eval mode, without gradients."""
        with torch.no_grad():
            return self.network(self.images)

    def train(self) -> None:
        """Forward, cross entropy, backward; no optimiser. Gradients are made anew, not added to. Needs train mode."""
        self.network.zero_grad(set_to_none=True)
        self.loss = torch.nn.functional.cross_entropy(self.network(self.images), self.labels)
        self.loss.backward()

    def error(self) -> float:
        """Relative error (2-norm) of the first input's scores against float64 on the CPU; NaN where not finite."""
        truth_of = copy.deepcopy(self.network).to("cpu", torch.float64)
        with torch.no_grad():
            truth = truth_of(self.images[:1].to("cpu", torch.float64))
            found = self.network(self.images)[:1].to("cpu", torch.float64)
        return float((found - truth).norm() / truth.norm())

    def gradients_finite(self) -> bool:
        """Whether the loss and all gradients of the last training step are finite, and every parameter has one."""
        gradients = [parameter.grad for parameter in self.network.parameters()]
        return bool(self.loss.isfinite()) and all(
            gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients
        )

    def _run(self) -> Any:
        try:
            return self.forward()
        except HpmlError:
            raise
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            shape = "x".join(map(str, self.images.shape))
            raise HpmlError(f"model {self.name!r} does not run on {shape}: {type(error).__name__}: {error}") from error


def _drawn(network: Any) -> Any:
    """The network with its weights drawn: matrices by He et al., scales 1, shifts 0."""
    with torch.no_grad():
        for module in network.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.dim() > 1:
                    torch.nn.init.kaiming_normal_(parameter, nonlinearity="relu")
                else:
                    parameter.fill_(1.0 if name == "weight" else 0.0)
    return network
