"""A group of ranks: what every one of them is told, the files in which they answer, and how each ended."""

from __future__ import annotations

import pickle
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from hpml_plugins.errors import HpmlError
from hpml_plugins.measure.sampling import SamplingPlan
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.node import Node
from hpml_plugins.model.record import Series

Backend = Literal["nccl", "gloo"]
Launcher = Literal["torch", "mpi"]


@dataclass
class RankResult:
    """How a rank's function ended. error: what the point raises; None where it returned.  at: Unix time, s."""

    value: Any = None
    error: HpmlError | None = None
    at: float = field(default_factory=time.time)
    checks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    attached: dict[str, Series] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """What every rank is told. folder: where they meet and leave their answers.  timeout: s.

    parent: the process that started them, with which they end; 0 where a program between starts them.  nodes: on how
    many machines they are; on more than one torch's launcher has given each its place.
    """

    folder: str
    count: int
    backend: Backend
    node: Node
    params: Params
    seed: int
    plan: SamplingPlan
    timeout: float
    environment: dict[str, str]
    nodes: int = 1
    parent: int = 0

    @property
    def per_node(self) -> int:
        """How many of them each node has."""
        return self.count // self.nodes

    @property
    def order_file(self) -> Path:
        """What ranks that another program starts are to do."""
        return Path(self.folder, "order.pickle")

    @property
    def progress_file(self) -> Path:
        """What rank 0 says of its progress."""
        return Path(self.folder, "progress.json")

    def result_file(self, index: int) -> Path:
        """How a rank ended."""
        return Path(self.folder, f"rank{index}.result")

    def stack_file(self, index: int) -> Path:
        """Where a rank is, written when it is signalled."""
        return Path(self.folder, f"rank{index}.stack")

    def pid_file(self, index: int) -> Path:
        """Which process a rank is, and since when; there once the rank answers signals."""
        return Path(self.folder, f"rank{index}.pid")

    def result(self, index: int) -> RankResult | None:
        """How a rank ended; None for one that left no result."""
        with suppress(FileNotFoundError):
            result: RankResult = pickle.loads(self.result_file(index).read_bytes())
            return result
        return None

    def living(self) -> dict[int, psutil.Process]:
        """The ranks on this node that run, by index."""
        found = {}
        for index in range(self.count):
            with suppress(OSError, ValueError, psutil.Error):
                pid, since = self.pid_file(index).read_text().split()
                process = psutil.Process(int(pid))
                if abs(process.create_time() - float(since)) < 1:  # else the number has gone to another
                    found[index] = process
        return found


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all."""
    partial = path.with_suffix(f"{path.suffix}.partial")
    partial.write_bytes(content)
    partial.rename(path)
