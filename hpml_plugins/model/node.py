"""Node: this machine as facts. Detection lives in `hpml_plugins.node`; this is only the value."""

from __future__ import annotations

import msgspec


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """One CUDA device as NVML sees it: a whole card, or a MIG device, which is a slice of one.

    name: NVML's, with the memory where NVIDIA sells cards of that name with several sizes
    (`published.full_name`). memory: B.  power_limit: W.  clocks: Hz, the maximum the card allows.
    capability: compute capability, "9.0". numa: the NUMA node that it is attached to, where the
    system tells.

    mig: whether MIG is on; None where the card does not have it.  board: of a MIG device, the UUID
    of its card; empty for a whole card.  multiprocessors: of a MIG device, how many it has; 0 where
    NVML does not tell.  The power limit and the clocks of a MIG device are those of its card.
    """

    name: str
    memory: float = 0
    uuid: str = ""
    power_limit: float = 0
    max_sm_clock: float = 0
    max_memory_clock: float = 0
    ecc: bool | None = None
    mig: bool | None = None
    links: str = ""
    capability: str = ""
    numa: int | None = None
    board: str = ""
    multiprocessors: int = 0


class GpuUser(msgspec.Struct, frozen=True):
    """A process on a GPU. memory: B, 0 where NVML does not tell.  utilization: of the whole GPU, 0
    to 1."""

    gpu: str
    pid: int
    memory: float
    utilization: float

    def __str__(self) -> str:
        return (
            f"process {self.pid} held {self.memory / 2**20:.0f} MiB of {self.gpu},"
            f" {self.utilization:.0%} utilised,"
        )


class GpuHealth(msgspec.Struct, frozen=True):
    """What a card tells of its memory. corrected, uncorrected: errors that ECC counted since the
    driver was loaded.

    remap_pending: rows are replaced at the next reset of the card.  remap_failed: there was none
    left to replace one.
    """

    gpu: str
    corrected: int = 0
    uncorrected: int = 0
    remap_pending: bool = False
    remap_failed: bool = False


class FoundGpus(msgspec.Struct, frozen=True):
    """The cards in NVML's order, driver and CUDA versions, or the problem that kept NVML from
    answering.

    slices: the MIG devices of all cards, in NVML's order.
    """

    gpus: tuple[Gpu, ...] = ()
    slices: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: str = ""
    problem: str = ""


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine: CPU, memory, GPUs, driver. ram: B.  `gpu_problem` says why NVML answered nothing,
    if it did not.

    host, boot: hashes that tell machines, and starts of one machine, apart; empty where the system
    does not tell. virtual: a virtual machine, which shares its host with others that it cannot see.

    num_cpu and gpus are those that this process may use. host_cpus, host_gpus: how many the machine
    has, as far as its kernel and NVML tell; a card with MIG counts as its MIG devices.  cpu_quota:
    how many CPUs' time the control group grants; 0 where it sets no limit.  cpu_numa: the NUMA
    nodes of the CPUs that this process may use.
    """

    os: str
    arch: str
    cpu: str
    num_cpu: int
    ram: float
    python: str
    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: str = ""
    gpu_problem: str = ""
    host: str = ""
    boot: str = ""
    virtual: bool = False
    host_cpus: int = 0
    host_gpus: int = 0
    cpu_quota: float = 0
    cpu_numa: tuple[int, ...] = ()

    @property
    def gpu(self) -> str:
        """The GPU type: the name of the cards, joined by ' + ' where they differ, or 'none'."""
        return " + ".join(dict.fromkeys(gpu.name for gpu in self.gpus)) or "none"

    @property
    def num_gpu(self) -> int:
        """How many GPUs the node has."""
        return len(self.gpus)
