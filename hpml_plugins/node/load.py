"""The load that other processes put on this machine's CPUs while a point is measured: their CPU
time and their users."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hpml_plugins import clocks
from hpml_plugins.model.record import BUSY_SHARE

#: A process of another user counts if it used more than this share of one CPU.
ACTIVE = 0.05
#: s for which `describe_load` observes the machine: ten ticks of the kernel's accounting.
GLANCE = 0.1


class _Reading(NamedTuple):
    """CPU time in s: of all processes on the CPUs available to this one, of this one with its
    children, and of each process.

    processes: process id → (user id, s).
    """

    clock: float
    everything: float
    own: float
    processes: dict[int, tuple[int, float]]


class CpuWatch:
    """Sums up the CPU time of other processes on the CPUs available to this process, from its
    creation on."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._before = _read(proc)

    def conditions(self) -> dict[str, float]:
        """`other_cpus` and `other_users` of `Record.conditions`; empty if the system does not
        report CPU times.

        Children of this process count as its own once they were waited for.
        """
        before = self._before
        now = _read(self._proc)
        seconds = now.clock - before.clock
        if now.everything <= before.everything or seconds <= 0:
            return {}
        others = (
            max(0.0, now.everything - before.everything - (now.own - before.own)) / seconds
        )
        users = {
            user
            for user, share in self._shares(now).values()
            if user != os.getuid() and share > ACTIVE
        }
        return {"other_cpus": round(others, 3), "other_users": float(len(users))}

    def largest(self, count: int) -> list[str]:
        """The processes with the most CPU time, except this one: `python (process 4711): 98 % of a
        CPU`."""
        shares = self._shares(_read(self._proc))
        shares.pop(os.getpid(), None)
        ordered = sorted(shares.items(), key=lambda each: -each[1][1])
        return [
            f"{_name(self._proc / str(process))} (process {process}): {share:.0%} of a CPU"
            for process, (_, share) in ordered[:count]
            if share > ACTIVE
        ]

    def _shares(self, now: _Reading) -> dict[int, tuple[int, float]]:
        """Process → (user, CPUs used since the creation of this watch)."""
        seconds = max(now.clock - self._before.clock, 1e-9)
        known = self._before.processes
        return {
            process: (user, (used - known[process][1]) / seconds)
            for process, (user, used) in now.processes.items()
            if process in known
        }


def describe_load(watch: CpuWatch | None = None) -> str:
    """`load 10 on 2 CPUs: other processes use 1.9 of them` if other processes use many CPUs, else
    empty.

    watch: created some time ago; by default the machine is observed for GLANCE.
    """
    if watch is None:
        watch = CpuWatch()
        clocks.sleep(GLANCE)
    used = watch.conditions().get("other_cpus", 0.0)
    cpus = len(os.sched_getaffinity(0))
    if used <= BUSY_SHARE * cpus:
        return ""
    return f"load {os.getloadavg()[0]:.2g} on {cpus} CPUs: other processes use {used:.1f} of them"


def _read(proc: Path) -> _Reading:
    clock = clocks.monotonic()
    tick = os.sysconf("SC_CLK_TCK")
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    everything = 0
    with suppress(OSError, ValueError):
        for line in (proc / "stat").read_text().splitlines():
            name, *times = line.split()
            if name in usable:
                # user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user
                # (proc_stat(5))
                busy = [*times[:3], *times[5:8]]
                everything += sum(map(int, busy))
    own = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        user, system, *_ = resource.getrusage(who)
        own += user + system
    processes = {}
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # it has ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            processes[int(folder.name)] = folder.stat().st_uid, ticks / tick
    return _Reading(clock, everything / tick, own, processes)


def _name(folder: Path) -> str:
    with suppress(OSError):
        return (folder / "comm").read_text().strip()
    return "a process"
