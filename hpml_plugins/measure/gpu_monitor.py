"""Monitor the GPUs during a measurement: clocks, utilisation, power, temperature, memory,
throttling, faults.

The measuring process reads from `telemetry` what it needs meanwhile (does the card throttle, has it
settled?).

A separate process samples NVML, so that it takes no time from the measurement and does not share
its interpreter lock. Also, a process that has opened NVML must not fork one that uses CUDA: with
driver 580 the fork crashes at the first error that CUDA reports (out of memory, an illegal
address), even after NVML was closed.
"""

from __future__ import annotations

import itertools
import multiprocessing
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection

import msgspec

from hpml_plugins import clocks
from hpml_plugins.errors import HpmlError
from hpml_plugins.isolation import end_with_parent
from hpml_plugins.measure.power_limit import LimitGuards
from hpml_plugins.measure.telemetry import UNITS, Reading, Telemetry
from hpml_plugins.model.node import Gpu
from hpml_plugins.model.record import Series
from hpml_plugins.node.nvml import Card, open_cards, open_others

#: s between two samples at first; doubled whenever the series reach MOST_ROWS, which limits
#: their size in long runs.
INTERVAL = 0.05
MOST_ROWS = 100
#: s between two readings of slowly changing values: NVML's utilisation is a mean over 1/6 s or
#: more.
SLOW_TELEMETRY_INTERVAL = 0.1
#: s to wait for the results once the point is over; NVML answers in milliseconds unless the
#: driver hangs.
PATIENCE = 10.0
#: Clock event reasons for heat or power, as NVML's bits.
REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}


class Seen(msgspec.Struct):
    """The results of monitoring. energy: J.  throttled: why the card lowered its clocks, in words,
    if it did.  conditions: of the point's GPUs and the others of the machine (`Record.conditions`).

    fault: why the measurement is invalid, if a card was lost or its memory failed.
    """

    series: dict[str, Series] = {}
    energy: float = 0.0
    warnings: list[str] = []
    throttled: str = ""
    conditions: dict[str, float] = {}
    fault: str = ""


class GpuMonitor(AbstractContextManager["GpuMonitor"]):
    """Monitors these GPUs from its creation until `finish`, or until its block ends."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.telemetry = Telemetry(len(gpus))
        self._pipe, theirs = multiprocessing.Pipe()
        order = (gpus, self._pipe, theirs, self.telemetry)
        self._process = multiprocessing.get_context("fork").Process(
            target=_watch, args=order
        )
        self._process.start()
        theirs.close()

    def check(self) -> str:
        """Why the measurement is invalid, as soon as this is known; empty before."""
        with suppress(OSError, EOFError):  # it died: `finish` reports that
            if self._pipe.poll():
                return str(self._pipe.recv())
        return ""

    def finish(self) -> Seen:
        """End monitoring and return the results."""
        try:
            self._pipe.send("finish")
            while self._pipe.poll(PATIENCE):
                # else a fault that was not read in time
                if isinstance(seen := self._pipe.recv(), Seen):
                    return seen
            return Seen(
                warnings=[f"no GPU telemetry: NVML did not answer for {PATIENCE:g} s"]
            )
        except (OSError, EOFError):
            return Seen(warnings=["no GPU telemetry: the GPU monitor died"])

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _watch(
    gpus: Sequence[Gpu], parents: Connection, pipe: Connection, telemetry: Telemetry
) -> None:
    parents.close()  # else this process would keep open the pipe that signals its parent's end
    end_with_parent()
    # Ctrl-C reaches the whole group; the parent says when to stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sampler = _Sampler(gpus)
    reported = False
    next_look = 0.0
    in_use = sampler.seen.conditions.get("other_processes", 0) > 0
    guards = LimitGuards([gpu.uuid for gpu in gpus])
    while True:
        sampler.measure(telemetry)
        guards.serve(telemetry, in_use=in_use)
        if clocks.monotonic() >= next_look:
            sampler.look()
            next_look = clocks.monotonic() + sampler.interval
        if sampler.seen.fault and not reported:
            pipe.send(sampler.seen.fault)
            reported = True
        if pipe.poll(telemetry.interval):
            break
    pipe.recv()
    guards.restore()
    pipe.send(sampler.finish())


class _Sampler:
    """Samples some GPUs through NVML. If NVML refuses, it has no results and says why.

    interval: s until the next sample.  seen: complete after `finish`; a fault is available
    immediately.
    """

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.interval = INTERVAL
        self.seen = Seen()
        self._started = clocks.monotonic()
        self._cards: list[Card] = []
        self._others: list[Card] = []
        try:
            self._cards = open_cards(gpus)
            with suppress(Exception):  # NVML may raise any exception
                self._others = open_others(gpus)
        except HpmlError as lost:
            self.seen.fault = lost.what
        except Exception as error:
            self.seen.warnings.append(f"measured without monitoring the GPU: {error}")
        self._rows: list[list[dict[str, float | None]]] = [[] for _ in self._cards]
        self._reasons = 0
        #: For a card that does not count its throttled time: the last time it was read, and the
        #: total derived from its reasons.
        self._throttled = [(clocks.monotonic(), 0.0) for _ in self._cards]
        self._slow_at = 0.0
        self._energy_before = [card.energy() for card in self._cards]
        self._errors_before = [card.memory_errors() for card in self._cards]
        self._users: set[int] = set()
        self._note_users("began")
        self._others_before = [card.row() for card in self._others]

    def measure(self, telemetry: Telemetry) -> None:
        """Write the telemetry of each GPU."""
        if slow := clocks.monotonic() - self._slow_at >= SLOW_TELEMETRY_INTERVAL:
            self._slow_at = clocks.monotonic()
        for number, card in enumerate(self._cards):
            now = clocks.monotonic()
            last = telemetry.read(number) or Reading(0.0, 0.0)
            energy = card.energy() or 0.0
            reading = last._replace(
                at=now,
                throttled=self._throttled_until(now, number, card),
                clock=card.sm_clock() or 0.0,
                power=card.power() or 0.0,
                energy=energy,
                energy_at=now if energy != last.energy else last.energy_at,
            )
            if slow:
                row = card.row()
                reading = reading._replace(
                    utilization=row["utilization"] or 0.0,
                    memory_utilization=row["memory_utilization"] or 0.0,
                    memory_used=row["memory_used"] or 0.0,
                )
            telemetry.write(number, reading)

    def _throttled_until(self, now: float, number: int, card: Card) -> float:
        """Total s for which a card throttled: counted by the card, or derived from its reasons at
        each reading."""
        counted = card.throttled()
        if counted is not None:
            return counted
        before, total = self._throttled[number]
        if _held_down(card.throttle_reasons()):
            total += now - before
        self._throttled[number] = now, total
        return total

    def look(self) -> None:
        """Sample one row of each GPU."""
        now = clocks.monotonic()
        for card, rows in zip(self._cards, self._rows, strict=True):
            row = {"time": round(now - self._started, 3), **card.row()}
            rows.append(row)
            if row["throttle_reasons"] is None and not self.seen.fault:
                self.seen.fault = card.lost()
            self._reasons |= _held_down(row["throttle_reasons"])
        if self._rows and len(self._rows[0]) >= MOST_ROWS:
            self._rows = [rows[::2] for rows in self._rows]
            self.interval *= 2

    def finish(self) -> Seen:
        """All results.

        Called when the point's processes are gone: any process on a card then belongs to somebody
        else.
        """
        seen = self.seen
        for before, card in zip(self._energy_before, self._cards, strict=True):
            after = card.energy()
            if before is not None and after is not None:
                seen.energy += after - before
        for card, errors_before in zip(self._cards, self._errors_before, strict=True):
            # a point that fails in CUDA is over before the next sample
            seen.fault = seen.fault or card.lost()
            self._count_memory_errors(card, errors_before)
        self._note_users("ended")
        seen.conditions |= self._conditions()
        seen.throttled = ", ".join(
            name for bit, name in REASONS.items() if self._reasons & bit
        )
        seen.series = {
            f"gpu{number}": _series(rows) for number, rows in enumerate(self._rows) if rows
        }
        return seen

    def _note_users(self, when: str) -> None:
        """Warn of processes on the cards, and count them, if NVML lists them."""
        users_of_cards = [
            users for card in self._cards if (users := card.users()) is not None
        ]
        found = itertools.chain.from_iterable(users_of_cards)
        new = [user for user in found if user.pid not in self._users]
        self.seen.warnings += [f"{user} when the point {when}" for user in new]
        self._users |= {user.pid for user in new}
        if users_of_cards:
            self.seen.conditions["other_processes"] = float(len(self._users))

    def _conditions(self) -> dict[str, float]:
        """Use of the machine's other GPUs at the beginning and the end of the point: means over
        both and over all GPUs."""
        if not self._others:
            return {}
        rows = [*self._others_before, *(card.row() for card in self._others)]
        found = {"other_gpus": float(len(self._others))}
        for name in ("power", "utilization"):
            if known := [value for row in rows if (value := row[name]) is not None]:
                found[f"other_gpus_{name}"] = sum(known) / len(known)
        return found

    def _count_memory_errors(
        self, card: Card, before: tuple[int | None, int | None]
    ) -> None:
        """Count memory errors: a corrected error only reduces trust in the card; an uncorrected one
        invalidates the results."""
        corrected, uncorrected = (
            max(0, new - old) if new is not None and old is not None else 0
            for old, new in zip(before, card.memory_errors(), strict=True)
        )
        if corrected:
            self.seen.warnings.append(
                f"{card.label} corrected {corrected} memory errors while this was measured"
            )
        if uncorrected:
            self.seen.fault = self.seen.fault or (
                f"{card.label} had {uncorrected} memory errors that ECC could not correct while"
                " this was measured; hpml doctor and nvidia-smi -q -d ECC,ROW_REMAPPER tell more"
            )


def _held_down(reasons: float | None) -> int:
    """The bits of NVML's reasons that mean power or heat."""
    return int(reasons or 0) & sum(REASONS)


def _series(rows: Sequence[Mapping[str, float | None]]) -> Series:
    """The rows as columns. Columns with missing values are left out: a zero would look like a
    measurement."""
    columns: dict[str, list[float | str | None]] = {}
    for name in UNITS:
        values: list[float | str | None] = [
            value for row in rows if (value := row[name]) is not None
        ]
        if len(values) == len(rows):
            columns[name] = values
    return Series(columns, {name: UNITS[name] for name in columns})
