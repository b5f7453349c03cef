"""The traps of GPU nodes: judged from plain facts, so that each is tested without such a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hpml_plugins.model import Finding, GpuHealth, GpuUser, Node

#: The oldest compute capability that CUDA 13 builds for. Which builds of torch have older ones is in PyTorch's
#: RELEASE.md, CUDA support matrix, and in pytorch/pytorch issues 172352 and 190385.
OLDEST_OF_CUDA_13 = 7.5
OLDER_TORCH = "a CUDA 12.6 build of torch (cu126), which exists up to torch 2.14 and has Maxwell, Pascal and Volta"
OLDEST_TORCH = "a CUDA 11 build of torch, 2.0 or older, the last with Kepler"
#: DataLoader workers and NCCL share memory through it; containers often give 64 MiB.
SMALLEST_SHM = 2**30


class TorchFacts(msgspec.Struct, frozen=True):
    """What torch reports. cuda: "" for a build without.  archs: `sm_90`, … it has code for.

    peers: whether every GPU reaches every other without the host; None where there is one or none.
    """

    version: str = ""
    cuda: str = ""
    archs: list[str] = []
    peers: bool | None = None


def traps(
    node: Node,
    torch: TorchFacts,
    users: Sequence[GpuUser],
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
    yield from _torch_build(node, torch)
    if counters_need_root and not is_root:
        fix = "modprobe nvidia NVreg_RestrictProfilingToAdminUsers=0, or run as root"
        yield Finding("ncu permission", "missing", "the driver gives performance counters to root only", fix)
    if torch.peers is False:
        what = "the GPUs do not reach each other directly: NCCL goes through host memory"
        yield Finding("peer access", "warning", what, "see nvidia-smi topo -m; in a virtual machine, ACS and the IOMMU")
    if shm < SMALLEST_SHM:
        what = f"{shm / 2**20:.0f} MiB; data loaders' workers and NCCL share through it and die when it is full"
        fix = "docker run --shm-size=8g, or mount -o remount,size=8G /dev/shm"
        yield Finding("/dev/shm", "warning", what, fix)
    for number, gpu in enumerate(node.gpus):
        if gpu.mig:
            what = f"MIG is on: a slice of the {gpu.name} is measured, not the card"
            yield Finding(f"GPU {number}", "warning", what, "nvidia-smi -mig 0, if nobody else uses the card")
    for card in health:
        yield from _memory(card)
    for user in users:
        what = (
            f"process {user.pid} holds {user.memory / 2**20:.0f} MiB of {user.gpu}, {user.utilization:.0%} utilised: "
            "timings taken meanwhile are worthless"
        )
        yield Finding("busy GPU", "warning", what, f"wait for it, or kill {user.pid} if it is yours")


def _torch_build(node: Node, torch: TorchFacts) -> Iterator[Finding]:
    """Whether torch was built for CUDA, for one that the driver knows, and for these cards."""
    if torch.version and not torch.cuda:
        what = f"torch {torch.version} is built without CUDA, and this node has {node.gpu}"
        yield Finding("torch build", "broken", what, f"install a torch built for CUDA {node.cuda} or older")
    # Within one major version of CUDA an older driver runs a newer runtime (minor version compatibility).
    known, needed = (int(version.partition(".")[0] or 0) for version in (node.cuda, torch.cuda))
    if node.cuda and needed > known:
        what = f"driver {node.driver} knows CUDA {node.cuda}, torch {torch.version} is built for CUDA {torch.cuda}"
        yield Finding("driver", "broken", what, f"a newer driver, or a torch built for CUDA {known}")
    digits = ["".join(filter(str.isdigit, arch)) for arch in torch.archs if arch.startswith("sm_")]
    oldest = min((float(f"{each[:-1]}.{each[-1]}") for each in digits), default=0.0)
    for gpu in {gpu.name: gpu for gpu in node.gpus}.values():
        own = float(gpu.capability or 0)
        if torch.cuda and 0 < own < oldest:
            what = (
                f"compute capability {gpu.capability}, and torch {torch.version} (CUDA {torch.cuda}) has code for "
                f"{oldest} and newer only"
            )
            newer = "a torch whose build names this card's capability"
            fix = OLDEST_TORCH if own < 5 else OLDER_TORCH if own < OLDEST_OF_CUDA_13 else newer
            yield Finding(gpu.name, "broken", what, fix)


def _memory(card: GpuHealth) -> Iterator[Finding]:
    if card.remap_failed:
        what = f"the {card.gpu} has a failing row of memory and none left to replace it"
        yield Finding("GPU memory", "broken", what, "take the card out of service: nvidia-smi -q -d ROW_REMAPPER")
    elif card.uncorrected or card.remap_pending:
        pending = ", and rows wait to be replaced" if card.remap_pending else ""
        errors = f"{card.uncorrected} errors that ECC could not correct since the driver was loaded"
        fix = "nvidia-smi --gpu-reset when nobody uses it; see nvidia-smi -q -d ECC,ROW_REMAPPER"
        yield Finding("GPU memory", "warning", f"the {card.gpu} had {errors}{pending}", fix)
