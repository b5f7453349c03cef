"""A group of ranks: what every one of them is told, and how each ended."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpml_plugins.measure.sampling import Plan
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.node import Node
from hpml_plugins.model.record import Series

Backend = Literal["nccl", "gloo"]
Launcher = Literal["torch", "mpi"]
Kind = Literal["ok", "failed", "wrong", "skipped"]


@dataclass(frozen=True)
class Team:
    """What every rank of a group is told. folder: where they meet and leave their reports.  timeout: s.

    parent: the process that started them, with which they end; 0 where a program between starts them.  nodes: on how
    many machines they are; on more than one torch's launcher has given each its place.
    """

    folder: str
    count: int
    backend: Backend
    parent: int
    node: Node
    params: Params
    seed: int
    plan: Plan
    timeout: float
    environment: dict[str, str] = field(default_factory=dict)
    nodes: int = 1

    @property
    def on_a_node(self) -> int:
        """How many of them each node has."""
        return self.count // self.nodes

    def report_of(self, index: int) -> Path:
        """The file in which a rank says how it ended."""
        return Path(self.folder, f"rank{index}.report")

    def stack_of(self, index: int) -> Path:
        """The file into which a rank writes where it is, when signalled."""
        return Path(self.folder, f"rank{index}.stack")

    def pid_of(self, index: int) -> Path:
        """The file in which a rank that another program started says which process it is."""
        return Path(self.folder, f"rank{index}.pid")

    def read(self, index: int) -> Report | None:
        """How a rank ended; None for one that left no report."""
        try:
            report: Report = pickle.loads(self.report_of(index).read_bytes())
        except FileNotFoundError:
            return None
        return report


@dataclass
class Report:
    """How a rank's function ended. at: s of the monotonic clock, which all processes of a machine share."""

    kind: Kind
    text: str = ""
    value: Any = None
    at: float = 0.0
    checks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    attached: dict[str, Series] = field(default_factory=dict)
