"""What NVML says of the GPUs and of who uses them. Series over time are `measuring.watcher`'s."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from hpml_plugins.model.node import Gpu, GpuHealth, GpuUser
from hpml_plugins.node.child import ask_in_child


class Found(msgspec.Struct, frozen=True):
    """The GPUs in NVML's order, driver and CUDA versions, or the problem that kept NVML from answering."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: str = ""
    problem: str = ""


def read_gpus() -> Found:
    """Ask NVML. A machine without driver gives no GPU and no problem; a driver that fails gives the problem.

    A forked process asks: this one may fork processes that use CUDA, and must not have opened NVML before
    (`measuring.watching` says why).
    """
    answer = ask_in_child(lambda: msgspec.json.encode(_read_gpus()))
    return msgspec.json.decode(answer, type=Found) if answer else Found(problem="NVML ended the process that asked it")


def _read_gpus() -> Found:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return Found()  # no driver: an ordinary machine without GPU, and pynvml would take 0.1 s to say so
    try:
        import pynvml
    except ImportError:
        return Found(problem="nvidia-ml-py is not installed (pip install nvidia-ml-py)")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Found(problem=f"NVML: {error}")
    try:
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return Found(
            gpus=tuple(_read_gpu(pynvml, handle) for handle in handles),
            driver=_text(pynvml.nvmlSystemGetDriverVersion()),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
        )
    except pynvml.NVMLError as error:
        return Found(problem=f"NVML: {error}")
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def read_users(gpus: Sequence[Gpu]) -> list[GpuUser]:
    """The processes on these GPUs, whoever's they are; none where NVML does not tell."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return []  # NVML's own trouble is reported by `read_gpus`
    found: list[GpuUser] = []
    try:
        for gpu in gpus:
            with suppress(Exception):
                handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
                used = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                    found.append(GpuUser(gpu.name, process.pid, float(process.usedGpuMemory or 0), used))
    finally:
        with suppress(Exception):
            pynvml.nvmlShutdown()
    return found


def read_health(gpus: Sequence[Gpu]) -> list[GpuHealth]:
    """What these GPUs tell of their memory; nothing of those that have no ECC."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return []
    found: list[GpuHealth] = []
    try:
        for gpu in gpus:
            with suppress(Exception):
                handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
                corrected, uncorrected = (
                    int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_VOLATILE_ECC)) for kind in (0, 1)
                )
                pending = failed = 0
                with suppress(Exception):  # cards before Ampere retire pages instead
                    _, _, pending, failed = pynvml.nvmlDeviceGetRemappedRows(handle)
                found.append(GpuHealth(gpu.name, corrected, uncorrected, bool(pending), bool(failed)))
    finally:
        with suppress(Exception):
            pynvml.nvmlShutdown()
    return found


def _read_gpu(nvml: Any, handle: Any) -> Gpu:
    def ask(question: Callable[[], Any], otherwise: Any) -> Any:
        # Every card lacks something (ECC on a GeForce, a power limit in a virtual machine): that is no fault.
        try:
            return question()
        except nvml.NVMLError:
            return otherwise

    return Gpu(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory=float(ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total, 0)),
        uuid=_text(ask(lambda: nvml.nvmlDeviceGetUUID(handle), "")),
        power_limit=ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3, 0.0),
        max_sm_clock=ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6, 0.0),
        max_memory_clock=ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6, 0.0),
        ecc=ask(lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]), None),
        mig=ask(lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]), None),
        links=_links(nvml, handle),
        capability=ask(lambda: ".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(handle))), ""),
    )


def _links(nvml: Any, handle: Any) -> str:
    active = 0
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            active += int(nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED)
        except nvml.NVMLError:
            break
    if active:
        return f"NVLink x{active}"
    try:
        generation = nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)
        return f"PCIe {generation} x{nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)}"
    except nvml.NVMLError:
        return ""


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
