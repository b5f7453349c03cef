"""A classifier and its training step. Imports torch: imported on use only."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from hpml_plugins import HpmlError

#: ImageNet's.
CLASSES = 1000
#: A low rate, so that the loss on one batch falls from the first step on.
LEARNING_RATE, MOMENTUM = 0.01, 0.9


def build(model: str) -> Any:
    """torchvision's model of this name, with random weights. Raises HpmlError for an unknown
    name."""
    from torchvision import models

    if model not in models.list_models(module=models):
        raise HpmlError(
            f"torchvision has no classifier {model!r}; use one such as resnet18 or resnet50"
        )
    return models.get_model(model, weights=None)


def forward_flop(model: str, side: int) -> int:
    """FLOP of a forward pass of one image, 2 a multiply-add, by torch's flop_counter; nothing is
    computed.

    ResNet-50 on 224 × 224: 8.178 GFLOP, which are the 4.089 G multiply-adds that torchvision
    publishes.
    """
    from torch.utils.flop_counter import FlopCounterMode

    network = build(model).eval().to("meta")
    image = torch.empty(1, 3, side, side, device="meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(image)
    return int(counter.get_total_flops())


class Trainer:
    """Trains repeatedly on one batch of random images and labels. loss: of the last step.

    Sets this process's precision of float32 products and convolutions.
    """

    def __init__(
        self, model: str, batch: int, dtype: str, side: int, device: str, seed: int
    ) -> None:
        rounds = dtype == "tf32"
        torch.set_float32_matmul_precision("high" if rounds else "highest")
        torch.backends.cudnn.allow_tf32 = rounds
        torch.manual_seed(seed)
        layout = torch.channels_last
        self.network = build(model).to(device, memory_format=layout).train()
        generator = torch.Generator(device).manual_seed(seed)
        images = torch.randn(batch, 3, side, side, generator=generator, device=device)
        self.images = images.to(memory_format=layout)
        self.labels = torch.randint(CLASSES, (batch,), generator=generator, device=device)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, fused=True
        )
        self.loss: Any = None
        self._autocast = {
            "device_type": device,
            "dtype": torch.bfloat16,
            "enabled": dtype == "bfloat16",
        }

    def step(self) -> None:
        """Forward, backward, update."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(**self._autocast):
            loss = cross_entropy(self.network(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.detach()
