"""Convolution and linear layers in turn, each keeping the shape of its input, over one device or more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: (images, channels, height, width): the input of the report that this search is from.
SHAPE = (16, 64, 112, 112)
#: Bytes of one activation in single precision: 16 · 64 · 112 · 112 · 4 = 51,380,224.
ACTIVATION = 51_380_224


def shares(layers: int, devices: int) -> list[int]:
    """So many layers over so many devices, as evenly as goes, the first ones with one more."""
    return [layers // devices + (number < layers % devices) for number in range(devices)]


class Stack:
    """Layers whose number can change: on each device convolutions of 64 to 64 channels, 3 × 3, and linear layers 112 to
    112 in turn, a convolution first.

    The report names neither; these keep the shape, so that any number can be stacked. The linear ones work on rows.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = devices
        self._parts: list[list[Any]] = [[] for _ in devices]

    def resize(self, layers: int) -> None:
        """Make it so many layers over all devices; those that are there already stay."""
        import torch

        for part, device, wanted in zip(self._parts, self.devices, shares(layers, len(self.devices)), strict=True):
            del part[wanted:]
            with torch.device(device):
                for place in range(len(part), wanted):
                    part.append(torch.nn.Linear(112, 112) if place % 2 else torch.nn.Conv2d(64, 64, 3, padding=1))

    def counts(self) -> list[tuple[int, int]]:
        """(convolutions, linear layers) on each device."""
        return [((len(part) + 1) // 2, len(part) // 2) for part in self._parts]

    def parts(self) -> list[list[Any]]:
        """The layers on each device."""
        return self._parts

    def part(self, number: int, values: Any) -> Any:
        """A forward pass through the layers on one device, whose input is moved there."""
        values = values.to(self.devices[number])
        for layer in self._parts[number]:
            values = layer(values)
        return values

    def forward(self, values: Any) -> Any:
        """A forward pass through all layers."""
        for number in range(len(self.devices)):
            values = self.part(number, values)
        return values
