"""Count the instructions of a step on the CPU with the processor's counters, which other load does
not affect.

Source: perf_event_open(2), Linux manual pages. Counts user-mode instructions of all threads of the
process, including threads started later. A thread that spins while it waits counts too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from hpml_plugins.errors import HpmlError
from hpml_plugins.measure.sampling import sample
from hpml_plugins.measure.session import Session
from hpml_plugins.model.samples import PERF, Samples

#: The system call number of perf_event_open, by processor.
SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
#: struct perf_event_attr of the first version: type, size, config, sample_period, sample_type,
#: read_format, flags, wakeup_events, bp_type, config1.
ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
#: read_format: the count, ns for which the event was enabled, and ns for which it was counted.
COUNT = struct.Struct("=QQQ")
ENABLED_AND_RUNNING = 0b11
#: flags: inherit, exclude_kernel and exclude_hv.
USER_MODE_OF_ALL = 1 << 1 | 1 << 5 | 1 << 6
LEVEL = Path("/proc/sys/kernel/perf_event_paranoid")
#: Fewest instructions of a sample: reading the counters takes some thousands.
FEWEST_COUNTED = 1e7
LARGEST_BATCH = 1 << 20
#: s of samples of a round; counts vary so little that a few are enough.
BUDGET = 0.3


class Event(NamedTuple):
    """The event to count: `type` and `config` of perf_event_attr."""

    kind: int
    config: int


INSTRUCTIONS = Event(0, 1)


class _NotCounted(HpmlError):
    """The system does not count the event; the text says why."""


class _Counter(ExitStack):
    """Counts an event from its creation on, in all threads of this process. Raises NotCounted."""

    def __init__(self, event: Event) -> None:
        super().__init__()
        self._files: list[int] = []
        with ExitStack() as opened:
            for thread in Path("/proc/self/task").iterdir():
                file = _open(event, int(thread.name))
                if file is not None:
                    opened.callback(os.close, file)
                    self._files.append(file)
            self.push(opened.pop_all())

    def read(self) -> float:
        """The number of events. If the processor multiplexes its counters, it is scaled to the
        whole time. Raises NotCounted if the event was never scheduled."""
        total = 0.0
        for file in self._files:
            count, enabled, running = COUNT.unpack(os.read(file, COUNT.size))
            if enabled and not running:
                raise _NotCounted("other programs use all counters of the processor")
            total += count * enabled / running if running else 0.0
        return total


def _open(event: Event, thread: int) -> int | None:
    """Open a file descriptor that counts the event in a thread; None for a thread that has
    ended."""
    number = SYSTEM_CALLS.get(platform.machine())
    if number is None:
        raise _NotCounted(
            f"the system call number of perf_event_open is unknown for {platform.machine()}"
        )
    attributes = ATTRIBUTES.pack(
        event.kind,
        ATTRIBUTES.size,
        event.config,
        0,
        0,
        ENABLED_AND_RUNNING,
        USER_MODE_OF_ALL,
        0,
        0,
        0,
    )
    library = ctypes.CDLL(None, use_errno=True)
    on_any_cpu = -1
    no_group = -1
    flags = 0
    file = library.syscall(
        number,
        ctypes.c_char_p(attributes),
        thread,
        on_any_cpu,
        no_group,
        ctypes.c_ulong(flags),
    )
    if file >= 0:
        return int(file)
    if ctypes.get_errno() == errno.ESRCH:
        return None
    raise _NotCounted(explain(ctypes.get_errno()))


def explain(error: int) -> str:
    """Why perf_event_open failed, and how to fix it where that is known.  error: its errno."""
    name = errno.errorcode.get(error, str(error))
    if error in (errno.EACCES, errno.EPERM):
        level = LEVEL.read_text().strip() if LEVEL.exists() else "not there"
        return (
            f"perf_event_open is not allowed ({name}): {LEVEL} is {level} and must be 2 or less,"
            " and a container's seccomp profile must let it pass"
        )
    if error in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return (
            f"this machine shows no counter of it ({name} from perf_event_open); most virtual"
            " machines hide the processor's"
        )
    return f"perf_event_open: {name}, {os.strerror(error)}"


def count_events(
    session: Session, step: Callable[[], object], event: Event
) -> Samples | None:
    """See Bench.instructions; `step` must have been called before."""
    try:
        with _Counter(event) as counter:
            return _sample(session, step, counter)
    except _NotCounted as reason:
        session.warn(f"instructions are not known: {reason}")
        return None


def _sample(session: Session, step: Callable[[], object], counter: _Counter) -> Samples:
    def run(batch: int) -> float:
        before = counter.read()
        for _ in range(batch):
            step()
        return (counter.read() - before) / batch

    batch = 1
    while batch < LARGEST_BATCH and run(batch) * batch < FEWEST_COUNTED:
        batch *= 2
    plan = session.plan.but(budget=BUDGET)
    return sample(lambda: (run(batch),), plan, {"source": PERF}, batch=batch, symbol="1")
