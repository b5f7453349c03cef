"""Who holds which memory: tensors by the storage behind them, each storage counted once, for its first claimant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: Parts of a network's memory that tensors are claimed for, in the order in which they are claimed.
PARTS = ("parameters", "buffers", "gradients", "optimiser_state", "data", "activations")


class Holdings:
    """Storages with the part that they belong to.

    A tensor is a view of a storage, and several tensors may share one: what takes memory is the storage, whole. Claimed
    tensors are kept alive, so that no address can come to mean something else.
    """

    def __init__(self) -> None:
        #: (device, address) → (part, bytes)
        self.storages: dict[tuple[str, int], tuple[str, int]] = {}
        self._alive: list[Any] = []

    def claim(self, part: str, tensors: Iterable[Any]) -> None:
        """Claim the storages behind these tensors for a part; those that are claimed already stay where they are."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.nbytes() and (key := (str(tensor.device), storage.data_ptr())) not in self.storages:
                self.storages[key] = (part, storage.nbytes())
                self._alive.append(tensor)

    def claim_training(self, network: Any, optimiser: Any, data: Iterable[Any]) -> None:
        """Claim what stays from step to step, and the batch."""
        self.claim("parameters", network.parameters())
        self.claim("buffers", network.buffers())
        self.claim("gradients", (each.grad for each in network.parameters() if each.grad is not None))
        kept = (value for state in optimiser.state.values() for value in state.values())
        self.claim("optimiser_state", (value for value in kept if hasattr(value, "untyped_storage")))
        self.claim("data", data)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Claim as activations whatever autograd saves for the backward pass within this block, in this thread."""
        import torch

        def pack(tensor: Any) -> Any:
            self.claim("activations", [tensor])
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield

    def nbytes(self, part: str, device: str | None = None) -> int:
        """Bytes of a part, on one device where named, else on all."""
        found = self.storages.items()
        return sum(size for (where, _), (of, size) in found if of == part and device in (None, where))

    def release(self) -> None:
        """Let go of the tensors; the counts stay."""
        self._alive.clear()


def saved_in_graph(output: Any) -> Iterator[Any]:
    """The tensors that the graph behind `output` has saved, found by walking it: a second way to the same answer.

    Nodes show what they saved as attributes `_saved_…`.
    """
    import torch

    waiting, seen = [output.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_") and isinstance(value := getattr(node, name), torch.Tensor):
                yield value
        waiting += [following for following, _ in node.next_functions]
