from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from hpml_plugins.store.lock import Held, take
from hpml_plugins.store.machine_lock import MachineTaken, take_machine

FORK = multiprocessing.get_context("fork")


def hold(path: Path, ready: Connection) -> None:
    take(path)
    ready.send(os.getpid())
    signal.pause()


@pytest.fixture
def holder(tmp_path: Path) -> multiprocessing.process.BaseProcess:
    receiver, sender = FORK.Pipe()
    process = FORK.Process(target=hold, args=(tmp_path / "lock", sender), daemon=True)
    process.start()
    assert receiver.recv() == process.pid
    yield process
    process.kill()
    process.join()


def test_a_second_one_is_refused_and_told_who_has_it(
    holder: multiprocessing.process.BaseProcess, tmp_path: Path
) -> None:
    with pytest.raises(Held, match=rf"held by {socket.gethostname()} \(process {holder.pid}, since \d{{4}}-"):
        take(tmp_path / "lock")


def test_a_lock_ends_with_its_holder_however_that_ends(
    holder: multiprocessing.process.BaseProcess, tmp_path: Path
) -> None:
    os.kill(holder.pid or 0, signal.SIGKILL)
    with take(tmp_path / "lock", wait=30):
        pass


def test_a_holder_that_has_been_silent_for_long_is_taken_for_dead(
    holder: multiprocessing.process.BaseProcess, tmp_path: Path
) -> None:
    # a node that lost power: its lock is still with the file server, and nothing touches the file any more
    path = tmp_path / "lock"
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))
    with take(path) as lock:
        assert lock.exclusive
        with pytest.raises(Held, match=f"process {os.getpid()}"):
            take(path)


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    lock = take(tmp_path / "lock")
    lock.release()
    lock.release()
    take(tmp_path / "lock").release()


def test_a_machine_that_is_being_measured_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "h200-x1").mkdir()
    left = tmp_path / "h200-x1" / ".machine.json.node7-12.partial"
    left.write_text("{")
    with take_machine(tmp_path, "h200-x1"):
        assert not left.exists()
        with pytest.raises(MachineTaken, match=r"'h200-x1' is being measured by .* name of its own: asv run --machine"):
            take_machine(tmp_path, "h200-x1")
        take_machine(tmp_path, "h200-x2").release()


def test_a_file_system_without_locks_is_said_and_does_not_stop_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("hpml_plugins.store.lock.fcntl.flock", refuse)
    assert not take(tmp_path / "lock").exclusive
