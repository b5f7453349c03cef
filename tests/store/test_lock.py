from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from asv import util

from hpml_plugins.asv import patches
from hpml_plugins.asv.driver import measure_commit
from hpml_plugins.asv.run import AsvTask, Prepared
from hpml_plugins.host import Declared, Host, Offers
from hpml_plugins.model import Metric
from hpml_plugins.model.node import Node
from hpml_plugins.registry import PluginSource, registry_of
from hpml_plugins.report.progress import RunReport
from hpml_plugins.store import Lock, Locked, lock_machine
from hpml_plugins.suite.points import Suite

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
    with pytest.raises(
        Locked,
        match=rf"held by {socket.gethostname()} \(process {holder.pid}, since \d{{4}}-",
    ):
        Lock(tmp_path / "lock")


def test_a_lock_ends_with_its_holder_even_when_it_is_killed(
    holder: multiprocessing.process.BaseProcess, tmp_path: Path
) -> None:
    os.kill(holder.pid or 0, signal.SIGKILL)
    with Lock(tmp_path / "lock", 30):
        pass


def test_a_lock_outlasts_any_pause_of_its_holder(
    holder: multiprocessing.process.BaseProcess, tmp_path: Path
) -> None:
    os.kill(holder.pid or 0, signal.SIGSTOP)
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))  # as if it had been stopped for decades
    with pytest.raises(Locked, match=rf"process {holder.pid}"):
        Lock(tmp_path / "lock", 0.1)
    os.kill(holder.pid or 0, signal.SIGCONT)


def test_whoever_lost_the_lock_file_learns_it_before_writing(tmp_path: Path) -> None:
    lock = lock_machine(tmp_path, "m")
    lock.check()
    (tmp_path / "m" / ".lock").unlink()
    with pytest.raises(Locked, match="the lock file was removed"):
        lock.check()
    with (
        lock_machine(tmp_path, "m") as other,
        pytest.raises(Locked, match=rf"process {os.getpid()}"),
    ):
        other.check()
        lock.check()
    lock.release()


def test_a_run_that_lost_its_lock_stores_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_machine(tmp_path, "m")
    suite = Suite(
        "run",
        "m",
        Node("Linux", "x86_64", "C", 2, 1.0, "3"),
        str(tmp_path),
        str(tmp_path),
        [],
    )
    toy = Declared(
        PluginSource("p", path="p.py"), "toy", "1", {}, 1.0, [Metric("time", "s", "lower")]
    )
    host = Host(registry_of(tmp_path / "p.py"), (), Offers())
    prepared = Prepared(
        tmp_path, host, suite, RunReport(), [AsvTask({}, 0, toy, {})], lock=lock
    )
    monkeypatch.setattr(patches, "_prepared", [prepared])
    (tmp_path / "m" / ".lock").unlink()
    (tmp_path / "m" / "machine.json").write_text("{}")
    result = tmp_path / "m" / "01234567-env.json"
    with pytest.raises(Locked):
        patches.write_json(util.write_json, str(result), {"results": {}}, 2, compact=True)
    assert not result.exists()
    with pytest.raises(Locked):
        measure_commit(prepared, lambda *_: pytest.fail("a point was measured"), "", "")
    lock.release()


def test_a_released_lock_can_be_taken_again_and_names_nobody(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    lock.release()
    lock.release()
    Lock(tmp_path / "lock").release()
    assert (tmp_path / "lock").read_bytes() == b""


def test_a_machine_that_is_being_measured_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    (tmp_path / "h200-x1").mkdir()
    left = tmp_path / "h200-x1" / ".machine.json.node7-12.partial"
    left.write_text("{")
    with lock_machine(tmp_path, "h200-x1"):
        assert not left.exists()
        with pytest.raises(
            Locked,
            match=r"'h200-x1' is being measured: held by .* name of its own: asv run --machine",
        ):
            lock_machine(tmp_path, "h200-x1")
        lock_machine(tmp_path, "h200-x2").release()


def test_a_symbolic_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "elsewhere").write_text("keep")
    (tmp_path / "m" / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match=r"\.lock"):
        lock_machine(tmp_path, "m")
    assert (tmp_path / "elsewhere").read_text() == "keep"
