"""Runs hostile inputs past a reader, in a process of its own that may do little, and counts what
came of them.

A reader takes the input or refuses it with one of its documented errors, in one line that can be
printed. All else is a fault: another exception, a case that computes for more than PATIENCE or
waits for more than WAIT, memory beyond ROOM (as MemoryError), memory that grows by more than GROWTH
over all cases, a file written, moved or removed outside the case's folder, a process or a
connection started, code loaded by name.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from fuzzing.mutating import Mutate

from hpml_plugins.errors import HpmlError
from hpml_plugins.isolation import Send, run_isolated

#: s of CPU time for one case, and s of waiting: a machine that is busy with others must not fail a
#: test.
PATIENCE, WAIT = 5.0, 30.0
#: B that a case may have beyond what the process had before it; B of the longest file it may write.
ROOM, LONGEST_FILE = 2**30, 2**28
#: B by which the process may grow over all cases, and s for the reduction of one fault.
GROWTH, REDUCTION = 2**28, 20.0
VARIABLE = "HPML_FUZZ_CASES"


@dataclass(frozen=True)
class Kind:
    """One kind of input. seeds: whole inputs, made by code.  mutate: changes one.  grammar: writes
    an input.

    read: takes the input's bytes and a folder of its own, as the project would; what it returns is
    counted.  refusals: the documented errors.  prepare: what must be there before memory is
    limited.  may: audit events that are no fault.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate
    read: Callable[[bytes, Path], str]
    refusals: tuple[type[BaseException], ...] = (HpmlError,)
    prepare: Callable[[Path], None] = lambda folder: None
    grammar: Callable[[Random], bytes] | None = None
    may: tuple[str, ...] = ()

    def draw(self, random: Random, seeds: Sequence[bytes]) -> bytes:
        """An input: by the grammar, a changed seed, or, one in eight, a changed input of the
        grammar."""
        choice = random.randrange(8)
        if self.grammar is None or choice > 4:
            return self.mutate(random, random.choice(seeds))
        written = self.grammar(random)
        return written if choice else self.mutate(random, written)


@dataclass
class Counts:
    """What came of the cases. faults: where → the shortest input that does it, and the traceback.

    seconds, slowest: of CPU time.  memory: B by which the largest size of the process grew.
    """

    kind: str
    cases: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    reasons: int = 0
    faults: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    seconds: float = 0.0
    slowest: float = 0.0
    memory: float = 0.0

    @property
    def refused(self) -> int:
        """How many inputs ended in an error in one line."""
        return self.outcomes.get("refused", 0)

    @property
    def accepted(self) -> int:
        """How many were read, or left out with a warning."""
        return self.cases - self.refused - self.outcomes.get("faults", 0)

    def __str__(self) -> str:
        outcomes = ", ".join(
            f"{count:,} {name}" for name, count in sorted(self.outcomes.items())
        )
        return (
            f"{self.kind}: {self.cases:,} cases: {outcomes} (for {self.reasons:,} reasons);"
            f" {len(self.faults)} faults; {self.seconds:.0f} s, slowest {1e3 * self.slowest:.0f}"
            f" ms, memory +{self.memory / 2**20:.0f} MiB"
        )


class Forbidden(BaseException):
    """A case did what no file may bring about. Nothing that catches Exception hides it."""


class Hangs(BaseException):
    """A case took longer than PATIENCE or WAIT."""


class Trial:
    """Reads one file after the other, and keeps the counts. Only for a process of its own: its
    limits stay."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.counts = Counts(kind.name)
        self._reasons: Counter[str] = Counter()
        temporary = folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = str(temporary)
        sys.dont_write_bytecode = True
        kind.prepare(folder)
        for seed in kind.seeds():  # imports what is imported late, before memory is limited
            self._outcome(seed)
        self._guard = _Guard(folder, kind.may)
        _limit(self._guard)
        gc.collect()
        self._before, self._size = _largest_size(), _size()

    def case(self, data: bytes) -> str:
        """Read one input; returns where it went wrong, or nothing."""
        started = time.process_time()
        outcome, fault, said = self._try(data)
        took = time.process_time() - started
        if not fault and self.counts.cases % 500 == 499:
            outcome, fault = self._grown() or (outcome, fault)
        if fault and (
            fault not in self.counts.faults or len(data) < len(self.counts.faults[fault][0])
        ):
            self.counts.faults[fault] = data, said[-3000:]
        self.counts.cases += 1
        self.counts.seconds += took
        self.counts.slowest = max(self.counts.slowest, took)
        self.counts.outcomes[outcome] = self.counts.outcomes.get(outcome, 0) + 1
        if fault or self.counts.cases % 500 == 0:  # for who waits for thousands
            (self.folder / "so-far.txt").write_text(
                f"{self.counts}\n\n{show(self.counts.faults)}\n", "utf-8", "replace"
            )
        return fault

    def reduce(self) -> None:
        """Make each fault's input smaller: leave out ever shorter pieces while it still goes wrong
        in that place."""
        for fault, (data, said) in list(self.counts.faults.items()):
            until = time.monotonic() + REDUCTION
            size = len(data) // 2
            while size and time.monotonic() < until:
                at = 0
                while at < len(data) and time.monotonic() < until:
                    shorter = data[:at] + data[at + size :]
                    _, found, words = self._try(shorter)
                    if found == fault:
                        data, said = shorter, words[-3000:]
                    else:
                        at += size
                size //= 2
            self.counts.faults[fault] = data, said

    def finish(self) -> Counts:
        """The counts."""
        self.counts.memory = max(0.0, _largest_size() - self._before)
        self.counts.reasons = len(self._reasons)
        return self.counts

    def _try(self, data: bytes) -> tuple[str, str, str]:
        """What came of an input, where it went wrong, and the traceback."""
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        signal.setitimer(signal.ITIMER_REAL, WAIT)
        self._guard.on = True
        fault = said = ""
        try:
            outcome = self._outcome(data)
        except BaseException as error:
            outcome, fault = "faults", _where(error)
            said = "".join(traceback.format_exception(error, limit=-8))
        finally:
            self._guard.on = False
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self._guard.seen and not fault:  # somebody's `except BaseException` swallowed it
            outcome, fault = "faults", self._guard.seen
        self._guard.seen = ""
        return outcome, fault, said

    def _grown(self) -> tuple[str, str] | None:
        gc.unfreeze()  # the command line freezes what it imported
        gc.collect()
        grown = _size() - self._size
        return (
            ("faults", f"memory grew by more than {GROWTH / 2**20:.0f} MiB")
            if grown > GROWTH
            else None
        )

    def _outcome(self, data: bytes) -> str:
        try:
            return self.kind.read(data, self.folder)
        except self.kind.refusals as error:
            said = str(error)
            if isinstance(error, HpmlError):
                assert "\n" not in said and said.isprintable(), (
                    f"not one line that can be printed: {said[:500]!r}"
                )
                assert len(said) < 20_000, (
                    f"an error of {len(said)} characters: {said[:200]!r}"
                )
            self._reasons["".join(char for char in said if char.isalpha())[:400]] += 1
            return "refused"


class _Guard:
    """Python's audit events, for what a case may not do. A hook cannot be taken away: it rests
    while `on` is False."""

    WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    NAMED = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link")
    CHANGES = (*NAMED, "os.truncate", "os.chmod")
    NEVER = (
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.fork",
        "os.posix_spawn",
        "socket.connect",
        "pickle.find_class",
    )

    def __init__(self, folder: Path, may: Sequence[str] = ()) -> None:
        self.on, self.seen, self.may = False, "", may
        self.inside = f"{folder.resolve()}{os.sep}"
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or event == "import" or event in self.may:
            return
        paths: Sequence[Any] = ()
        if event == "open":
            path, mode, flags = arguments
            writes = bool(flags & self.WRITING) or (
                isinstance(mode, str) and any(char in mode for char in "wax+")
            )
            paths = (path,) if writes else ()
        elif event in self.CHANGES:
            # a link's target is only a name
            paths = (
                arguments[1:2]
                if event in ("os.symlink",)
                else [each for each in arguments[:2] if not isinstance(each, int)]
            )
        elif event in self.NEVER:
            self._refuse(f"{event} {arguments!r}"[:300])
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike) and not self._is_inside(
                os.fsdecode(path), event
            ):
                self._refuse(f"{event} outside of the folder: {os.fsdecode(path)!r}"[:300])

    def _is_inside(self, path: str, event: str) -> bool:
        # By name, then by where it leads: rmtree works relative to a descriptor, and names bare
        # names.
        if path == os.devnull or os.sep not in path:
            return True
        if event in self.NAMED:  # a link in this place is itself renamed or removed
            path = str(Path(path).parent)
        return (os.path.realpath(path) + os.sep).startswith(self.inside)

    def _refuse(self, what: str) -> None:
        self.seen = what
        raise Forbidden(what)


def random_cases(
    kind: Kind, seed: int, count: float, seconds: float = math.inf
) -> Callable[[Trial], None]:
    """Runs that many cases, or as many as the time allows. The seed and a case's number make the
    case."""

    def run(trial: Trial) -> None:
        until, seeds = time.monotonic() + seconds, kind.seeds()
        while trial.counts.cases < count and time.monotonic() < until:
            trial.case(kind.draw(Random(f"{seed} {kind.name} {trial.counts.cases}"), seeds))

    return run


def fuzz(kind: Kind, run: Callable[[Trial], None], folder: Path, timeout: float) -> Counts:
    """Run cases in a fork of this process. Raises AssertionError when that dies or takes longer."""
    sent: list[bytes] = []
    kind.seeds()  # most are kept: the next kind need not read results/ again

    def here(send: Send) -> None:
        trial = Trial(kind, folder)
        run(trial)
        counts = trial.finish()
        trial.reduce()
        send(msgspec.msgpack.encode(counts))

    outcome = run_isolated(here, timeout, sent.append)
    assert sent, f"{kind.name}: {outcome.fault}\n{outcome.output}"
    return msgspec.msgpack.decode(sent[-1], type=Counts)


def show(faults: dict[str, tuple[bytes, str]]) -> str:
    """The faults for a reader: where, the input, how it came there."""
    return "\n\n".join(
        f"{where}\ninput: {data[:1500]!r}\n{said[-1500:]}"
        for where, (data, said) in faults.items()
    )


def _where(error: BaseException) -> str:
    """What tells faults apart: the exception, and the innermost line of the project that it
    crossed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        frame
        for frame in frames
        if "hpml_plugins" in frame.filename and "/tests/" not in frame.filename
    ]
    at = (ours or list(frames))[-1] if frames else None
    place = (
        f"{Path(at.filename).parent.name}/{Path(at.filename).name}:{at.lineno}"
        if at
        else "?"
    )
    return (
        f"{type(error).__name__} at {place}: {str(error)[:60]!r}"
        if isinstance(error, Forbidden)
        else f"{type(error).__name__} at {place}"
    )


def _limit(guard: _Guard) -> None:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, held + ROOM))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LONGEST_FILE, LONGEST_FILE))

    def hangs(*_: Any) -> None:
        guard.seen = "Hangs"  # somebody's `except BaseException` may swallow it
        raise Hangs

    signal.signal(signal.SIGPROF, hangs)
    signal.signal(signal.SIGALRM, hangs)


def _largest_size() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


def _size() -> float:
    return float(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
