"""Another power limit for a GPU while a block runs, restored whatever happens.

As a module it is the guard that sets the limit: `python -m hpml_plugins.measure.power_limit UUID
WATTS`. It restores the limit that it found when its standard input ends, which it does when the
process that started it dies, however that happens. The process that watches the GPUs starts it:
what descends from the measuring process is ended with the point.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hpml_plugins import clocks
from hpml_plugins.measure.telemetry import Telemetry

#: s that the guard has to set or to restore a limit.
PATIENCE = 10.0
#: Answer of the watching process where it lacks the rights to set the limit.
REFUSED = -1.0
#: Its answer where others use the card.
IN_USE = -2.0
_REASONS = {
    REFUSED: (
        "the GPU's power limit was not set to {watts:g} W: it needs root, and a limit within the"
        " card's range"
    ),
    IN_USE: "another process is on the GPU: its power limit is left alone",
    0.0: f"the GPU's power limit was not set within {PATIENCE:g} s",
}


@contextmanager
def hold_limit(telemetry: Telemetry, gpu: int, watts: float) -> Iterator[str]:
    """Have the watching process set this limit, W, while the block runs; gives why it refused, ""
    where it is set."""
    telemetry.wanted_limits[gpu] = watts
    try:
        _wait(lambda: telemetry.set_limits[gpu] != 0)
        answer = telemetry.set_limits[gpu]
        yield _REASONS.get(answer, "").format(watts=watts)
    finally:
        telemetry.wanted_limits[gpu] = 0.0
        _wait(lambda: telemetry.set_limits[gpu] == 0)


class LimitGuards:
    """In the watching process: a guard for each GPU whose limit is wanted. uuids: of the GPUs."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = uuids
        self._guards: dict[int, subprocess.Popen[str]] = {}

    def serve(self, telemetry: Telemetry, *, in_use: bool) -> None:
        """Do what is wanted by now. in_use: whether others were on the GPUs when the point
        began."""
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
        signal.signal(each, signal.SIG_IGN)  # the limit is restored first
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
