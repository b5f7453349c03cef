"""Facts of this machine without any heavy import (/proc, `platform`, NVML for the GPUs), and a name made of them."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from pathlib import Path

from hpml_plugins.model.node import Gpu, Node
from hpml_plugins.node.nvml import read_gpus

#: Words of a product name that do not tell one GPU type from another.
_NOISE = ("nvidia", "tesla", "geforce", "graphics", "corporation", "processor", "cpu", "(r)", "(tm)")


def detect_node() -> Node:
    """This machine as a Node. Never raises for a missing or broken GPU: `gpu_problem` then gives NVML's reason."""
    found, cpu_info = read_gpus(), _read("/proc/cpuinfo")
    model = re.search(r"^(?:cpu family\s*: (\d+)\nmodel\s*: (\d+)\n)?model name\s*:(.+)$", cpu_info, re.MULTILINE)
    cpu = model[3].strip() if model else platform.processor() or platform.machine()
    if model and model[1] and not re.search(r"\d", cpu):  # hypervisors use one name for many generations
        cpu = f"{cpu}, family {model[1]} model {model[2]}"
    return Node(
        os=f"{platform.system()} {platform.release()}",
        arch=platform.machine(),
        cpu=cpu,
        num_cpu=len(os.sched_getaffinity(0)),  # in a container or a Slurm job fewer than the machine has
        ram=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        python=platform.python_version(),
        gpus=visible(found.gpus, os.environ.get("CUDA_VISIBLE_DEVICES")),
        driver=found.driver,
        cuda=found.cuda,
        gpu_problem=found.problem,
        host=_hash_of("/etc/machine-id"),
        boot=_hash_of("/proc/sys/kernel/random/boot_id"),
        virtual=re.search(r"^flags\s*:.*\bhypervisor\b", cpu_info, re.MULTILINE) is not None,
        host_cpus=os.cpu_count() or 0,
        host_gpus=len(found.gpus),
        cpu_quota=_cpu_quota(Path("/sys/fs/cgroup/cpu.max")),
        cpu_numa=_cpu_numa(Path("/sys/devices/system/node")),
    )


def visible(gpus: tuple[Gpu, ...], choice: str | None) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves: indices or UUIDs, up to the first that does not exist.

    Source: CUDA C++ Programming Guide, environment variables.
    """
    if choice is None:
        return gpus
    chosen: list[Gpu] = []
    for name in filter(None, (part.strip() for part in choice.split(","))):
        matches = [gpu for i, gpu in enumerate(gpus) if name == str(i) or gpu.uuid.startswith(name)]
        if len(matches) != 1:
            break
        chosen.append(matches[0])
    return tuple(chosen)


def machine_name(node: Node) -> str:
    """`h200-x2`, `cpu-amd-epyc-7763-x2`: a cloud node has another host name each time, its results are one history."""
    if node.gpus:
        return f"{_slug(node.gpu)}-x{node.num_gpu}"
    return f"cpu-{_slug(node.cpu)}-x{node.num_cpu}"


def _slug(text: str) -> str:
    words = text.lower()
    for noise in _NOISE:
        words = words.replace(noise, " ")
    words = re.sub(r"@.*|\b\d+-core\b", " ", words)
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "unknown"


def _read(path: str) -> str:
    """What a file of the system says; empty where there is none."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _hash_of(path: str) -> str:
    """Ten hexadecimal digits for what a file says: enough to tell machines apart, and nobody learns which they are."""
    content = _read(path)
    return hashlib.sha256(b"hpml" + content.encode()).hexdigest()[:10] if content else ""


def _cpu_quota(limit: Path) -> float:
    """How many CPUs' time this container's control group grants; 0 where it sets no limit.

    Source: Linux kernel documentation, Control Group v2, cpu.max: the quota and the period in µs, or "max".
    """
    try:
        quota, period = limit.read_text().split()
        return float(quota) / float(period)
    except (OSError, ValueError):
        return 0.0


def _cpu_numa(nodes: Path) -> tuple[int, ...]:
    """The NUMA nodes of the CPUs that this process may use; none where the system does not tell."""
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    return tuple(sorted({int(path.parent.name[4:]) for path in nodes.glob("node*/cpu*") if path.name in usable}))
