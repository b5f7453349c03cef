"""Change the power limit of a GPU while a block runs, and always restore it.

Run as a module it is the guard that sets the limit: `python -m hpml_plugins.measure.power_limit
UUID WATTS`. It restores the previous limit when its standard input ends, which also happens when
the process that started it dies. It is started by the GPU monitor, because descendants of the
measuring process are ended with the point.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hpml_plugins import clocks
from hpml_plugins.measure.telemetry import Telemetry

#: s that the guard has to set or restore a limit.
PATIENCE = 10.0
#: Answer of the GPU monitor if it lacks permission to set the limit.
REFUSED = -1.0
#: Answer of the GPU monitor if other processes use the card.
IN_USE = -2.0
_REASONS = {
    REFUSED: (
        "the GPU's power limit was not set to {watts:g} W: it needs root, and a limit within the"
        " card's range"
    ),
    IN_USE: "another process uses the GPU, so its power limit is not changed",
    0.0: f"the GPU's power limit was not set within {PATIENCE:g} s",
}


@contextmanager
def hold_limit(telemetry: Telemetry, gpu: int, watts: float) -> Iterator[str]:
    """Have the GPU monitor set this limit, W, while the block runs; yields why it refused, "" if
    the limit is set."""
    telemetry.wanted_limits[gpu] = watts
    try:
        _wait(lambda: telemetry.set_limits[gpu] != 0)
        answer = telemetry.set_limits[gpu]
        yield _REASONS.get(answer, "").format(watts=watts)
    finally:
        telemetry.wanted_limits[gpu] = 0.0
        _wait(lambda: telemetry.set_limits[gpu] == 0)


class LimitGuards:
    """In the GPU monitor: one guard for each GPU with a requested limit. uuids: of the GPUs."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = uuids
        self._guards: dict[int, subprocess.Popen[str]] = {}

    def serve(self, telemetry: Telemetry, *, in_use: bool) -> None:
        """Apply the currently requested limits. in_use: whether others were on the GPUs when the
        point began."""
        for number, uuid in enumerate(self._uuids):
            wanted = telemetry.wanted_limits[number]
            is_set = telemetry.set_limits[number]
            if wanted and not is_set:
                telemetry.set_limits[number] = (
                    IN_USE if in_use else self._start(number, uuid, wanted)
                )
            elif is_set and not wanted:
                self._restore(number)
                telemetry.set_limits[number] = 0.0

    def restore(self) -> None:
        """Restore all limits."""
        for number in list(self._guards):
            self._restore(number)

    def _start(self, number: int, uuid: str, watts: float) -> float:
        command = [
            sys.executable,
            "-m",
            "hpml_plugins.measure.power_limit",
            uuid,
            str(watts),
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        guard = self._guards[number] = subprocess.Popen(
            command, start_new_session=True, **pipes
        )  # type: ignore[call-overload]
        if guard.stdout and guard.stdout.readline() == "set\n":
            return watts
        self._restore(number)
        return REFUSED

    def _restore(self, number: int) -> None:
        if guard := self._guards.pop(number, None):
            guard.communicate(timeout=PATIENCE)


def _wait(done: object) -> None:
    end = clocks.monotonic() + PATIENCE
    while not done() and clocks.monotonic() < end:  # type: ignore[operator]
        clocks.sleep(0.01)


def guard(uuid: str, watts: float) -> None:
    """Set the limit of this GPU, W, until standard input ends."""
    import pynvml

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # restore the limit before ending
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    before = pynvml.nvmlDeviceGetPowerManagementLimit(handle)
    try:
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, round(watts * 1000))
        print("set", flush=True)
        sys.stdin.read()
    finally:
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, before)


if __name__ == "__main__":
    guard(sys.argv[1], float(sys.argv[2]))
