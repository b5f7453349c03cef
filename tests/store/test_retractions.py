"""A Record that is retracted: its numbers are gone wherever Records are read, its line and the
reason stay."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

from counts import count_missing
from msgspec.structs import replace
from records import a_record

from hpml_plugins.analysis.variability import Variability
from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import retract
from hpml_plugins.report.export import record_rows
from hpml_plugins.store import (
    append_record,
    current_records,
    merge_results,
    project,
    read_records,
    record_file,
)

COMMIT = "a" * 40
REASON = "the timer fell back to the wall clock"


def record(size: int, seconds: float, started: float, run: str = "r1") -> Record:
    return a_record(
        params={"size": size},
        started=started,
        duration=1.0,
        metrics={"time": [seconds]},
        commit=COMMIT,
        environment="env",
        run=run,
        node={"cpu": "EPYC"},
        warnings=["unsure"],
    )


def put(results: Path, *records: Record) -> None:
    for each in records:
        append_record(record_file(results, each.machine, each.commit), each)


def stored(results: Path) -> dict[str, list[float | None]]:
    (file,) = results.glob("m/*-env.json")
    return {name: row[0] for name, row in json.loads(file.read_text())["results"].items()}


def test_nothing_shows_it_and_the_other_records_stand(tmp_path: Path) -> None:
    wrong, right = record(1, 9.0, 10.0), record(2, 2.0, 11.0)
    put(tmp_path, wrong, right)
    project(tmp_path)
    assert stored(tmp_path) == {"toy.track_time": [9.0, 2.0]}
    put(tmp_path, retract(wrong, REASON))
    project(tmp_path, force=True)
    without, with_number = stored(tmp_path)["toy.track_time"]
    assert with_number == 2.0
    assert without is not None and math.isnan(without)  # asv's word for: not measured
    assert count_missing(tmp_path) == (0, 1)
    found = list(read_records(tmp_path))
    assert current_records(found, {}) == [right]
    retracted = found[0]
    assert (retracted.status, retracted.reason, retracted.metrics) == (
        "retracted",
        REASON,
        {},
    )
    assert (retracted.node, retracted.warnings, retracted.duration) == (wrong.node, [], 1.0)
    assert [
        (row["status"], row["reason"], row.get("value"))
        for each in found
        for row in record_rows(each)
    ] == [
        ("retracted", REASON, None),
        ("ok", "", 2.0),
    ]
    assert Variability(found).__dict__ == Variability([right]).__dict__


def test_the_record_of_an_earlier_run_or_a_later_one_stands_for_the_point(
    tmp_path: Path,
) -> None:
    wrong = record(1, 9.0, 10.0)
    put(tmp_path, record(1, 1.0, 5.0, "r0"), wrong, retract(wrong, REASON))
    project(tmp_path)
    assert stored(tmp_path) == {"toy.track_time": [1.0]}
    put(tmp_path, record(1, 1.5, 20.0, "r2"))
    project(tmp_path, force=True)
    assert stored(tmp_path) == {"toy.track_time": [1.5]}
    assert count_missing(tmp_path) == (0, 1)


def test_a_benchmark_with_nothing_else_has_no_row(tmp_path: Path) -> None:
    wrong = record(1, 9.0, 10.0)
    put(tmp_path, wrong)
    project(tmp_path)
    put(tmp_path, retract(wrong, REASON))
    project(tmp_path, force=True)
    assert stored(tmp_path) == {}


def test_all_rounds_are_retracted_and_a_record_without_a_run_is_told_by_its_start(
    tmp_path: Path,
) -> None:
    rounds = [
        record(1, value, started)
        for value, started in ((1.0, 10.0), (2.0, 12.0), (3.0, 14.0))
    ]
    early = [record(2, 1.0, 1.0, run=""), record(2, 2.0, 2.0, run="")]
    put(tmp_path, *rounds, *early)
    whole = next(read_records(tmp_path))
    put(tmp_path, retract(whole, REASON), retract(early[1], REASON))
    found = list(read_records(tmp_path))
    assert [(each.status, each.started, each.duration) for each in found] == [
        ("retracted", 10.0, 3.0),
        ("ok", 1.0, 1.0),
        ("retracted", 2.0, 1.0),
    ]


def test_it_is_merged_like_any_line_in_either_order_and_twice(tmp_path: Path) -> None:
    wrong = record(1, 9.0, 10.0)
    put(tmp_path / "measured", wrong, record(2, 2.0, 11.0))
    put(tmp_path / "retracted", wrong, retract(wrong, REASON))
    put(tmp_path / "again", retract(wrong, "another reason"))
    outcomes = []
    folders = [tmp_path / name for name in ("measured", "retracted", "again")]
    for number, order in enumerate(itertools.permutations(folders)):
        into = tmp_path / f"into{number}"
        for folder in (*order, *order):
            assert merge_results([folder], into).conflicts == []
        (lines,) = into.glob("m/records/*.jsonl")
        outcomes.append((lines.read_bytes(), str(stored(into))))
        assert [each.status for each in read_records(into)] == ["retracted", "ok"]
    assert len(outcomes[0][0].splitlines()) == 4
    assert len(set(outcomes)) == 1


def test_two_records_of_a_round_are_still_a_contradiction(tmp_path: Path) -> None:
    put(tmp_path / "one", record(1, 1.0, 10.0))
    put(tmp_path / "other", replace(record(1, 2.0, 10.0), warnings=[]))
    (conflict,) = merge_results(
        [tmp_path / "one", tmp_path / "other"], tmp_path / "into"
    ).conflicts
    assert "two different Records of one round; neither counts" in conflict
