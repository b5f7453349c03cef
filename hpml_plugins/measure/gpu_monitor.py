"""The watcher in a process of its own.

A process that has once opened NVML must not fork one that uses CUDA: with driver 580 the fork crashes at the first
error that CUDA reports (out of memory, an illegal address), even after NVML was closed. So the process that waits for
a point, and forks the next one, leaves NVML to another.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

import msgspec

from hpml_plugins.isolation.parent_death import end_with_parent
from hpml_plugins.isolation.process import LISTENING
from hpml_plugins.measure.gpu_faults import GpuLost
from hpml_plugins.measure.nvml_sampler import Watcher
from hpml_plugins.model.node import Gpu
from hpml_plugins.model.record import Series

#: s to wait for what was seen once the point is over; NVML answers in milliseconds unless the driver hangs.
PATIENCE = 10.0


class Seen(msgspec.Struct, frozen=True):
    """What was seen. energy: J.  throttled: metric → indices of the samples taken while a card was held down.

    fault: why what was measured does not count, where a card was lost or its memory failed.
    """

    series: dict[str, Series] = {}
    energy: float = 0.0
    warnings: list[str] = []
    throttled: dict[str, list[int]] = {}
    fault: str = ""


class Watching:
    """Watches these GPUs from its making until `finish`; nothing is started for none."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._process = None
        if not gpus:
            return
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(target=_watch, args=(gpus, self._pipe, theirs))
        self._process.start()
        theirs.close()

    def check(self) -> float:
        """Raise GpuLost once a card is; else return after how many s at the latest to ask again."""
        if self._process is not None:
            with suppress(OSError, EOFError):  # it died: `finish` says so
                if self._pipe.poll():
                    raise GpuLost(self._pipe.recv_bytes().decode())
        return LISTENING

    def finish(self, at: Mapping[str, Sequence[float]]) -> Seen:
        """What was seen.  at: metric → when each of its samples ended, s of the monotonic clock."""
        if self._process is None:
            return Seen()
        try:
            self._pipe.send_bytes(msgspec.json.encode({name: list(when) for name, when in at.items()}))
            while self._pipe.poll(PATIENCE):
                if (told := self._pipe.recv_bytes()).startswith(b"{"):
                    return msgspec.json.decode(told, type=Seen)
            return Seen(warnings=[f"what the GPUs did is not known: NVML did not answer for {PATIENCE:g} s"])
        except (OSError, EOFError):
            return Seen(warnings=["what the GPUs did is not known: the process that watched them died"])
        finally:
            self.end()

    def end(self) -> None:
        """End the watching process, whatever it has seen."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def _watch(gpus: Sequence[Gpu], parents: Connection, pipe: Connection) -> None:
    parents.close()  # else this process would keep open what tells it of its parent's end
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says when it is over
    watcher = Watcher(gpus)
    told = False
    watcher.look()
    while not pipe.poll(watcher.interval):
        watcher.look()
        if watcher.fault and not told:
            pipe.send_bytes(watcher.fault.encode())
            told = True
    at = msgspec.json.decode(pipe.recv_bytes(), type=dict[str, list[float]])
    series = watcher.finish()
    seen = Seen(
        series,
        watcher.energy,
        [watcher.problem] * bool(watcher.problem) + watcher.warnings,
        {name: watcher.throttled(when) for name, when in at.items()},
        watcher.fault,
    )
    pipe.send_bytes(msgspec.json.encode(seen))
