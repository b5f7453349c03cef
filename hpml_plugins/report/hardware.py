"""GPU types: what columns of pages and colours of charts stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpml_plugins.model.record import Record


@dataclass(frozen=True, order=True)
class Hardware:
    """What a column of a page stands for: a GPU type and how many, or a CPU.

    kind: 0 a GPU, 1 no GPU, 2 unknown; columns stand in this order.  cpu: told apart only where there is no GPU, for
    then the CPU is what computes.
    """

    kind: int
    gpu: str
    num_gpu: str
    cpu: str = ""

    @property
    def label(self) -> str:
        """`NVIDIA H200 ×2`, `no GPU (CPU name)` or `unknown`."""
        if self.kind == 1:
            return f"no GPU ({self.cpu or 'unknown CPU'})"
        return f"{self.gpu} ×{self.num_gpu}" if self.num_gpu else self.gpu

    @property
    def name(self) -> str:
        """The GPU's name, or the CPU's where there is no GPU."""
        return self.cpu if self.kind == 1 else self.gpu

    @property
    def count(self) -> int:
        """How many GPUs; 0 where there is none or the number is not known."""
        known = self.kind == 0 and self.num_gpu.isdecimal() and len(self.num_gpu) <= 6  # a damaged file may say any
        return int(self.num_gpu) if known else 0


def hardware_of(facts: Mapping[str, Any]) -> Hardware:
    """The hardware that asv's machine facts name (`gpu`, `num_gpu`, `cpu`)."""
    gpu, num_gpu, cpu = (
        "" if (value := facts.get(key)) is None else str(value).strip() for key in ("gpu", "num_gpu", "cpu")
    )
    if not gpu or gpu == "unknown":
        return Hardware(2, "unknown", num_gpu)
    return Hardware(1, gpu, "", cpu) if gpu == "none" else Hardware(0, gpu, num_gpu)


def stored_hardware(record: Record) -> Hardware:
    """The same as a Record's node has it; unknown where it does not tell."""
    if "gpus" not in record.node:
        return hardware_of({})
    names = dict.fromkeys(str(gpu.get("name") or "unknown") for gpu in record.gpus)
    count = len(record.gpus) if names else ""
    return hardware_of({"gpu": " + ".join(names) or "none", "num_gpu": count, "cpu": record.node.get("cpu")})
