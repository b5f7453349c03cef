"""A group of ranks: what every one of them gets, the files in which they answer, and how each
ended."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpml_plugins import clocks
from hpml_plugins.errors import HpmlError, describe
from hpml_plugins.measure.sampling import SamplingPlan
from hpml_plugins.measure.session import Collected
from hpml_plugins.measure.telemetry import Telemetry
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.data_source import LoadableData
from hpml_plugins.model.node import Node
from hpml_plugins.store import atomic_write

Backend = Literal["nccl", "gloo"]
Launcher = Literal["torch", "mpi"]


@dataclass
class RankResult:
    """How a rank's function ended. error: what the point raises; None where it returned.  at: Unix
    time, s."""

    value: Any = None
    error: HpmlError | None = None
    collected: Collected = field(default_factory=Collected)
    at: float = field(default_factory=clocks.wall_clock)


@dataclass(frozen=True)
class RankGroup:
    """What every rank gets. folder: where they meet and leave their answers.  end: of their time,
    Unix time, s. sources: the data sets in force.

    parent: the process that started them, with which they end; 0 where a program between starts
    them.  nodes: on how many machines they are; on more than one torch's launcher has given each
    its place.  telemetry: of the GPUs of this node, for ranks that are forked from the process that
    shares it.
    """

    folder: str
    count: int
    backend: Backend
    node: Node
    params: Params
    seed: int
    plan: SamplingPlan
    end: float
    environment: dict[str, str]
    sources: Mapping[str, LoadableData]
    nodes: int = 1
    parent: int = 0
    telemetry: Telemetry | None = None

    @property
    def per_node(self) -> int:
        """How many of them each node has."""
        return self.count // self.nodes

    @property
    def gpus(self) -> int:
        """How many GPUs each node's ranks use."""
        return self.per_node if self.backend == "nccl" else 0

    def file(self, kind: str, index: int = 0) -> Path:
        """A rank's "result", or the "stack" it had when the time was up; rank 0's "progress"; the
        "order" to all."""
        return Path(self.folder, f"rank{index}.{kind}")

    def result(self, index: int) -> RankResult | None:
        """How a rank ended; None for one that left no result."""
        with suppress(FileNotFoundError):
            result: RankResult = pickle.loads(self.file("result", index).read_bytes())
            return result
        return None

    def leave(self, index: int, result: RankResult) -> None:
        """Write how a rank ended. Raises HpmlError for a value that does not pickle."""
        try:
            content = pickle.dumps(result)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise HpmlError(
                f"the return value of the ranks' function cannot be pickled: {describe(error)}"
            ) from error
        atomic_write(self.file("result", index), content, durable=False)
