"""What ranks are to train, and the exercise's numbers. Imports nothing heavy: ranks are forked from a fresh process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpml_plugins.plugins.mlp.formulas import Sizes
from hpml_plugins.plugins.mlp.tiles import ITEM, Dtype

Product = Literal["own", "torch"]
#: Who adds gradients up: MPI through the host, as the exercise does; MPI on GPU memory; NCCL; gloo through the host.
Way = Literal["mpi", "cuda_mpi", "nccl", "gloo"]
#: Inputs and classes of the network, regularisation, learning rate.
INPUTS, CLASSES, REG, RATE = 784, 10, 1e-4, 0.01


@dataclass(frozen=True)
class Job:
    """What the ranks train.

    batch: over all ranks.  pinned: the host's memory for gradients and images.  waiting: parts of a gradient that go
    through the host are added up by calls that return when it is done (`MPI_Allreduce`), not by `MPI_Iallreduce`.
    """

    hidden: int
    batch: int
    dtype: Dtype
    product: Product
    way: Way
    pinned: bool = False
    waiting: bool = False
    inputs: int = INPUTS
    classes: int = CLASSES

    @property
    def sizes(self) -> Sizes:
        """Of the network."""
        return Sizes(self.inputs, self.hidden, self.classes)

    @property
    def item(self) -> int:
        """B of a number."""
        return ITEM[self.dtype]

    @property
    def through_host(self) -> bool:
        """Whether gradients are added up in the host's memory."""
        return self.way in ("mpi", "gloo")

    @property
    def launcher(self) -> Literal["torch", "mpi"]:
        """Who starts ranks for this way."""
        return "mpi" if self.way in ("mpi", "cuda_mpi") else "torch"
