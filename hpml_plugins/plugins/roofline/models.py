"""A forward pass or a training step of a torchvision classifier. Imports torch: imported inside `measure` only."""

from __future__ import annotations

import difflib
import math
from typing import Any

import torch
from torchvision import models

from hpml_plugins import HpmlError
from hpml_plugins.plugins.roofline import dtypes
from hpml_plugins.plugins.roofline.estimating import estimate
from hpml_plugins.plugins.roofline.work import Step

STEPS = ("forward", "train")
SIZE, CLASSES = 224, 1000
#: Low: at 0.01 the loss of a ResNet50 on a few images rises again after three steps.
LEARNING_RATE = 0.001


class ModelStep:
    """One step of a model on random images.

    "forward": eval mode, no gradients.  "train": forward, cross entropy, backward and SGD without momentum.
    Weights, activations and gradients are in the precision's torch.dtype; weights and images come from the seed, so
    that the counted program and the timed one do the same. Raises HpmlError for an unknown model or step.
    """

    def __init__(self, model: str, step: str, dtype: str, batch: int, device: str, seed: int) -> None:
        require(model, step)
        self.dtype = dtypes.use(dtype)
        torch.manual_seed(seed)
        self.on_cpu = models.get_model(model, weights=None).eval()
        self.images = torch.randn(batch, 3, SIZE, SIZE)
        self.network = models.get_model(model, weights=None)
        self.network.load_state_dict(self.on_cpu.state_dict())
        self.network.to(device, self.dtype).train(step == "train")
        self.on_device = self.images.to(device, self.dtype)
        self.labels = torch.randint(CLASSES, (batch,)).to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=LEARNING_RATE)
        self.loss = torch.full((), math.nan)
        run = self._train if step == "train" else self._forward
        self.step = Step(run, lambda: estimate(run))

    def _forward(self) -> Any:
        with torch.no_grad():
            return self.network(self.on_device)

    def _train(self) -> Any:
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.network(self.on_device), self.labels)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.detach()
        return self.loss

    def forward_error(self) -> float:
        """Relative error (2-norm) of the logits of up to two images against float32 on the CPU, in eval mode."""
        training = self.network.training
        with torch.no_grad():
            truth = self.on_cpu(self.images[:2])
            found = self.network.eval()(self.on_device[:2]).float().cpu()
        self.network.train(training)
        return float((found - truth).norm() / truth.norm())


def require(model: str, step: str) -> None:
    """Raise HpmlError, with the nearest names, for a model that torchvision lacks or an unknown step."""
    known = models.list_models(module=models)
    if model not in known:
        near = ", ".join(difflib.get_close_matches(model, known, n=3)) or "see torchvision.models.list_models()"
        raise HpmlError(f"torchvision has no classifier {model!r}; near: {near}")
    if step not in STEPS:
        raise HpmlError(f"no step {step!r}; use one of {', '.join(STEPS)}")
