"""NCCL's choice of algorithm and protocol, from its log of tuning.

The names of its kernels do not show it: since 2.19 `ncclDevKernel_AllReduce_Sum_f32_RING_LL` runs
every protocol and most algorithms.  Source: NVIDIA/nccl, src/device/generate.py, `best_kernel`; the
log line: src/enqueue.cc.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_CHANNELS = r"channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}"
_LINE = re.compile(rf"NCCL INFO (\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)(?:.*?{_CHANNELS})?")


def logging_to(folder: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that make NCCL log its choices into this folder; none if the node has its own
    logging settings."""
    if "NCCL_DEBUG" in environment or "NCCL_DEBUG_FILE" in environment:
        return {}
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "TUNING",
        "NCCL_DEBUG_FILE": str(Path(folder, "nccl.%p")),
    }


def read_choice(folder: str, collective: str) -> dict[str, str | float]:
    """`algorithm`, `protocol` and `channels` of the last of the largest calls of a collective;
    empty if none is logged.

    The largest, because before each sample the ranks synchronise with an all-reduce of 4 B.
    """
    log = "\n".join(path.read_text(errors="replace") for path in sorted(Path(folder).iterdir()))
    name = collective.title().replace("_", "")
    calls = sorted(
        (call for call in _LINE.finditer(log) if call[1] == name), key=lambda call: int(call[2])
    )
    if not calls:
        return {}
    _, _, algorithm, protocol, low, high = calls[-1].groups()
    channels = {"channels": int(high) - int(low) + 1} if low is not None else {}
    return {
        "algorithm": _name(algorithm, _ALGORITHMS),
        "protocol": _name(protocol, _PROTOCOLS),
        **channels,
    }


def _name(logged: str, names: tuple[str, ...]) -> str:
    """The name for the number that older releases log."""
    return names[int(logged)] if logged.isdigit() and int(logged) < len(names) else logged.upper()
