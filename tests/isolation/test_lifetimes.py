"""The limit holds whatever a function does to its pipe and its supervisor, and nothing of it
outlives its run."""

from __future__ import annotations

import functools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import psutil
import pytest
from support import still_running

from hpml_plugins.isolation import Send, end_leftovers, leftovers, process, run_isolated

FORK = multiprocessing.get_context("fork")
SLEEP = "import time; time.sleep(600)"


def pipe_of(send: Send) -> int:
    return int(cast("functools.partial[None]", send).args[0])


def close_descriptors(send: Send) -> None:
    os.closerange(0, 4096)
    time.sleep(600)


def close_descriptors_and_ignore(send: Send) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    close_descriptors(send)


def send_half_a_message(send: Send) -> None:
    send(b"whole")
    os.write(pipe_of(send), (100).to_bytes(8, "big") + b"half")
    time.sleep(600)


def send_half_a_length(send: Send) -> None:
    os.write(pipe_of(send), b"\0\0")
    time.sleep(600)


def stop_supervisor(send: Send) -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(600)


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 0.1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, short_grace: None) -> None:
    monkeypatch.setattr(process, "PATIENCE", 1.0)


@pytest.mark.parametrize(
    "function",
    [
        close_descriptors,
        close_descriptors_and_ignore,
        send_half_a_message,
        send_half_a_length,
        stop_supervisor,
    ],
)
def test_a_function_is_ended_at_its_limit_whatever_it_did(
    function: Callable[[Send], None], impatient: None
) -> None:
    said: list[bytes] = []
    before = time.monotonic()
    outcome = run_isolated(function, 0.3, said.append)
    assert outcome.fault.startswith("timed out after 0.3 s")
    assert (
        time.monotonic() - before < 60
    )  # not the ten minutes that the function would take
    assert said == [b"whole"] * (function is send_half_a_message)


def sleep_here(send: Send) -> None:
    time.sleep(600)


def test_a_function_that_was_slow_to_start_has_its_whole_time_and_its_stack(
    monkeypatch: pytest.MonkeyPatch, short_grace: None
) -> None:
    def wait_for_a_core(supervisor: int) -> None:
        time.sleep(3)

    monkeypatch.setattr(process, "leave_mark", wait_for_a_core)
    before = time.monotonic()
    outcome = run_isolated(sleep_here, 2, lambda _: None)
    assert outcome.fault.startswith("timed out after 2 s in sleep_here (test_lifetimes.py:")
    assert time.monotonic() - before >= 5


def test_watching_goes_on_while_a_message_is_half_written(impatient: None) -> None:
    looks = iter(["", "", "the card was lost"])
    outcome = run_isolated(send_half_a_message, 60, lambda _: None, lambda: next(looks))
    assert outcome.fault == "the card was lost"


def test_a_message_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_MESSAGE", 1_000_000)

    def claim(send: Send) -> None:
        os.write(pipe_of(send), b"\xff" * 8)
        while True:
            os.write(pipe_of(send), bytes(65536))

    assert (
        run_isolated(claim, 60, lambda _: None).fault == "sent a message of more than 1 MB"
    )


def test_large_messages_and_many_arrive_whole_and_in_order() -> None:
    said: list[bytes] = []

    def talk(send: Send) -> None:
        send(b"x" * 5_000_000)
        for number in range(2000):
            send(b"%d" % number)

    assert run_isolated(talk, 60, said.append).fault == ""
    assert said == [b"x" * 5_000_000, *(b"%d" % number for number in range(2000))]


def start_programs(folder: Path) -> None:
    """A child, a daemon of its own session, one that ignores signals, and one that never started a
    program."""
    ignoring = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
    started = [
        subprocess.Popen([sys.executable, "-c", SLEEP]).pid,
        subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True).pid,
        subprocess.Popen([sys.executable, "-c", ignoring], start_new_session=True).pid,
    ]
    receiver, sender = os.pipe()
    if not os.fork():
        os.setsid()
        if pid := os.fork():
            os.write(sender, pid.to_bytes(4, "big"))
            os._exit(0)
        os.closerange(3, 4096)
        time.sleep(600)
    os.wait()
    for number in [*started, int.from_bytes(os.read(receiver, 4), "big"), os.getpid()]:
        (folder / str(number)).touch()


def run(folder: Path) -> None:
    """What a run does with a point: SIGTERM and SIGHUP end it as they end any program."""

    def point(_: Send) -> None:
        start_programs(folder)
        (folder / str(os.getppid())).touch()
        (folder.parent / "supervisor").write_text(str(os.getppid()))
        (folder.parent / "ready").touch()
        time.sleep(600)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    run_isolated(point, 600, lambda _: None)


@pytest.fixture
def started(
    tmp_path: Path, short_grace: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[multiprocessing.process.BaseProcess, Path]]:
    """A run in the middle of a point, and the folder of files named after the point's processes.

    Its mark is one of its own: the runs of tests beside this one end what they take for left over.
    """
    monkeypatch.setattr(leftovers, "MARK", "HPML_TESTED_POINT_OF")
    monkeypatch.setattr(
        leftovers, "_PLACE", re.compile(rb"HPML_TESTED_POINT_OF=(\d+)/(\d+)/(\d+)")
    )
    folder = tmp_path / "pids"
    folder.mkdir()
    running = FORK.Process(target=run, args=(folder,))
    running.start()
    patience = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < patience
        time.sleep(0.01)
    yield running, folder
    for pid in still_running(folder):  # where the test failed
        os.kill(pid, signal.SIGKILL)
    running.kill()
    running.join()


def wait_until_gone(folder: Path) -> None:
    patience = time.monotonic() + 60
    while (left := still_running(folder)) and time.monotonic() < patience:
        time.sleep(0.01)
    assert not left


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_of_a_point_outlives_a_killed_run(
    number: signal.Signals, started: tuple[multiprocessing.process.BaseProcess, Path]
) -> None:
    running, folder = started
    assert len(still_running(folder)) == 6
    os.kill(running.pid or 0, number)
    running.join()
    assert running.exitcode == -number
    wait_until_gone(folder)


def test_what_is_left_when_all_were_killed_at_once_is_ended_by_the_next_run(
    started: tuple[multiprocessing.process.BaseProcess, Path],
) -> None:
    running, folder = started
    end_leftovers()
    assert (
        len(still_running(folder)) == 6
    )  # a point that is being measured is not left over
    for pid in (int((folder.parent / "supervisor").read_text()), running.pid or 0):
        os.kill(pid, signal.SIGSTOP)  # so that neither sees the other's end
    for pid in (int((folder.parent / "supervisor").read_text()), running.pid or 0):
        os.kill(pid, signal.SIGKILL)
    running.join()
    patience = time.monotonic() + 60
    while len(left := still_running(folder)) > 4 and time.monotonic() < patience:
        time.sleep(0.01)
    assert (
        len(left) == 4
    )  # all but the function's own process, which ends with its supervisor
    expected = {
        f"ended a process that a killed run had left: {psutil.Process(pid).name()!r} (process"
        f" {pid})"
        for pid in left
    }
    assert expected == {*end_leftovers()}
    wait_until_gone(folder)


def test_a_function_that_kills_its_supervisor_fails_and_leaves_nothing(
    tmp_path: Path, short_grace: None
) -> None:
    def kill_supervisor(_: Send) -> None:
        start_programs(tmp_path)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)

    assert (
        run_isolated(kill_supervisor, 60, lambda _: None).fault
        == "its supervising process was killed or stopped"
    )
    wait_until_gone(tmp_path)


def test_processes_that_ignore_sigterm_are_killed_where_the_first_round_took_all_patience(
    tmp_path: Path, short_grace: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PATIENCE", 1e-6)  # as on an overloaded machine

    def start_and_wait(_: Send) -> None:
        start_programs(tmp_path)
        time.sleep(600)

    outcome = run_isolated(start_and_wait, 3, lambda _: None)
    assert outcome.fault.startswith("timed out after 3 s")
    wait_until_gone(tmp_path)
