"""A queue for each GPU: what it measures, and which GPU it sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpml_plugins.errors import HpmlError
from hpml_plugins.model.node import Gpu
from hpml_plugins.node import read_gpus, visible

#: What queues would see where there is no GPU, with commas between: for trying it out there.
QUEUES_VARIABLE = "HPML_QUEUES"


@dataclass(frozen=True)
class Queue:
    """One `asv run` beside others. gpu: its CUDA_VISIBLE_DEVICES.  part: of the benchmarks, of `parts`."""

    index: int
    gpu: str
    commits: tuple[str, ...]
    part: int = 0
    parts: int = 1

    @property
    def name(self) -> str:
        """The name of its folders and its log."""
        return f"queue-{self.index}"


def share_queues(commits: Sequence[str], gpus: Sequence[str]) -> list[Queue]:
    """A queue for each GPU: whole commits in turn where there are enough for all, else all commits and a part of the
    benchmarks each."""
    count = len(gpus)
    if len(commits) >= count:
        return [Queue(index, gpu, tuple(commits[index::count])) for index, gpu in enumerate(gpus)]
    return [Queue(index, gpu, tuple(commits), index, count) for index, gpu in enumerate(gpus)]


def gpus_side_by_side(environ: Mapping[str, str]) -> list[str]:
    """CUDA_VISIBLE_DEVICES of each queue: a GPU of those that `environ` leaves.

    Raises HpmlError where there is none, or where they are of several types: they share one machine's name.
    """
    found = read_gpus()
    names = gpu_names(visible(found.gpus, environ.get("CUDA_VISIBLE_DEVICES")), found.gpus)
    if not names and QUEUES_VARIABLE in environ:
        names = environ[QUEUES_VARIABLE].split(",")
    if not names:
        because = f" ({found.problem})" if found.problem else ""
        raise HpmlError(f"side_by_side: this node has no GPU{because}")
    return names


def gpu_names(gpus: Sequence[Gpu], of_node: Sequence[Gpu]) -> list[str]:
    """How CUDA_VISIBLE_DEVICES names each: its UUID, or its place in the node where NVML tells none."""
    types = sorted({gpu.name for gpu in gpus})
    if len(types) > 1:
        raise HpmlError(f"side_by_side: this node has GPUs of {len(types)} types ({', '.join(types)}); choose one type")
    return [gpu.uuid or str(of_node.index(gpu)) for gpu in gpus]
