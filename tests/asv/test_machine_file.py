"""~/.asv-machine.json under many writers at once: asv reads it, adds to it and writes it."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from hpml_plugins.asv.patches import write_json
from hpml_plugins.asv.run import record_machine


def record(name: str) -> None:
    facts = {"machine": name, "gpu": "none", "num_gpu": "0"}
    record_machine(facts)
    # asv writes what it read when it started: here, before any other machine was there.
    write_json(None, str(Path("~/.asv-machine.json").expanduser()), {name: facts}, 1)


def test_machines_that_are_recorded_at_once_are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    names = [f"machine{number}" for number in range(16)]
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=record, args=(name,)) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 16
    assert {*json.loads((tmp_path / ".asv-machine.json").read_text())} - {"version"} == {
        *names
    }
