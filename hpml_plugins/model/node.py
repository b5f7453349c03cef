"""Node: facts of a machine. Only the value type; detection is in `hpml_plugins.node`."""

from __future__ import annotations

import msgspec


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """One CUDA device as NVML sees it: a whole card, or a MIG device, which is a slice of one.

    name: NVML's, with the memory if NVIDIA sells cards of that name with several sizes
    (`published.full_name`).  memory: B.  power_limit: W.  clocks: Hz, the maximum the card allows.
    capability: compute capability, "9.0".  numa: the NUMA node to which it is attached, if known.

    mig: whether MIG is on; None if the card does not support it.  board: of a MIG device, the UUID
    of its card; empty for a whole card.  multiprocessors: of a MIG device, their number; 0 if NVML
    does not report it.  The power limit and the clocks of a MIG device are those of its card.
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
    """A process on a GPU. memory: B, 0 if NVML does not report it.  utilization: of the whole GPU,
    0 to 1."""

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
    """The memory health of a card. corrected, uncorrected: errors counted by ECC since the driver
    was loaded.

    remap_pending: rows will be replaced at the next reset of the card.  remap_failed: no spare row
    was left.
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
    """A machine: CPU, memory, GPUs, driver. ram: B.  gpu_problem: why NVML failed, if it did.

    host, boot: hashes that identify machines, and boots of a machine; empty if unknown.  virtual: a
    virtual machine, whose host may have other guests that it cannot see.

    num_cpu and gpus are those available to this process. host_cpus, host_gpus: the number in the
    machine, as far as its kernel and NVML report; a card with MIG counts as its MIG devices.
    cpu_quota: the CPU time that the control group grants, in CPUs; 0 without a limit.  cpu_numa:
    the NUMA nodes of the CPUs that this process may use.
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
        """The GPU type: the name of the cards, joined by ' + ' if they differ, or 'none'."""
        return " + ".join(dict.fromkeys(gpu.name for gpu in self.gpus)) or "none"

    @property
    def num_gpu(self) -> int:
        """The number of GPUs of the node."""
        return len(self.gpus)
