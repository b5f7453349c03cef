"""Sizes in words, and the CPUs beside a GPU. Pure, except for reading Linux' description of the
NUMA nodes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hpml_plugins import HpmlError, Node

NODES = Path("/sys/devices/system/node")
_POWERS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3}


def size_in_bytes(size: str) -> int:
    """`"16MiB"` as 16 777 216 B. Raises HpmlError for other texts."""
    found = re.fullmatch(r"([1-9]\d*)(B|KiB|MiB|GiB)", size)
    if not found:
        raise HpmlError(f"size {size!r} is not a number with B, KiB, MiB or GiB, such as '16MiB'")
    return int(found[1]) << 10 * _POWERS[found[2]]


def parse_cpus(text: str) -> set[int]:
    """The CPUs of a list as Linux writes it: "0-2,8" is {0, 1, 2, 8}; an empty list gives none."""
    spans = [span.partition("-") for span in text.strip().split(",") if span]
    return {cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1)}


def run_near(node: Node, gpu: int, nodes: Path = NODES) -> str:
    """Move this process to the CPUs of the GPU's NUMA node. Returns a description of where it runs;
    moves nothing else.

    Memory touched or pinned afterwards is on that NUMA node, by Linux's default policy.
    """
    numa = node.gpus[gpu].numa if gpu < len(node.gpus) else None
    if numa is None or numa < 0:
        return "any CPU: the system does not tell the GPU's NUMA node"
    file = nodes / f"node{numa}" / "cpulist"
    if not file.exists():
        return f"any CPU: the system does not tell the CPUs of NUMA node {numa}"
    near = parse_cpus(file.read_text()) & os.sched_getaffinity(0)
    if not near:
        return f"any CPU: this process may use no CPU of NUMA node {numa}, where the GPU is"
    os.sched_setaffinity(0, near)
    return f"{len(near)} CPUs of NUMA node {numa}, where the GPU is"
