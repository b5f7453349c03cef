"""Records read once: which of several counts, what a page may ask back, and what is damaged."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from records import a_record, a_value
from workload_pages import read_point, write_points

from hpml_plugins.analysis.levels import Readings
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.variability import Variability, with_intervals
from hpml_plugins.analysis.variance import Spread
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.rounds import retract
from hpml_plugins.model.serialization import decode
from hpml_plugins.report.reading import History, read_history, stored_lines
from hpml_plugins.store import (
    append_record,
    current_records,
    decode_file,
    read_records,
    record_file,
)

OLD, NEW, ELSEWHERE = "a" * 40, "b" * 40, "c" * 40
REVISIONS = {OLD: 3, NEW: 7}
DECLARED = {
    "toy.track_time": {
        "benchmark": "toy",
        "metric": "time",
        "plugin": "p",
        "direction": "lower",
        "si_unit": "s",
        "version": "1",
        "param_names": ["size"],
        "params": [["10", "20"]],
    }
}


def record(
    size: int, value: float | None, commit: str, started: float, **more: object
) -> Record:
    facts = {
        "plugin": "p",
        "params": {"size": size},
        "status": "ok" if value else "skipped",
        "commit": commit,
        "started": started,
        "node": {"cpu": "EPYC", "gpus": [{"name": "H200"}] * 2},
    }
    return a_record(**{"metrics": {"time": [value] * 7} if value else {}, **facts, **more})


RECORDS = [
    record(10, 1.0, OLD, 10.0),
    record(10, 2.0, OLD, 20.0),
    record(10, None, OLD, 30.0, reason="no GPU free"),  # later, and hides nothing
    record(10, 3.0, NEW, 5.0),
    record(10, 9.0, ELSEWHERE, 99.0),  # of a commit that is not published: the oldest
    record(20, None, NEW, 6.0, reason="no GPU free"),
    record(30, 4.0, NEW, 6.0),  # a point that is not declared
    record(10, 5.0, NEW, 50.0, version="0"),
    record(10, 6.0, NEW, 50.0, benchmark="unknown"),
]


def numbers(history: History) -> dict[str, list[tuple[object, ...]]]:
    """Label → what counts of each commit on the machine: revision, status, value and interval."""
    metric = history.metrics["toy.track_time"]
    return {
        label: [
            (outcome.revision, outcome.status, each and each.value)
            for outcome, each in metric.line(label, "m")
        ]
        for label in metric.benchmark.points
    }


@pytest.fixture
def history(tmp_path: Path) -> History:
    for each in RECORDS:
        append_record(record_file(tmp_path, each.machine, each.commit), each)
    return read_history(tmp_path, None, DECLARED, REVISIONS, {OLD: 1.0, NEW: 2.0}, print)


def test_of_several_records_the_measured_one_that_was_started_last_counts(
    history: History,
) -> None:
    assert (history.commits, history.columns, history.dates) == (
        [OLD, NEW],
        {3: 0, 7: 1},
        [1.0, 2.0],
    )
    assert list(history.metrics["toy.track_time"].benchmark.points) == [
        "size=10",
        "size=20",
        "size=30",
    ]
    assert numbers(history) == {
        "size=10": [(3, "ok", 2.0), (7, "ok", 3.0)],
        "size=20": [(7, "skipped", None)],
        "size=30": [(7, "ok", 4.0)],
    }


def test_a_line_is_asked_for_its_end_and_for_single_revisions(history: History) -> None:
    metric = history.metrics["toy.track_time"]
    assert list(metric.newest_first("size=10", "m")) == metric.line("size=10", "m")[::-1]
    found = metric.at((7, 3, 5, 9), "size=10", "m")
    assert [each and each.revision for each in found] == [7, 3, None, None]
    assert (
        metric.at((3,), "size=20", "m") == metric.at((3,), "no such point", "m") == [None]
    )


def chosen(results: Path) -> list[Record]:
    """What commands show of a point."""
    records = [
        each
        for each in read_records(results)
        if (each.benchmark, each.version) == ("toy", "1")
    ]
    known = Variability(records)
    return [
        with_intervals(record, known.values(record))
        for record in current_records(records, REVISIONS)
    ]


def test_the_records_that_stand_for_a_point_are_those_of_the_commands(
    history: History, tmp_path: Path
) -> None:
    assert history.current() == chosen(tmp_path)


def test_of_every_card_its_newest_measured_record_of_a_point_is_read(
    tmp_path: Path,
) -> None:
    def on(card: str, value: float | None, started: float, commit: str = NEW) -> Record:
        node = {"gpus": [{"name": "H200", "uuid": card}]}
        return record(
            10, value, commit, started, node=node, reason="" if value else "no memory"
        )

    records = [
        on("A", 1.0, 1.0, OLD),
        on("B", 2.0, 2.0, OLD),
        on("A", 3.0, 3.0),
        on("C", 4.0, 4.0),
        on("C", None, 5.0),  # later, and hides nothing
    ]
    for each in records:
        append_record(record_file(tmp_path, each.machine, each.commit), each)
    found = read_history(tmp_path, None, DECLARED, REVISIONS, {OLD: 1.0, NEW: 2.0}, print)
    assert [each.value("time") for each in found.current()] == [4.0]
    assert [each.value("time") for each in found.of_every_card({"toy"})] == [2.0, 3.0, 4.0]
    assert found.of_every_card({"other"}) == []


def test_pages_and_commands_give_the_same_interval_whatever_the_order_of_the_commits(
    tmp_path: Path,
) -> None:
    # the new commit was measured first, at times
    for number, value in enumerate([1.0, 1.1, 1.0, 1.1, 1.0, 1.4]):
        metrics = {
            "time": MetricSamples("s", "lower", [value, value], {"timer": "perf_counter"})
        }
        made = record(
            10,
            value,
            NEW if number % 2 else OLD,
            float(number),
            metrics=metrics,
            source={"sha256": "a"},
        )
        append_record(record_file(tmp_path, "m", made.commit), made)
    again = read_history(tmp_path, None, DECLARED, REVISIONS, {}, print)
    assert again.current() == chosen(tmp_path)


def test_a_point_s_outcome_is_that_of_its_newest_commit(history: History) -> None:
    index = history.metrics["toy.track_time"].benchmark.index
    assert {place[0]: index.on_line(place)[-1].status for place in index} == {
        "size=10": "ok",
        "size=20": "skipped",
        "size=30": "ok",
    }
    assert index.on_line(("size=20", "m"))[-1].reason == "no GPU free"


def test_a_retracted_record_has_no_number_and_its_lines_can_be_downloaded(
    history: History, tmp_path: Path
) -> None:
    append_record(
        record_file(tmp_path, "m", NEW), retract(RECORDS[3], "the timer fell back")
    )
    # the newest of all
    append_record(
        record_file(tmp_path, "m", NEW), retract(RECORDS[8], "the timer fell back")
    )
    again = read_history(tmp_path, None, DECLARED, REVISIONS, {OLD: 1.0, NEW: 2.0}, print)
    assert numbers(again) == {
        **numbers(history),
        "size=10": [(3, "ok", 2.0), (7, "retracted", None)],
    }
    assert again.current() == chosen(tmp_path)
    (retracted,) = [
        each
        for each in again.benchmarks[0].index.on_line(("size=10", "m"))
        if each.status == "retracted"
    ]
    assert (retracted.reason, retracted.warnings) == ("the timer fell back", ())
    assert [decode(line).status for line in stored_lines([retracted])] == [
        "ok",
        "retracted",
    ]
    # the facts of the machine are those of a measured Record
    assert again.last["m"].node == history.last["m"].node


def test_the_hardware_is_asv_s_fact_or_else_the_record_s(
    history: History, tmp_path: Path
) -> None:
    assert [machine.hardware.label for machine in history.machines] == ["H200 ×2"]
    (tmp_path / "m" / "machine.json").write_text(
        json.dumps({"gpu": "NVIDIA H200", "num_gpu": "4", "machine": "m"})
    )
    again = read_history(tmp_path, None, DECLARED, REVISIONS, {}, print)
    assert [machine.hardware.label for machine in again.machines] == ["NVIDIA H200 ×4"]


def test_a_damaged_line_is_named_and_costs_itself_alone(
    history: History, tmp_path: Path
) -> None:
    path = record_file(tmp_path, "m", OLD)
    content = path.read_bytes()
    path.write_bytes(b'{"benchmark": 1}\n' + b"\xff\n" + content + b'{"half')
    damaged: list[str] = []
    again = read_history(
        tmp_path, None, DECLARED, REVISIONS, {}, lambda damage: damaged.append(str(damage))
    )
    assert [line.split(": ")[0].rsplit(":", 1)[1] for line in damaged] == ["1", "2", "6"]
    assert numbers(again) == numbers(history)


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.02])
def test_levels_are_found_whatever_the_noise_and_single_readings_that_stand_out(
    noise: float,
) -> None:
    rng = np.random.default_rng(1)
    levels = np.repeat([1.0, 1.3, 0.9], [40, 8, 30]) * (1 + noise * rng.standard_normal(78))
    levels[20] *= 1 + 8 * noise  # a busy machine
    spread = Spread(1e-4, 10.0, 1e-4, 10.0)
    readings = [
        a_value(value, "h", spread=spread, physics=Physics.CPU) for value in levels.tolist()
    ]
    steps = Readings(np.arange(100, 178), readings).find_levels().levels
    assert [(level.first, level.last) for level in steps] == [
        (100, 139),
        (140, 147),
        (148, 177),
    ]
    assert [level.value for level in steps] == pytest.approx(
        [1.0, 1.3, 0.9], rel=2 * noise + 1e-9
    )


def test_other_software_stacks_stand_beside_the_history_of_the_nodes_own(
    tmp_path: Path,
) -> None:
    own = {"environment": "node-py3.11-torch2.15.0-cuda13.2"}
    stacks = [
        record(10, 1.0, OLD, 1.0, **own),
        record(10, 2.0, NEW, 2.0, **own),
        record(
            10,
            3.0,
            NEW,
            3.0,
            environment="stack-py3.11-torch2.9.1-numpy2.4.0",
            of_stack=True,
        ),
        record(10, 4.0, NEW, 4.0, environment="stack-py3.11-torch2.12.1", of_stack=True),
        # never with the node's own
        record(20, 5.0, NEW, 5.0, environment="stack-py3.11-torch2.12.1", of_stack=True),
    ]
    for each in stacks:
        append_record(record_file(tmp_path, each.machine, each.commit), each)
    found = read_history(tmp_path, None, DECLARED, REVISIONS, {OLD: 1.0, NEW: 2.0}, print)
    assert numbers(found)["size=10"] == [(3, "ok", 1.0), (7, "ok", 2.0)]
    assert numbers(found)["size=20"] == [(7, "ok", 5.0)]
    assert {each.metrics["time"].value for each in found.current()} == {2.0, 5.0}
    assert current_records(read_records(tmp_path), REVISIONS) == [stacks[1], stacks[4]]

    write_points(found, tmp_path)
    over = read_point(tmp_path, "toy", "time", "size=10").partition("over-stack")[2]
    below = re.findall('(?:tick|quiet)" text-anchor="middle">(.*?)</g>', over, re.DOTALL)
    stacks_below, seconds = (re.findall(">([^<]+)</text>", each) for each in below)
    assert stacks_below == ["torch 2.9.1", "torch 2.12.1", "torch 2.15.0"]
    assert seconds == [
        "Python 3.11, numpy2.4.0, installed for it",
        "Python 3.11, installed for it",
        "Python 3.11, CUDA 13.2",
    ]
    assert "over-stack" not in read_point(tmp_path, "toy", "time", "size=20")


def _as_values(history: History) -> list[object]:
    """All that is kept of the Records, and those that stand for a point."""
    outcomes = [
        (place, list(benchmark.index.stored(place)))
        for benchmark in history.benchmarks
        for place in benchmark.index
    ]
    standing = [list(benchmark.current.items()) for benchmark in history.benchmarks]
    return [outcomes, standing, history.last, history.current(), history.outside]


def test_what_the_cache_has_of_a_file_gives_the_same_history(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    results = tmp_path / "results"
    shutil.copytree(tmp_path / "m", results / "m")
    path = record_file(results, "m", NEW)
    decoded: list[Path] = []

    def noting(file: Path, *told: Any) -> Any:
        decoded.append(file)
        return decode_file(file, *told)

    monkeypatch.setattr("hpml_plugins.report.reading.decode_file", noting)

    def read(keeps: bool) -> tuple[list[object], list[Path], list[str]]:
        decoded.clear()
        problems: list[str] = []
        found = read_history(
            results, None, DECLARED, REVISIONS, {}, problems.append, keeps=keeps
        )
        return _as_values(found), decoded.copy(), problems

    fresh, files, problems = read(keeps=False)
    assert path in files and len(files) > 1
    first = read(keeps=True)
    assert first == (fresh, files, problems)
    damaged = {Path(text.partition(":")[0]) for text in problems}
    again, decoded_again, said_again = read(keeps=True)
    assert (again, said_again) == (fresh, problems)
    # a file with damage is read anew: its problem is said each time
    assert set(decoded_again) == damaged

    append_record(path, replace(RECORDS[0], commit=NEW, started=99.0))
    changed, now_decoded, _ = read(keeps=True)
    assert set(now_decoded) == {path} | damaged
    assert changed == read(keeps=False)[0] != fresh

    for kept in (tmp_path / "cache" / "hpml" / "readings").iterdir():
        kept.write_bytes(kept.read_bytes()[:-3])
    assert read(keeps=True)[0] == changed
