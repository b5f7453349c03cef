"""What is trained, on how many GPUs or processes, and what a node must have for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpml_plugins import HpmlError, Requires

Dtype = Literal["float32", "bf16"]
Scaling = Literal["weak", "strong"]
DTYPES: tuple[Dtype, ...] = ("float32", "bf16")
GPUS = (2, 4, 8)
#: torch's optimizers and DDP import torch._dynamo at their first use, which takes seconds on every rank.
TORCH = ("torch", "torch._dynamo")
MODULES = (*TORCH, "torchvision")
ALL_GPUS = Requires(gpus="gpus", modules=MODULES)
CPU = Requires(modules=TORCH)


@dataclass(frozen=True)
class Workload:
    """A model and the images that it is trained on.

    data: what the images are called.  shape: (channels, height, width).  images: in an epoch.  lr: learning rate.
    """

    model: str
    data: str
    shape: tuple[int, int, int]
    classes: int
    images: int
    lr: float = 0.1

    def __str__(self) -> str:
        return f"{self.model} {'×'.join(str(side) for side in self.shape)}"


#: The coursework's: ResNet18 for CIFAR-10's images. They are random: times do not depend on what they show.
CIFAR = Workload("resnet18", "synthetic-cifar10", (3, 32, 32), 10, 50_000)
#: VGG16 has no normalisation: random images and labels at the usual rate would soon be NaN.
VGG = Workload("vgg16", "synthetic-224", (3, 224, 224), 1000, 8192, lr=1e-3)
#: For machines without a GPU.
SMALL = Workload("small", "synthetic-8", (3, 8, 8), 10, 1024)


@dataclass(frozen=True)
class Job:
    """Training on so many ranks, and on one for comparison.

    batch: images on each rank (weak scaling) or on all of them (strong), and on the one rank alone.  graph: each step
    is one CUDA graph. Raises HpmlError where a batch cannot be shared out evenly.
    """

    workload: Workload
    batch: int
    dtype: Dtype
    ranks: int = 1
    scaling: Scaling = "weak"
    graph: bool = False

    def __post_init__(self) -> None:
        if self.scaling == "strong" and self.batch % self.ranks:
            raise HpmlError(f"a batch of {self.batch} cannot be shared out evenly over {self.ranks}; use a multiple")

    @property
    def share(self) -> int:
        """Images on each rank."""
        return self.batch if self.scaling == "weak" else self.batch // self.ranks
