"""Runs damaged files past a reader, in a process of its own that may do little, and counts what came of them.

A reader takes the file or refuses it with one of its documented errors, in one line that can be printed. All else is a
fault: another exception, a case that computes for more than PATIENCE, memory beyond ROOM (as MemoryError), a file
written, moved or removed outside the case's folder, a process or a connection started, code loaded by name.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from fuzzing.mutating import Mutate

from hpml_plugins.errors import HpmlError
from hpml_plugins.isolation import Send, run_isolated

#: s of CPU time for one case: a machine that is busy with others must not fail a test.
PATIENCE = 5.0
#: B that a case may have beyond what the process had before it; B of the longest file it may write.
ROOM, LONGEST_FILE = 2**30, 2**28
VARIABLE = "HPML_FUZZ_CASES"


@dataclass(frozen=True)
class Kind:
    """One kind of file. seeds: whole files, made by code.  read: takes the file's bytes and a folder of its own, as the
    project would; what it returns is counted.  refusals: the documented errors.  imports: what must be there before
    memory is limited."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate
    read: Callable[[bytes, Path], str]
    refusals: tuple[type[Exception], ...] = (HpmlError,)
    prepare: Callable[[Path], None] = lambda folder: None


@dataclass
class Counts:
    """What came of the cases. faults: where → the shortest file that does it, and the traceback."""

    kind: str
    cases: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    reasons: int = 0
    faults: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    seconds: float = 0.0
    slowest: float = 0.0
    memory: float = 0.0

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count:,} {name}" for name, count in sorted(self.outcomes.items()))
        return (
            f"{self.kind}: {self.cases:,} cases: {outcomes} (for {self.reasons:,} reasons); {len(self.faults)} faults; "
            f"{self.seconds:.0f} s, slowest {1e3 * self.slowest:.0f} ms, memory +{self.memory / 2**20:.0f} MiB"
        )


class Forbidden(BaseException):
    """A case did what no file may bring about. Nothing that catches Exception hides it."""


class Hangs(BaseException):
    """A case took longer than PATIENCE."""


class Trial:
    """Reads one file after the other, and keeps the counts. Only for a process of its own: its limits stay."""

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
        _limit()
        self._before = _resident()
        self._guard = _Guard(folder)

    def case(self, data: bytes) -> str:
        """Read one file; returns where it went wrong, or nothing."""
        import time

        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        self._guard.on = True
        try:
            outcome, fault = self._outcome(data), ""
        except (KeyboardInterrupt, SystemExit) as error:
            outcome, fault = "faults", _where(error)
        except BaseException as error:
            outcome, fault = "faults", _where(error)
            if fault not in self.counts.faults or len(data) < len(self.counts.faults[fault][0]):
                said = "".join(traceback.format_exception(error, limit=-8))
                self.counts.faults[fault] = data, said[-3000:]
        finally:
            self._guard.on = False
            signal.setitimer(signal.ITIMER_PROF, 0)
        if self._guard.seen and not fault:  # somebody's `except BaseException` swallowed it
            fault = self._guard.seen
            self.counts.faults.setdefault(fault, (data, ""))
        self._guard.seen = ""
        took = time.process_time() - started
        self.counts.cases += 1
        self.counts.seconds += took
        self.counts.slowest = max(self.counts.slowest, took)
        self.counts.outcomes[outcome] = self.counts.outcomes.get(outcome, 0) + 1
        if fault or self.counts.cases % 500 == 0:  # for who waits for thousands
            (self.folder / "so-far.txt").write_text(
                f"{self.counts}\n\n{show(self.counts.faults)}\n", "utf-8", "replace"
            )
        return fault

    def finish(self) -> Counts:
        """The counts."""
        self.counts.memory = max(0.0, _resident() - self._before)
        self.counts.reasons = len(self._reasons)
        return self.counts

    def _outcome(self, data: bytes) -> str:
        try:
            return self.kind.read(data, self.folder)
        except self.kind.refusals as error:
            said = str(error)
            if isinstance(error, HpmlError):
                assert "\n" not in said and said.isprintable(), f"not one line that can be printed: {said[:500]!r}"
                assert len(said) < 20_000, f"an error of {len(said)} characters: {said[:200]!r}"
            self._reasons["".join(char for char in said if char.isalpha())[:400]] += 1
            return "refused"


class _Guard:
    """Python's audit events, for what a case may not do. A hook cannot be taken away: it rests while `on` is False."""

    WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod")
    NEVER = (
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.fork",
        "os.posix_spawn",
        "socket.connect",
        "pickle.find_class",
    )

    def __init__(self, folder: Path) -> None:
        self.on, self.seen = False, ""
        self.inside = f"{folder.resolve()}{os.sep}"
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or event == "import":
            return
        paths: Sequence[Any] = ()
        if event == "open":
            path, mode, flags = arguments
            writes = bool(flags & self.WRITING) or (isinstance(mode, str) and any(char in mode for char in "wax+"))
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
            if isinstance(path, str | bytes | os.PathLike) and not self._is_inside(os.fsdecode(path)):
                self._refuse(f"{event} outside of the folder: {os.fsdecode(path)!r}"[:300])

    def _is_inside(self, path: str) -> bool:
        # By name, then by where it leads: rmtree works relative to a descriptor, and names bare names.
        if path == os.devnull or os.sep not in path:
            return True
        return (os.path.realpath(path) + os.sep).startswith(self.inside)

    def _refuse(self, what: str) -> None:
        self.seen = what
        raise Forbidden(what)


def hypothesis_cases(kind: Kind, count: int, *, seed: int | None = None) -> Callable[[Trial], None]:
    """Runs that many cases which hypothesis draws.  seed: None for the same cases every time."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as start_at
    from hypothesis import strategies as st

    def run(trial: Trial) -> None:
        seeds = list(kind.seeds())

        @settings(
            max_examples=count, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck), derandomize=seed is None,
        )  # fmt: skip
        # A seed, not hypothesis's own Random: a case is read whole or not at all, there is nothing to shrink.
        @given(st.integers(0, 2**64 - 1), st.integers(0, len(seeds) - 1))
        def cases(start: int, which: int) -> None:
            if trial.counts.cases < count:
                trial.case(kind.mutate(Random(start), seeds[which]))

        (cases if seed is None else start_at(seed)(cases))()

    return run


def fuzz(kind: Kind, run: Callable[[Trial], None], folder: Path, timeout: float) -> Counts:
    """Run cases in a fork of this process. Raises AssertionError when that dies or takes longer."""
    told: list[bytes] = []

    def here(send: Send) -> None:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
        trial = Trial(kind, folder)
        run(trial)
        send(msgspec.msgpack.encode(trial.finish()))

    outcome = run_isolated(here, timeout, told.append)
    assert told, f"{kind.name}: {outcome.fault}\n{outcome.output}"
    return msgspec.msgpack.decode(told[-1], type=Counts)


def show(faults: dict[str, tuple[bytes, str]]) -> str:
    """The faults for a reader: where, the file, how it came there."""
    return "\n\n".join(f"{where}\nfile: {data[:1500]!r}\n{said}" for where, (data, said) in faults.items())


def _where(error: BaseException) -> str:
    """What tells faults apart: the exception, and the innermost line of the project that it crossed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "hpml_plugins" in frame.filename and "/tests/" not in frame.filename]
    at = (ours or list(frames))[-1] if frames else None
    place = f"{Path(at.filename).parent.name}/{Path(at.filename).name}:{at.lineno}" if at else "?"
    return (
        f"{type(error).__name__} at {place}: {str(error)[:60]!r}"
        if isinstance(error, Forbidden)
        else f"{type(error).__name__} at {place}"
    )


def _limit() -> None:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, held + ROOM))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LONGEST_FILE, LONGEST_FILE))

    def hangs(*_: Any) -> None:
        raise Hangs

    signal.signal(signal.SIGPROF, hangs)


def _resident() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """An environment variable, set for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
