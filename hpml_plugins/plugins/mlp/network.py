"""The network of two layers on a device: parameters and gradient as one vector each, passes as matrix products.

Imports torch: imported on use only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hpml_plugins.plugins.mlp.formulas import Sizes
from hpml_plugins.plugins.mlp.phases import ELEMENTWISE, STEP, Phase, no_phase

#: multiply(c, a, b, variant): C = op(A) op(B); see `product`.
Multiply = Callable[..., None]


class Network:
    """D – H – C with sigmoid and softmax, trained on `images` images at a time.

    weights: W1, b1, W2, b2 as NumPy arrays. W1 (H × D), W2 (C × H); images lie in rows. `gradient` lies as `parameters`
    do, W1 first: parts of it may be sent while others are made.
    """

    def __init__(
        self,
        sizes: Sizes,
        images: int,
        weights: list[Any],
        dtype: Any,
        device: Any,
        multiply: Multiply,
        phase: Phase = no_phase,
    ) -> None:
        self.sizes, self.multiply, self.phase = sizes, multiply, phase
        self.parameters = torch.cat([torch.from_numpy(each).reshape(-1) for each in weights]).to(device, dtype)
        self.gradient = torch.zeros_like(self.parameters)
        self.w1, self.b1, self.w2, self.b2 = self._parts(self.parameters)
        self.dw1, self.db1, self.dw2, self.db2 = self._parts(self.gradient)

        def empty(*shape: int) -> Any:
            return torch.empty(shape, dtype=dtype, device=device)

        self.x, self.targets = empty(images, sizes.inputs), empty(images, sizes.classes)
        self.hidden, self.back = empty(images, sizes.hidden), empty(images, sizes.hidden)
        self.y = empty(images, sizes.classes)

    def forward(self) -> None:
        """From x to y, the probabilities of the classes."""
        self.to_scores()
        with self.phase(ELEMENTWISE):
            self.y.add_(self.b2)
            torch.softmax(self.y, 1, out=self.y)

    def to_scores(self) -> None:
        """The two products: y before b2 and the softmax. With a part of the hidden layer, this part's share of it."""
        with self.phase("forward GEMM 1"):
            self.multiply(self.hidden, self.x, self.w1, "nt")
        with self.phase(ELEMENTWISE):
            self.hidden.add_(self.b1).sigmoid_()
        with self.phase("forward GEMM 2"):
            self.multiply(self.y, self.hidden, self.w2, "nt")

    def backward(self, batch: int) -> None:
        """From y to the gradient of the sum over these images, divided by the whole batch."""
        self.backward_to_hidden(batch)
        self.backward_rows(0, self.sizes.hidden)

    def backward_to_hidden(self, batch: int) -> None:
        """All of it but W1's."""
        with self.phase(ELEMENTWISE):
            self.y.sub_(self.targets).mul_(1 / batch)
            torch.sum(self.y, 0, out=self.db2)
        with self.phase("backward GEMM 1"):
            self.multiply(self.dw2, self.y, self.hidden, "tn")
        with self.phase("backward GEMM 2"):
            self.multiply(self.back, self.y, self.w2, "nn")
        with self.phase(ELEMENTWISE):
            # hidden is not needed any more: it becomes the sigmoid's derivative.
            self.hidden.addcmul_(self.hidden, self.hidden, value=-1)
            self.back.mul_(self.hidden)
            torch.sum(self.back, 0, out=self.db1)

    def backward_rows(self, start: int, stop: int) -> None:
        """These rows of W1's gradient. All at once, or each part from its own copy of the columns it is made from."""
        back = self.back if (start, stop) == (0, self.sizes.hidden) else self.back[:, start:stop].contiguous()
        with self.phase("backward GEMM 3"):
            self.multiply(self.dw1[start:stop], back, self.x, "tn")

    def step(self, rate: float, reg: float) -> None:
        """Gradient descent; ½ reg (|W1|² + |W2|²) is regularised."""
        with self.phase(STEP):
            if reg:
                self.w1.mul_(1 - rate * reg)
                self.w2.mul_(1 - rate * reg)
            self.parameters.sub_(self.gradient, alpha=rate)

    def loss(self) -> float:
        """Mean cross-entropy of the last forward pass. y must not have been used for a backward pass."""
        return float(-(self.y.double().clamp_min(1e-300).log() * self.targets).sum(1).mean())

    def weights(self) -> list[Any]:
        """W1, b1, W2, b2 as NumPy arrays, copied."""
        return [each.cpu().numpy().copy() for each in (self.w1, self.b1, self.w2, self.b2)]

    def _parts(self, flat: Any) -> list[Any]:
        size = self.sizes
        w1, b1, w2, b2 = flat.split((size.hidden * size.inputs, size.hidden, size.classes * size.hidden, size.classes))
        return [w1.view(size.hidden, size.inputs), b1, w2.view(size.classes, size.hidden), b2]
