"""asv's result file is written while a run goes on."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from asv.results import Results
from asv.runner import BenchmarkResult

from hpml_plugins.asv import saving


@pytest.fixture
def saved_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load_data", "add_result"):
        monkeypatch.setattr(Results, name, getattr(getattr(Results, name), "__wrapped__", getattr(Results, name)))
    saving.save_as_results_come()


def results_of(machine: str) -> Results:
    return Results({"machine": machine}, {}, "0123456789", 0, "3.11", "node", {})


def add(results: Results, name: str, value: float) -> None:
    benchmark = {"name": name, "version": "1", "params": []}
    found = BenchmarkResult([value], [None], [None], 0, "", None)
    results.add_result(benchmark, found, datetime.datetime.now(datetime.UTC), 0.1)


def stored(folder: Path) -> dict[str, Any]:
    files = [*folder.glob("m/*.json")]
    return json.loads(files[0].read_text())["results"] if files else {}


@pytest.mark.usefixtures("saved_as_they_come")
def test_results_are_saved_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(saving.time, "monotonic", lambda: now)
    results = results_of("m")
    results.load_data(str(tmp_path))
    add(results, "a.track_x", 1.0)
    assert stored(tmp_path) == {}
    now += saving.EVERY
    add(results, "b.track_x", 2.0)
    assert {name: row[0] for name, row in stored(tmp_path).items()} == {"a.track_x": [1.0], "b.track_x": [2.0]}
    add(results, "c.track_x", 3.0)
    assert len(stored(tmp_path)) == 2
    results.save(str(tmp_path))  # as asv does at the end
    assert len(stored(tmp_path)) == 3


@pytest.mark.usefixtures("saved_as_they_come")
def test_what_is_not_to_be_saved_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "EVERY", 0.0)
    monkeypatch.chdir(tmp_path)
    add(results_of("m"), "a.track_x", 1.0)  # a dry run loads nothing
    assert [*tmp_path.rglob("*")] == []
