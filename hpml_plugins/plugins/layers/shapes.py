"""The four layers, with the shapes of the report that they are from."""

from __future__ import annotations

from typing import Any

from hpml_plugins import HpmlError

LAYERS = ("relu", "maxpool", "conv", "linear")
#: One image, (channels, height, width), and the numbers that enter VGG16's first linear layer.
IMAGE = (3, 224, 224)
FEATURES = 512 * 7 * 7
OUTPUTS = 4096
#: Layers whose result is some of their input's numbers: it must be exact.
EXACT = ("relu", "maxpool")


def build(layer: str, device: str) -> Any:
    """ReLU in place, MaxPool2d(2, 2), Conv2d(3, 128, 3, padding=1) or Linear(25088, 4096), on the device."""
    import torch

    with torch.device(device):
        if layer == "relu":
            return torch.nn.ReLU(inplace=True)
        if layer == "maxpool":
            return torch.nn.MaxPool2d(kernel_size=2, stride=2, padding=0)
        if layer == "conv":
            return torch.nn.Conv2d(3, 128, kernel_size=3, padding=1)
        if layer == "linear":
            return torch.nn.Linear(FEATURES, OUTPUTS)
    raise HpmlError(f"no layer {layer!r}; use one of {', '.join(LAYERS)}")


def input_shape(layer: str, batch: int) -> tuple[int, ...]:
    """(batch, 3, 224, 224), or (batch, 25088) for the linear layer."""
    return (batch, FEATURES) if layer == "linear" else (batch, *IMAGE)


def flop(layer: str, batch: int, mode: str) -> int:
    """FLOP of the multiply-adds of a convolution or linear layer, 2 each; 0 for the others. The bias is not counted.

    The backward pass is two products of the same size, one for the input's gradient and one for the weight's.
    Linear, 256 rows, forward: 2 · 256 · 25,088 · 4,096 = 52,613,349,376.
    """
    outputs = {"conv": 128 * 224 * 224 * 3 * 3**2, "linear": FEATURES * OUTPUTS}.get(layer, 0)
    return 2 * batch * outputs * (3 if mode == "training" else 1)


def largest_bytes(layer: str, batch: int) -> int:
    """Bytes of the largest tensor, the convolution's output: 256 · 128 · 224 · 224 · 4 = 6,576,668,672."""
    rows = {"conv": 128 * 224 * 224, "linear": FEATURES}.get(layer, 3 * 224 * 224)
    return 4 * max(rows * batch, FEATURES * OUTPUTS if layer == "linear" else 0)


def tolerance(layer: str, device: str) -> float:
    """Largest error against float64, as a share of the norm of the result.

    Convolutions on a GPU may use TF32 (torch's default), which rounds each factor by up to 2**-11.
    """
    import torch

    if layer in EXACT:
        return 0.0
    return 5e-3 if device == "cuda" and layer == "conv" and torch.backends.cudnn.allow_tf32 else 5e-5
