"""NVML's information about the GPUs: their facts, users, memory health and current state."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.model.node import FoundGpus, Gpu, GpuHealth, GpuUser

#: NVML's return codes (nvml.h) for a card that is lost until it, or the machine, is restarted.
_LOST = {15: "GPU is lost", 16: "GPU requires restart"}
#: The return code for a card that has disappeared since the node was detected.
_NOT_FOUND = 6
#: NVML_FI_DEV_POWER_INSTANT.
_INSTANT_POWER = 186
#: NVML_PERF_POLICY_POWER and NVML_PERF_POLICY_THERMAL.
_THROTTLING = (0, 1)


class Card:
    """One GPU as NVML sees it. Every card lacks something (ECC on a GeForce, power in a virtual
    machine), which is then None.

    A MIG device has its own memory and processes, but clocks, throttling, temperature and ECC of
    its card. Power and energy are None: NVML counts them for the whole card, which other MIG
    devices use too. Source: NVML API reference, nvmlDeviceGetDeviceHandleFromMigDeviceHandle and
    the notes on MIG of each query.
    """

    def __init__(
        self, nvml: Any, handle: Any, gpu: Gpu | None = None, number: int = 0
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._is_slice = bool(self._ask("IsMigDeviceHandle"))
        self._board = (
            self._ask("GetDeviceHandleFromMigDeviceHandle") if self._is_slice else handle
        )
        self.gpu = gpu or self._facts()
        self.label = f"GPU {number} ({self.gpu.name})"

    def row(self) -> dict[str, float | None]:
        """The current state of the card, in SI units."""
        nvml = self._nvml
        utilization = self._ask("GetUtilizationRates")
        memory = self._ask("GetMemoryInfo")
        return {
            "sm_clock": self.sm_clock(),
            "memory_clock": self._number(1e6, "GetClockInfo", nvml.NVML_CLOCK_MEM),
            "utilization": utilization.gpu / 100 if utilization else None,
            "memory_utilization": utilization.memory / 100 if utilization else None,
            "power": self._mean_power(),
            "temperature": self._number(1, "GetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "memory_used": float(memory.used) if memory else None,
            "throttle_reasons": self.throttle_reasons(),
        }

    def sm_clock(self) -> float | None:
        """Clock of the SMs, Hz."""
        return self._number(1e6, "GetClockInfo", self._nvml.NVML_CLOCK_SM)

    def throttle_reasons(self) -> float | None:
        """Why the clocks are currently lowered, as NVML's bits."""
        return self._number(1, "GetCurrentClocksEventReasons")

    def power(self) -> float | None:
        """Power, W: instantaneous if the card reports it, else the card's mean over the last
        second."""
        field = None if self._is_slice else self._ask("GetFieldValues", [_INSTANT_POWER])
        if field and field[0].nvmlReturn == 0:
            return float(field[0].value.uiVal) * 1e-3
        return self._mean_power()

    def throttled(self) -> float | None:
        """s, since the driver was loaded, for which the card lowered its clocks for power or
        heat."""
        found = [self._ask_board("GetViolationStatus", policy) for policy in _THROTTLING]
        times = [each.violationTime for each in found if each]
        return sum(times) * 1e-9 if times else None

    def energy(self) -> float | None:
        """Energy, J, since the driver was loaded."""
        millijoules = None if self._is_slice else self._ask("GetTotalEnergyConsumption")
        return None if millijoules is None else float(millijoules) * 1e-3

    def memory_errors(self) -> tuple[int | None, int | None]:
        """Corrected and uncorrected errors since the driver was loaded; None on a card without
        ECC."""
        # 0, 1: NVML_MEMORY_ERROR_TYPE_CORRECTED, _UNCORRECTED
        volatile = self._nvml.NVML_VOLATILE_ECC
        return self._ask_board("GetTotalEccErrors", 0, volatile), self._ask_board(
            "GetTotalEccErrors", 1, volatile
        )

    def users(self) -> list[GpuUser] | None:
        """The processes on this card, of any user; None if NVML does not list them."""
        used = self._ask("GetUtilizationRates")
        share = used.gpu / 100 if used else 0.0
        processes = self._ask("GetComputeRunningProcesses")
        if processes is None:
            return None
        return [
            GpuUser(self.gpu.name, each.pid, float(each.usedGpuMemory or 0), share)
            for each in processes
        ]

    def lost(self) -> str:
        """Why nothing more can be measured on this card, in words; empty if it responds."""
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        except Exception as error:
            return _why_lost(error, self.label, self.gpu)
        return ""

    def health(self) -> GpuHealth | None:
        """The health of its memory; None without ECC."""
        corrected, uncorrected = self.memory_errors()
        if corrected is None or uncorrected is None:
            return None
        # cards before Ampere retire pages instead
        _, _, pending, failed = self._ask_board("GetRemappedRows") or (0, 0, 0, 0)
        return GpuHealth(self.gpu.name, corrected, uncorrected, bool(pending), bool(failed))

    def _facts(self) -> Gpu:
        from hpml_plugins.published import full_name  # only needed with GPUs

        nvml = self._nvml
        info = self._ask("GetMemoryInfo")
        memory = float(info.total) if info else 0.0
        ecc = self._ask_board("GetEccMode")
        mig = self._ask_board("GetMigMode")
        return Gpu(
            name=(
                self._slice_name()
                if self._is_slice
                else full_name(nvml.nvmlDeviceGetName(self._handle), memory)
            ),
            memory=memory,
            uuid=self._ask("GetUUID") or "",
            power_limit=self._number(1e-3, "GetEnforcedPowerLimit") or 0.0,
            max_sm_clock=self._number(1e6, "GetMaxClockInfo", nvml.NVML_CLOCK_SM) or 0.0,
            max_memory_clock=self._number(1e6, "GetMaxClockInfo", nvml.NVML_CLOCK_MEM)
            or 0.0,
            ecc=bool(ecc[0]) if ecc else None,
            mig=bool(mig[0]) if mig else None,
            links=self._links(),
            capability=".".join(
                map(str, self._ask_board("GetCudaComputeCapability") or ())
            ),
            numa=self._numa(),
            board=(self._ask_board("GetUUID") or "") if self._is_slice else "",
            multiprocessors=self._slice_attribute("multiprocessorCount"),
        )

    def _slice_name(self) -> str:
        """NVML's name of a MIG device, `NVIDIA A100-SXM4-40GB MIG 1g.5gb`, or the same built from
        the card's name.

        Source: NVIDIA Multi-Instance GPU User Guide, MIG Device Names: [compute slices of the
        compute instance, if it has fewer than its GPU instance], compute slices of the GPU
        instance, memory in GB.
        """
        name = str(self._ask("GetName") or "")
        if " MIG " in name:
            return name
        whole = self._slice_attribute("gpuInstanceSliceCount")
        part = self._slice_attribute("computeInstanceSliceCount")
        # NVML counts 2**20 B as 1 MB
        memory = round(self._slice_attribute("memorySizeMB") / 1024)
        compute = f"{part}c." if part < whole else ""
        return (
            f"{self._nvml.nvmlDeviceGetName(self._board)} MIG {compute}{whole}g.{memory}gb"
        )

    def _slice_attribute(self, name: str) -> int:
        """An attribute of a MIG device; 0 for a whole card, and if NVML does not report it."""
        attributes = self._ask("GetAttributes_v2") if self._is_slice else None
        return int(getattr(attributes, name, 0))

    def _mean_power(self) -> float | None:
        return None if self._is_slice else self._number(1e-3, "GetPowerUsage")

    def _numa(self) -> int | None:
        bus = getattr(self._ask_board("GetPciInfo"), "busId", None)
        if bus is None:
            return None
        # NVML writes the domain with eight digits, the system with four.
        place = Path("/sys/bus/pci/devices", bus.lower()[-12:], "numa_node")
        try:
            node = int(place.read_text())
        except (OSError, ValueError):
            return None
        return node if node >= 0 else None

    def _links(self) -> str:
        links = range(getattr(self._nvml, "NVML_NVLINK_MAX_LINKS", 18))
        states = [self._ask("GetNvLinkState", link) for link in links]
        if active := states.count(self._nvml.NVML_FEATURE_ENABLED):
            return f"NVLink x{active}"
        generation = self._ask_board("GetCurrPcieLinkGeneration")
        width = self._ask_board("GetCurrPcieLinkWidth")
        return f"PCIe {generation} x{width}" if generation and width else ""

    def _number(self, factor: float, question: str, *args: Any) -> float | None:
        answer = self._ask_board(question, *args)
        return None if answer is None else round(float(answer) * factor, 1)

    def _ask(self, question: str, *args: Any) -> Any:
        """NVML's answer to nvmlDevice…; None if the card does not support the query."""
        return self._ask_handle(self._handle, question, *args)

    def _ask_board(self, question: str, *args: Any) -> Any:
        """The same for the card of a MIG device."""
        return self._ask_handle(self._board, question, *args)

    def _ask_handle(self, handle: Any, question: str, *args: Any) -> Any:
        try:
            return getattr(self._nvml, f"nvmlDevice{question}")(handle, *args)
        except Exception:
            return None


def slice_handles(nvml: Any, card: Any) -> list[Any]:
    """NVML's handles of a card's MIG devices, in its order; empty if MIG is off or not supported.

    NVML has one place for each possible MIG device. It returns an error for empty places, and in a
    container for those of others.
    """
    try:
        places = nvml.nvmlDeviceGetMaxMigDeviceCount(card)
    except Exception:
        return []
    found = []
    for place in range(places):
        with suppress(Exception):
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, place))
    return found


def open_cards(gpus: Sequence[Gpu]) -> list[Card]:
    """Open these GPUs in NVML until this process ends, which must not fork one that uses CUDA
    (`gpu_monitor`).

    Raises HpmlError for a missing GPU, and any error of NVML.
    """
    import pynvml

    pynvml.nvmlInit()
    cards = []
    for number, gpu in enumerate(gpus):
        try:
            cards.append(
                Card(pynvml, pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid), gpu, number)
            )
        except Exception as error:
            if why := _why_lost(error, f"GPU {number} ({gpu.name})", gpu):
                raise HpmlError(why) from None
            raise
    return cards


def open_others(gpus: Sequence[Gpu]) -> list[Card]:
    """Open the GPUs of this machine that are not among these; call it after `open_cards`.

    A card with MIG devices is represented by these, not by an additional GPU.
    """
    import pynvml

    known = {gpu.uuid for gpu in gpus}
    others = []
    for number in range(pynvml.nvmlDeviceGetCount()):
        card = pynvml.nvmlDeviceGetHandleByIndex(number)
        for handle in slice_handles(pynvml, card) or [card]:
            if (uuid := pynvml.nvmlDeviceGetUUID(handle)) not in known:
                others.append(
                    Card(
                        pynvml,
                        handle,
                        Gpu(pynvml.nvmlDeviceGetName(handle), uuid=uuid),
                        number,
                    )
                )
    return others


def find_cards() -> FoundGpus:
    """Find the GPUs with NVML. Only for a process that forks none that uses CUDA: see
    `detect.read_gpus`."""
    import pynvml

    try:
        pynvml.nvmlInit()
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())
        ]
        slices = [each for handle in handles for each in slice_handles(pynvml, handle)]
        return FoundGpus(
            gpus=tuple(Card(pynvml, handle).gpu for handle in handles),
            slices=tuple(Card(pynvml, handle).gpu for handle in slices),
            driver=pynvml.nvmlSystemGetDriverVersion(),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
        )
    except pynvml.NVMLError as error:
        return FoundGpus(problem=f"NVML: {error}")


def read_state(gpus: Sequence[Gpu]) -> tuple[list[GpuUser] | None, list[GpuHealth]]:
    """The processes on these GPUs, None unless NVML lists them for every GPU, and the memory health
    of GPUs with ECC."""
    with suppress(Exception):
        cards = open_cards(gpus)
        of_cards = [card.users() for card in cards]
        told = [each for each in of_cards if each is not None]
        if len(told) == len(of_cards):
            users = list(itertools.chain.from_iterable(told))
        else:
            users = None
        return users, [health for card in cards if (health := card.health())]
    return None, []


def _why_lost(error: Exception, label: str, gpu: Gpu) -> str:
    """Why nothing more can be measured on a card, from NVML's error; empty for less serious
    errors."""
    code = getattr(error, "value", None)
    state = _LOST.get(code, "") if isinstance(code, int) else ""
    if code == _NOT_FOUND and gpu.uuid:
        state = "Not Found, though it was there when the run began"
    return state and (
        f"{label} is lost: NVML says {state!r}; dmesg has an Xid that says why, and "
        "nvidia-smi --gpu-reset or a reboot may bring it back"
    )
