from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from hpml_plugins.store import Lock, Locked, lock_machine

FORK = multiprocessing.get_context("fork")


def hold(path: Path, ready: Connection) -> None:
    lock = Lock(path)
    ready.send(os.getpid())
    signal.pause()
    lock.release()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[multiprocessing.process.BaseProcess]:
    receiver, sender = FORK.Pipe()
    process = FORK.Process(target=hold, args=(tmp_path / "lock", sender), daemon=True)
    process.start()
    assert receiver.recv() == process.pid
    yield process
    process.kill()
    process.join()


def test_a_second_process_is_refused_and_told_who_holds_the_lock(
    holder: multiprocessing.process.BaseProcess, tmp_path: Path
) -> None:
    with pytest.raises(Locked, match=rf"held by {socket.gethostname()} \(process {holder.pid}, since \d{{4}}-"):
        Lock(tmp_path / "lock")


def test_a_lock_ends_with_its_holder_even_when_it_is_killed(
    holder: multiprocessing.process.BaseProcess, tmp_path: Path
) -> None:
    os.kill(holder.pid or 0, signal.SIGKILL)
    with Lock(tmp_path / "lock", 30):
        pass


def test_a_released_lock_can_be_taken_again_and_leaves_no_owner(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    lock.release()
    lock.release()
    Lock(tmp_path / "lock").release()
    assert not list(tmp_path.glob("*-owner"))


def test_a_machine_that_is_being_measured_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "h200-x1").mkdir()
    left = tmp_path / "h200-x1" / ".machine.json.node7-12.partial"
    left.write_text("{")
    with lock_machine(tmp_path, "h200-x1"):
        assert not left.exists()
        with pytest.raises(Locked, match=r"'h200-x1' is being measured: held by .* name of its own: asv run --machine"):
            lock_machine(tmp_path, "h200-x1")
        lock_machine(tmp_path, "h200-x2").release()


def test_a_symbolic_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "elsewhere").write_text("keep")
    (tmp_path / "m" / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match=r"\.lock"):
        lock_machine(tmp_path, "m")
    assert (tmp_path / "elsewhere").read_text() == "keep"
