"""What is trained: a model, the shape of its images, how many make an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hpml_plugins import HpmlError

Dtype = Literal["float32", "bf16"]
DTYPES: tuple[Dtype, ...] = ("float32", "bf16")


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


#: The lab's: ResNet18 for CIFAR-10's images. The set is made from the seed: times do not depend on what it shows.
CIFAR = Workload("resnet18", "synthetic-cifar10", (3, 32, 32), 10, 50_000)
#: VGG16 has no normalisation: random images and labels at the lab's rate would soon be NaN.
VGG = Workload("vgg16", "synthetic-224", (3, 224, 224), 1000, 8192, lr=1e-3)
#: For machines without a GPU.
SMALL = Workload("small", "synthetic-8", (3, 8, 8), 10, 1024)


def build(name: str, shape: tuple[int, int, int], classes: int, *, zero_gamma: bool = False) -> Any:
    """The model, freshly initialised from torch's generator, on the CPU.

    resnet18: He's, with the usual stem for small images: a 3×3 convolution of stride 1, no pooling; 11,173,962
    parameters for three channels and ten classes.  vgg16: torchvision's.  small: one residual block, for
    machines without a GPU.
    zero_gamma: the last normalisation of each residual block starts with γ = 0, so that each block is the identity.
    """
    from torch import nn

    if name == "resnet18":
        from torchvision.models import resnet

        model = resnet.ResNet(resnet.BasicBlock, [2, 2, 2, 2], num_classes=classes, zero_init_residual=zero_gamma)
        model.conv1 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = nn.Identity()
        return model
    if name == "vgg16":
        from torchvision.models import vgg16

        return vgg16(num_classes=classes)
    if name == "small":
        from hpml_plugins.plugins.scaling.small_model import SmallResNet

        return SmallResNet(shape[0], classes, zero_gamma=zero_gamma)
    raise HpmlError(f"scaling has no model {name!r}; use resnet18, vgg16 or small")
