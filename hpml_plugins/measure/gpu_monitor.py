"""Watching the GPUs while a point is measured: clocks, utilisation, power, temperature, memory, throttling, faults.

A process of its own samples NVML: it takes no time from what is measured, and shares no interpreter lock with it. And
a process that has once opened NVML must not fork one that uses CUDA: with driver 580 the fork crashes at the first
error that CUDA reports (out of memory, an illegal address), even after NVML was closed.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

import msgspec

from hpml_plugins.isolation import end_with_parent
from hpml_plugins.model.node import Gpu
from hpml_plugins.model.record import Series
from hpml_plugins.node.nvml import Card, GpuLost, open_cards

#: s between two samples, at first; doubled whenever the series reach MOST_ROWS, so that a long run stays small.
INTERVAL = 0.05
MOST_ROWS = 300
#: s to wait for what was seen once the point is over; NVML answers in milliseconds unless the driver hangs.
PATIENCE = 10.0
#: Clock event reasons that mean heat or power, as NVML's bits.
REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
UNITS = {
    "time": "s",
    "sm_clock": "Hz",
    "memory_clock": "Hz",
    "utilization": "1",
    "memory_utilization": "1",
    "power": "W",
    "temperature": "degC",
    "memory_used": "B",
    "throttle_reasons": "1",
}


class Seen(msgspec.Struct):
    """What was seen. energy: J.  throttled: metric → indices of the samples taken while a card was held down.

    fault: why what was measured does not count, where a card was lost or its memory failed.
    """

    series: dict[str, Series] = {}
    energy: float = 0.0
    warnings: list[str] = []
    throttled: dict[str, list[int]] = {}
    fault: str = ""


class GpuMonitor:
    """Watches these GPUs from its making until `finish`; nothing is started for none."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._process = None
        if gpus:
            self._pipe, theirs = multiprocessing.Pipe()
            self._process = multiprocessing.get_context("fork").Process(target=_watch, args=(gpus, self._pipe, theirs))
            self._process.start()
            theirs.close()

    def check(self) -> None:
        """Raise GpuLost once a card is."""
        if self._process is not None:
            with suppress(OSError, EOFError):  # it died: `finish` says so
                if self._pipe.poll():
                    raise GpuLost(self._pipe.recv())

    def finish(self, at: Mapping[str, Sequence[float]]) -> Seen:
        """What was seen.  at: metric → when each of its samples ended, s of the monotonic clock."""
        if self._process is None:
            return Seen()
        try:
            self._pipe.send(at)
            while self._pipe.poll(PATIENCE):
                if isinstance(seen := self._pipe.recv(), Seen):  # else a fault that nobody asked for in time
                    return seen
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
    sampler, reported = Sampler(gpus), False
    sampler.look()
    while not pipe.poll(sampler.interval):
        sampler.look()
        if sampler.seen.fault and not reported:
            pipe.send(sampler.seen.fault)
            reported = True
    pipe.send(sampler.finish(pipe.recv()))


class Sampler:
    """Looks at some GPUs through NVML, again and again. Where NVML refuses it sees nothing, and says why.

    interval: s, how long to wait for the next look.  seen: complete after `finish`; a fault is there at once.
    """

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.interval = INTERVAL
        self.seen = Seen()
        self._started = time.monotonic()
        self._cards: list[Card] = []
        try:
            self._cards = open_cards(gpus)
        except GpuLost as lost:
            self.seen.fault = lost.what
        except Exception as error:
            self.seen.warnings.append(f"measured without watching the GPU: {error}")
        self._rows: list[list[dict[str, float | None]]] = [[] for _ in self._cards]
        # Kept apart from the rows, which are thinned: no look that saw the card held down may be lost.
        self._held_down: list[tuple[float, float]] = []
        self._reasons = 0
        self._energy_before = [card.energy() for card in self._cards]
        self._errors_before = [card.memory_errors() for card in self._cards]
        users = [user for card in self._cards for user in card.users()]
        self._users = {user.pid for user in users}
        self.seen.warnings += [f"{user} when the point began" for user in users]

    def look(self) -> None:
        """Take one row of each GPU."""
        now = time.monotonic()
        for card, rows in zip(self._cards, self._rows, strict=True):
            row = {"time": round(now - self._started, 3), **card.row()}
            rows.append(row)
            if row["throttle_reasons"] is None and not self.seen.fault:
                self.seen.fault = card.lost()
            reasons = int(row["throttle_reasons"] or 0) & sum(REASONS)
            if reasons:
                self._held_down.append((now - self.interval, now + self.interval))
                self._reasons |= reasons
        if self._rows and len(self._rows[0]) >= MOST_ROWS:
            self._rows = [rows[::2] for rows in self._rows]
            self.interval *= 2

    def finish(self, at: Mapping[str, Sequence[float]]) -> Seen:
        """All that was seen.  at: metric → when each of its samples ended, ascending, s of the monotonic clock.

        Asked when the point's processes are gone: who is on a card then is somebody else.
        """
        seen = self.seen
        pairs = [(before, card.energy()) for before, card in zip(self._energy_before, self._cards, strict=True)]
        seen.energy = sum(after - before for before, after in pairs if before is not None and after is not None)
        for card, errors_before in zip(self._cards, self._errors_before, strict=True):
            seen.fault = seen.fault or card.lost()  # a point that CUDA ends is over before the next look
            self._count_memory_errors(card, errors_before)
        users = [user for card in self._cards for user in card.users()]
        seen.warnings += [f"{user} when the point ended" for user in users if user.pid not in self._users]
        if self._reasons:
            why = ", ".join(name for bit, name in REASONS.items() if self._reasons & bit)
            seen.warnings.append(f"the GPU held its clocks down while this was measured: {why}")
        seen.series = {f"gpu{number}": _series(rows) for number, rows in enumerate(self._rows) if rows}
        seen.throttled = {
            name: [i for i, when in enumerate(ends) if any(start <= when <= end for start, end in self._held_down)]
            for name, ends in at.items()
        }
        return seen

    def _count_memory_errors(self, card: Card, before: tuple[int | None, int | None]) -> None:
        """A corrected error costs nothing but trust in the card; an uncorrected one has changed what was computed."""
        corrected, uncorrected = (
            max(0, new - old) if new is not None and old is not None else 0
            for old, new in zip(before, card.memory_errors(), strict=True)
        )
        if corrected:
            self.seen.warnings.append(f"{card.label} corrected {corrected} memory errors while this was measured")
        if uncorrected:
            self.seen.fault = self.seen.fault or (
                f"{card.label} had {uncorrected} memory errors that ECC could not correct while this was "
                "measured; hpml doctor and nvidia-smi -q -d ECC,ROW_REMAPPER tell more"
            )


def _series(rows: Sequence[Mapping[str, float | None]]) -> Series:
    """The rows as columns. What the card did not tell every time is left out: a zero would be a measurement."""
    columns: dict[str, list[float | str]] = {}
    for name in UNITS:
        values: list[float | str] = [value for row in rows if (value := row[name]) is not None]
        if len(values) == len(rows):
            columns[name] = values
    return Series(columns, {name: UNITS[name] for name in columns})
