"""The card's own energy counter, where it has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Bench


class Counter:
    """Reads what some cards have used, J, since whenever. None where any of them does not tell, or there is none.

    The counter moves in steps of some tens of milliseconds: a run of a second is known to some per cent.
    """

    def __init__(self, uuids: Sequence[str]) -> None:
        self.problem = ""
        self._handles: list[Any] = []
        if not uuids:
            return
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
            self._nvml = pynvml
        except Exception as error:
            self.problem = f"energy is not known: {error}"

    def read(self) -> float | None:
        """J."""
        if not self._handles:
            return None
        try:
            return 1e-3 * float(sum(map(self._nvml.nvmlDeviceGetTotalEnergyConsumption, self._handles)))
        except Exception as error:
            self.problem = f"energy is not known: {error}"
            return None


def counter_of(bench: Bench, gpus: int) -> Counter:
    """Of the first so many GPUs of the node; of none on a CPU."""
    counter = Counter([gpu.uuid for gpu in bench.node.gpus[: gpus if bench.gpus else 0]])
    if counter.problem:
        bench.warn(counter.problem)
    return counter
