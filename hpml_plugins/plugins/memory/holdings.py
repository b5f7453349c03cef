"""Trained networks and the use of their memory: tensors by storage, each counted once, and blocks
of torch's allocator.

Imports torch: for use inside `measure`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torchvision import models

from hpml_plugins import HpmlError
from hpml_plugins.workloads.complexity import require_classifier

#: Pixels a side, and classes: ImageNet's.
SIDE, CLASSES = 224, 1000
#: Parts of a network's memory, in the order in which tensors are claimed for them.
PARTS = ("parameters", "buffers", "gradients", "optimiser_state", "data", "activations")
#: Name → the optimiser of parameters.
OPTIMISERS = {
    "sgd": partial(torch.optim.SGD, lr=0.01, momentum=0.9),
    "adam": partial(torch.optim.Adam, lr=1e-4),
}


def build(model: str, device: str) -> Any:
    """A torchvision classifier in training mode, in single precision, its random weights drawn on
    the device."""
    require_classifier(model)
    with torch.device(device):
        return models.get_model(model, weights=None).train()


def make_images(batch: int, device: str, dtype: Any = None) -> tuple[Any, Any]:
    """Random images, (batch, 3, 224, 224), float32 by default, and their classes, (batch,)
    int64."""
    images = torch.randn(batch, 3, SIDE, SIDE, device=device, dtype=dtype)
    return images, torch.randint(CLASSES, (batch,), device=device)


def build_optimiser(name: str, network: Any) -> Any:
    """SGD with momentum 0.9, or Adam, over all parameters. Raises HpmlError for another name."""
    if name not in OPTIMISERS:
        raise HpmlError(f"no optimiser {name!r}; use one of {', '.join(OPTIMISERS)}")
    return OPTIMISERS[name](network.parameters())


def parameter_bytes(network: Any) -> int:
    """Parameters × 4 bytes: the theoretical need of the model. ResNet18: 11,689,512 · 4 =
    46,758,048."""
    return sum(4 * int(parameter.numel()) for parameter in network.parameters())


class Holdings:
    """Storages, which several tensors may share, with the part that they belong to; kept alive
    until `release`."""

    def __init__(self) -> None:
        #: (device, address) → (part, bytes)
        self.storages: dict[tuple[str, int], tuple[str, int]] = {}
        self._alive: list[Any] = []

    def claim(self, part: str, tensors: Iterable[Any]) -> None:
        """Claim the storages of these tensors for a part; storages already claimed keep their
        part."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if (
                storage.nbytes()
                and (key := (str(tensor.device), storage.data_ptr())) not in self.storages
            ):
                self.storages[key] = (part, storage.nbytes())
                self._alive.append(tensor)

    def claim_training(self, network: Any, optimiser: Any, data: Iterable[Any]) -> None:
        """Claim the tensors that persist between steps, and the batch."""
        self.claim("parameters", network.parameters())
        self.claim("buffers", network.buffers())
        self.claim(
            "gradients", (each.grad for each in network.parameters() if each.grad is not None)
        )
        kept = (value for state in optimiser.state.values() for value in state.values())
        self.claim(
            "optimiser_state", (value for value in kept if hasattr(value, "untyped_storage"))
        )
        self.claim("data", data)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Claim all tensors that autograd saves for the backward pass within this block, in this
        thread, as activations."""

        def pack(tensor: Any) -> Any:
            self.claim("activations", [tensor])
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield

    def nbytes(self, part: str, device: str | None = None) -> int:
        """Bytes of a part, on one device if given, else on all."""
        found = self.storages.items()
        return sum(
            size for (where, _), (of, size) in found if of == part and device in (None, where)
        )

    def release(self) -> None:
        """Release the tensors; the counts are kept."""
        self._alive.clear()


class Recorder(torch.nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """`network`, whose saved tensors are claimed in `held` while `on`.

    Autograd's hooks are per thread, and DataParallel runs each replica in its own, so they are set
    in the forward pass.
    """

    def __init__(self, network: Any, held: Holdings) -> None:
        super().__init__()
        self.network = network
        self.held = held
        self.on = False

    def forward(self, images: Any) -> Any:
        if not self.on:
            return self.network(images)
        for module in self.network.modules():
            # A replica's parameters are plain tensors; DataParallel keeps them by this name.
            self.held.claim("parameters", getattr(module, "_former_parameters", {}).values())
            self.held.claim(
                "buffers", (buffer for buffer in module._buffers.values() if buffer is not None)
            )
        with self.held.watching():
            return self.network(images)


def saved_in_graph(output: Any) -> Iterator[Any]:
    """The tensors that the graph behind `output` has saved, as its nodes' attributes `_saved_…`: a
    second count."""
    waiting, seen = [output.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_") and isinstance(
                value := getattr(node, name), torch.Tensor
            ):
                yield value
        waiting += [following for following, _ in node.next_functions]


class Occupied(NamedTuple):
    """One device's memory by torch's allocator, B.

    parts: part → requested bytes; "other": not claimed.  allocated: rounded up.  lost: claims in no
    active block.
    """

    parts: Counter[str]
    allocated: int
    reserved: int
    lost: int


def occupied(segments: Iterable[Mapping[str, Any]], claimed: Mapping[int, str]) -> Occupied:
    """Sum up the segments of one device from `torch.cuda.memory_snapshot()`.  claimed: address →
    part."""
    parts: Counter[str] = Counter()
    reserved = allocated = 0
    missing = set(claimed)
    for segment in segments:
        reserved += segment["total_size"]
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                parts[claimed.get(address, "other")] += block["requested_size"]
                allocated += block["size"]
                missing.discard(address)
            address += block["size"]
    return Occupied(parts, allocated, reserved, len(missing))
