"""Which algorithm and protocol NCCL chose, from what it logs of its tuning.

The names of its kernels do not tell: since 2.19 `ncclDevKernel_AllReduce_Sum_f32_RING_LL` runs every protocol and most
algorithms.  Source: NVIDIA/nccl, src/device/generate.py, `best_kernel`; the log line: src/enqueue.cc.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_NAMES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
}
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_CHANNELS = r"channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}"
_LINE = re.compile(rf"NCCL INFO (\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)(?:.*?{_CHANNELS})?")


def logging_to(folder: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that have NCCL log its choices into this folder; none where the node has its own logging set."""
    if "NCCL_DEBUG" in environment or "NCCL_DEBUG_FILE" in environment:
        return {}
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING", "NCCL_DEBUG_FILE": str(Path(folder, "nccl.%p"))}


def read_choice(folder: str, collective: str) -> dict[str, str | float]:
    """`algorithm`, `protocol` and `channels` of the last of the largest calls of a collective; empty if none is told.

    The largest: the ranks line up for each sample with an all-reduce of 4 B.
    """
    lines: list[str] = []
    for path in sorted(Path(folder).iterdir()):
        lines += path.read_text(errors="replace").splitlines()
    return parse_choice(lines, collective)


def parse_choice(lines: Iterable[str], collective: str) -> dict[str, str | float]:
    """The same from the lines of the logs."""
    calls = [found for line in lines if (found := _LINE.search(line)) and found[1] == _NAMES[collective]]
    if not calls:
        return {}
    largest = max(int(call[2]) for call in calls)
    last = [call for call in calls if int(call[2]) == largest][-1]
    told: dict[str, str | float] = {"algorithm": _name(last[3], _ALGORITHMS), "protocol": _name(last[4], _PROTOCOLS)}
    if last[5] is not None:
        told["channels"] = int(last[6]) - int(last[5]) + 1
    return told


def _name(told: str, names: tuple[str, ...]) -> str:
    """Older releases log a number instead of the name."""
    return names[int(told)] if told.isdigit() and int(told) < len(names) else told.upper()
