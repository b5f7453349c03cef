"""Judging an image from several views of it. Imports torch: imported on use only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional


def seen(images: Any, views: int, logits_of: Callable[[Any], Any]) -> Any:
    """Logits over views: as it is; mirrored too; half of the weight moved by a pixel, up left and down right, too."""
    if views == 1:
        return logits_of(images)

    def both(x: Any) -> Any:
        return logits_of(x) + logits_of(x.flip(-1).contiguous(memory_format=_layout_of(x)))

    if views == 2:
        return both(images)
    height, width = images.shape[2:]
    padded = functional.pad(images, (1, 1, 1, 1), mode="reflect")
    moved = [
        padded[:, :, place : place + height, place : place + width].contiguous(memory_format=_layout_of(images))
        for place in (0, 2)
    ]
    return both(images) + 0.5 * sum(both(x) for x in moved)


def _layout_of(images: Any) -> Any:
    channels_last = images.is_contiguous(memory_format=torch.channels_last) and images.shape[1] > 1
    return torch.channels_last if channels_last else torch.contiguous_format
