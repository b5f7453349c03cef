"""The traps that GPU nodes really have: judged from plain facts, so that each is tested without such a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hpml_plugins.model.node import Gpu, GpuHealth, GpuUser, Node
from hpml_plugins.tools.doctor.finding import Finding

#: Compute capabilities that CUDA 13 no longer builds for, and what still has them.
#: Source: PyTorch's RELEASE.md, CUDA support matrix; pytorch/pytorch issues 172352 and 190385.
OLDEST_OF_CUDA_13 = 7.5
OLDER_TORCH = "a CUDA 12.6 build of torch (cu126), which exists up to torch 2.14 and has Maxwell, Pascal and Volta"
OLDEST_TORCH = "a CUDA 11 build of torch, 2.0 or older, the last with Kepler"
#: DataLoader workers and NCCL share memory through it; containers often give 64 MiB.
SMALLEST_SHM = 2**30


class TorchFacts(msgspec.Struct, frozen=True):
    """What torch says of itself. cuda: "" for a build without.  archs: `sm_90`, … it has code for.

    peers: whether every GPU reaches every other without the host; None where there is one or none.
    """

    version: str = ""
    cuda: str = ""
    archs: list[str] = []
    peers: bool | None = None


def traps(
    node: Node,
    torch: TorchFacts,
    users: list[GpuUser],
    shm: float,
    counters_need_root: bool,
    is_root: bool,
    health: Sequence[GpuHealth] = (),
) -> Iterator[Finding]:
    """Every trap that these facts show.

    shm: size of /dev/shm, B.  counters_need_root: the driver gives performance counters to root only.
    """
    if not node.gpus:
        return
    if torch.version and not torch.cuda:
        yield Finding(
            "torch build",
            "broken",
            f"torch {torch.version} is built without CUDA, and this node has {node.gpu}",
            f"install a torch built for CUDA {node.cuda} or older",
        )
    elif torch.cuda:
        yield from _driver(node, torch)
        yield from _capability(node, torch)
    yield from _counters(counters_need_root, is_root)
    if torch.peers is False:
        yield Finding(
            "peer access",
            "warning",
            "the GPUs do not reach each other directly: NCCL goes through host memory",
            "check nvidia-smi topo -m; in a virtual machine, ACS and the IOMMU",
        )
    if shm < SMALLEST_SHM:
        yield Finding(
            "/dev/shm",
            "warning",
            f"{shm / 2**20:.0f} MiB; data loaders' workers and NCCL share through it and die when it is full",
            "docker run --shm-size=8g, or mount -o remount,size=8G /dev/shm",
        )
    for number, gpu in enumerate(node.gpus):
        if gpu.mig:
            yield Finding(
                f"GPU {number}",
                "warning",
                f"MIG is on: a slice of the {gpu.name} is measured, not the card",
                "nvidia-smi -mig 0, if the card is yours alone",
            )
    for card in health:
        yield from _memory(card)
    for user in users:
        yield Finding(
            "busy GPU",
            "warning",
            f"process {user.pid} holds {user.memory / 2**20:.0f} MiB of {user.gpu}, {user.utilization:.0%} utilised: "
            "timings beside it are worth nothing",
            f"wait for it, or kill {user.pid} if it is yours",
        )


def _memory(card: GpuHealth) -> Iterator[Finding]:
    if card.remap_failed:
        yield Finding(
            "GPU memory",
            "broken",
            f"the {card.gpu} has a failing row of memory and none left to replace it",
            "take the card out of service: nvidia-smi -q -d ROW_REMAPPER",
        )
    elif card.uncorrected or card.remap_pending:
        pending = ", and rows wait to be replaced" if card.remap_pending else ""
        yield Finding(
            "GPU memory",
            "warning",
            f"the {card.gpu} had {card.uncorrected} errors that ECC could not correct since the driver was "
            f"loaded{pending}",
            "nvidia-smi --gpu-reset when nobody uses it; nvidia-smi -q -d ECC,ROW_REMAPPER tells more",
        )


def _driver(node: Node, torch: TorchFacts) -> Iterator[Finding]:
    # Within one major version of CUDA an older driver runs a newer runtime (minor version compatibility).
    if node.cuda and _major(torch.cuda) > _major(node.cuda):
        yield Finding(
            "driver",
            "broken",
            f"driver {node.driver} knows CUDA {node.cuda}, torch {torch.version} is built for CUDA {torch.cuda}",
            f"a newer driver, or a torch built for CUDA {_major(node.cuda)}",
        )


def _capability(node: Node, torch: TorchFacts) -> Iterator[Finding]:
    built_for = [_capability_of(arch) for arch in torch.archs if arch.startswith("sm_")]
    if not built_for:
        return
    for gpu in {gpu.name: gpu for gpu in node.gpus}.values():
        own = float(gpu.capability or 0)
        if own and own < min(built_for):
            yield Finding(
                gpu.name,
                "broken",
                f"compute capability {gpu.capability}, and torch {torch.version} (CUDA {torch.cuda}) has code for "
                f"{min(built_for)} and newer only",
                _older(gpu),
            )


def _older(gpu: Gpu) -> str:
    own = float(gpu.capability)
    if own < 5:
        return OLDEST_TORCH
    return OLDER_TORCH if own < OLDEST_OF_CUDA_13 else "a torch whose build names this card's capability"


def _counters(need_root: bool, is_root: bool) -> Iterator[Finding]:
    if need_root and not is_root:
        yield Finding(
            "ncu permission",
            "missing",
            "the driver gives performance counters to root only",
            "modprobe nvidia NVreg_RestrictProfilingToAdminUsers=0, or run as root",
        )


def _major(version: str) -> int:
    return int(version.partition(".")[0] or 0)


def _capability_of(arch: str) -> float:
    digits = "".join(char for char in arch.removeprefix("sm_") if char.isdigit())
    return float(f"{digits[:-1]}.{digits[-1]}")
