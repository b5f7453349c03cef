"""The small model of machines without a GPU. Imports torch: imported on use only."""

from __future__ import annotations

from typing import Any

from torch import nn

WIDTH = 16


class SmallResNet(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """One residual block between a convolution and a classifier: what ResNet18 is made of, once."""

    def __init__(self, channels: int, classes: int, *, zero_gamma: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU()
        )
        self.block = nn.Sequential(
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False),
            nn.BatchNorm2d(WIDTH),
        )
        self.head = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * WIDTH, classes))
        if zero_gamma:
            nn.init.zeros_(self.block[-1].weight)

    def forward(self, images: Any) -> Any:
        """Logits."""
        images = self.stem(images)
        return self.head(images + self.block(images))
