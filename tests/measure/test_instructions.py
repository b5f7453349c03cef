"""Counting of events of the CPU, by the real system call: software events, which virtual machines
have too."""

from __future__ import annotations

import errno
import mmap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from records import a_record

from hpml_plugins import Bench, Node
from hpml_plugins.analysis import MeasuredValue, Physics
from hpml_plugins.analysis.physics import physics_of
from hpml_plugins.measure import instructions
from hpml_plugins.measure.instructions import (
    Event,
    _Counter,
    _NotCounted,
    count_events,
    explain,
)
from hpml_plugins.model.record import MetricSamples

#: ns for which the process was running.
TASK_CLOCK = Event(1, 1)
#: Pages of memory that the process used for the first time.
PAGE_FAULTS = Event(1, 2)
#: Of a type that no kernel has.
UNKNOWN = Event(999_999, 0)


@pytest.fixture
def bench(node: Node) -> Bench:
    try:
        with _Counter(TASK_CLOCK):
            return Bench(node, {})
    except _NotCounted as reason:
        pytest.skip(str(reason))


def spin(iterations: int) -> None:
    for _ in range(iterations):
        pass


def touch(pages: int) -> None:
    """Write to pages of new memory; too few for a large page of 2 MiB."""
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1


def test_a_step_of_twice_the_work_counts_twice_as_much(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of pages, because the time of a core that others use too varies by more than two."""
    monkeypatch.setattr(instructions, "FEWEST_COUNTED", 1000)
    one, two = (
        count_events(bench, lambda pages=pages: touch(pages), PAGE_FAULTS)
        for pages in (100, 200)
    )
    assert one and two and bench.collected.warnings == []
    assert two.median / one.median == pytest.approx(2, rel=0.1)
    assert one.unit == "1" and one.info["source"] == "perf"


@pytest.fixture
def worker() -> Iterator[tuple[threading.Event, threading.Event]]:
    """A thread that exists before anything is counted, and works when it is told."""
    begin, done = threading.Event(), threading.Event()

    def work() -> None:
        begin.wait()
        spin(2_000_000)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    yield begin, done
    begin.set()
    thread.join()


def test_threads_count_that_were_there_before(
    bench: Bench, worker: tuple[threading.Event, threading.Event]
) -> None:
    begin, done = worker
    with _Counter(TASK_CLOCK) as counter:
        before = counter.read()
        begin.set()
        done.wait()
        assert counter.read() - before > 5e6


def test_threads_count_that_start_later(bench: Bench) -> None:
    with _Counter(TASK_CLOCK) as counter:
        before = counter.read()
        thread = threading.Thread(target=spin, args=(2_000_000,))
        thread.start()
        thread.join()
        assert counter.read() - before > 5e6


def open_counters() -> int:
    """How many files of counters this process has open: others of its files may be closed at any
    time, such as those that another test left to the garbage collector."""
    opened = Path("/proc/self/fd").iterdir()
    return sum("perf_event" in str(each.readlink()) for each in opened if each.is_symlink())


def test_no_file_stays_open(bench: Bench) -> None:
    opened = open_counters()
    with _Counter(TASK_CLOCK):
        assert open_counters() > opened
    with pytest.raises(_NotCounted):
        _Counter(UNKNOWN)
    assert open_counters() == opened


def test_what_is_not_counted_is_a_warning_and_no_zero(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instructions, "INSTRUCTIONS", UNKNOWN)
    assert bench.instructions(lambda: spin(10)) is None
    assert bench.collected.warnings == [
        "instructions are not known: this machine shows no counter of it (ENOENT from"
        " perf_event_open); most virtual machines hide the processor's"
    ]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errno.EACCES, "perf_event_paranoid is"),
        (errno.EPERM, "seccomp"),
        (errno.ENOSYS, "perf_event_open: ENOSYS, Function not implemented"),
        (errno.EMFILE, "perf_event_open: EMFILE, Too many open files"),
    ],
)
def test_each_refusal_is_told(error: int, said: str) -> None:
    assert said in explain(error)


def test_an_event_that_had_no_turn_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        instructions.os, "read", lambda *_: instructions.COUNT.pack(0, 1000, 0)
    )
    counter = object.__new__(_Counter)
    counter._files = [0]
    with pytest.raises(_NotCounted, match="other programs use all counters"):
        counter.read()


def test_an_event_that_had_half_of_the_turns_is_scaled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        instructions.os, "read", lambda *_: instructions.COUNT.pack(70, 1000, 500)
    )
    counter = object.__new__(_Counter)
    counter._files = [0, 0]
    assert counter.read() == 280


def test_instructions_are_a_class_of_their_own_and_never_busy() -> None:
    counted = MetricSamples("1", "lower", [5.0], {"source": "perf"})
    record = a_record(
        "b", metrics={"n": counted}, conditions={"cores": 2.0, "other_cpus": 2.0}
    )
    assert physics_of(record, "n") is Physics.INSTRUCTIONS
    assert not MeasuredValue.of(record, "n").is_busy
