"""What a run prints: tables at any width, a line for each point, a bar, answers at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from records import a_record

from hpml_plugins.host import Declared
from hpml_plugins.model.benchmark import REFERENCE, Metric
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.registry import PluginSource
from hpml_plugins.report.points import describe_points
from hpml_plugins.report.progress import RunReport, describe_code_changes
from hpml_plugins.report.shares import Roof
from hpml_plugins.run import (
    MEASURED_NOTHING,
    NOT_WHOLE,
    PastRound,
    RoundTimes,
    Task,
    TimeLeft,
    TimeLimit,
    rounds_of,
)
from hpml_plugins.store import append_record, record_file, stored_rounds

NAMES = [f"metric_number_{number}" for number in range(8)]


def point(number: int, without: str = "") -> Record:
    metrics = {name: 0.001 * (number + 1) for name in NAMES if name != without}
    params = {"number": number, "kind": "[red]"}
    return a_record("many", metrics, plugin="p", params=params, machine="here")


def shown(width: int, *records: Record) -> list[str]:
    found = list(describe_points(records, width, Roof([]), verbose=True))
    return "\n".join(found).splitlines()


def test_with_room_a_row_is_a_point() -> None:
    fixed, header, *rows = shown(220, point(0), point(1))
    assert fixed == "kind='[red]'"
    assert header.split() == ["number", *NAMES]
    assert [row.count(f"{number + 1}.000 ms") for number, row in enumerate(rows)] == [
        len(NAMES)
    ] * 2


@pytest.mark.parametrize("width", [40, 80, 120])
def test_without_room_there_are_several_tables_and_nothing_is_cut(width: int) -> None:
    lines = shown(width, *(point(number) for number in range(9)))
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    for number in range(9):
        assert sum(line.count(f" {number + 1}.000 ms") for line in lines) == len(NAMES)
    assert "[red]" in "".join(lines)


def test_a_number_that_a_point_lacks_is_a_dash() -> None:
    lines = shown(220, point(0), point(1, without=NAMES[2]))
    assert lines[-1].count("–") == 1 and lines[-1].count("2.000 ms") == len(NAMES) - 1


def test_what_was_not_measured_stands_below_by_reason_with_the_warnings() -> None:
    slow = msgspec.structs.replace(point(0), warnings=["other work"])
    failed = [
        msgspec.structs.replace(point(n), status="failed", reason="no", metrics={})
        for n in (1, 2)
    ]
    lines = shown(220, slow, *failed)
    assert lines[-2:] == [
        "warning: number=0, kind='[red]': other work",
        "failed: 2 of 3 points: no",
    ]


def test_rounds_that_differ_are_named_beside_an_interval_that_is_wider_than_theirs() -> (
    None
):
    medians = [0.001, 0.00105, 0.004]
    samples = [value for each in medians for value in (each, each, each)]
    metrics = {
        "time": MetricSamples(
            "s", "lower", samples, {"timer": "perf_counter"}, rounds=[3, 3, 3]
        )
    }
    *_, row, said = shown(
        220, msgspec.structs.replace(point(0), params={}, metrics=metrics)
    )
    assert row == "1.050 ms (1.000 ms to 4.000 ms)"
    assert (
        said
        == "warning: 1 of 1 points: time: the rounds differ, their medians are 1.000 ms, 1.050 ms,"
        " 4.000 ms"
    )


def test_points_that_other_processes_disturbed_are_counted_once_at_the_end(
    tmp_path: Path,
) -> None:
    report = RunReport()
    for number, used in enumerate((0.2, 1.9, 0.6)):
        conditions = {"other_cpus": used, "cores": 2.0}
        report.add([msgspec.structs.replace(point(number), conditions=conditions)])
    (line,) = (each for each in report.summary({}, tmp_path) if "other processes" in each)
    assert line.startswith(
        "Busy: during 2 of 3 points other processes used up to 1.9 of 2 CPUs"
    )


def changed(record: Record, **changes: Any) -> Record:
    return msgspec.structs.replace(record, **changes)


def measured(benchmark: str, code: str, started: float, **more: Any) -> Record:
    changes = {
        "benchmark": benchmark,
        "started": started,
        "source": {"sha256": code},
        "commit": code * 40,
        **more,
    }
    return msgspec.structs.replace(point(0), **changes)


def said(tmp_path: Path, past: list[Record], now: list[Record]) -> list[str]:
    for each in past:
        append_record(record_file(tmp_path, each.machine, each.commit), each)
    report = RunReport(past=stored_rounds(tmp_path, "here"))
    report.add(now)
    return [line for line in report.summary({}, tmp_path) if line.startswith("Plugin")]


def test_changed_files_at_an_unchanged_version_are_said_once_for_each_plugin(
    tmp_path: Path,
) -> None:
    past = [
        measured("one", "a", 1.0),
        measured("one", "b", 2.0),  # the newest counts
        measured("two", "b", 2.0),
        measured("three", "b", 2.0),
        measured("three", "c", 3.0, machine="elsewhere"),
        measured(
            "two", "c", 4.0, status="failed", reason="no", metrics={}
        ),  # it has no numbers
    ]
    now = [
        *(
            measured(name, "c", 10.0 + number)
            for name in ("one", "two")
            for number in range(3)
        ),
        measured("three", "c", 10.0, version="2"),
        measured("new", "c", 10.0),
    ]
    assert said(tmp_path, past, now) == [
        "Plugin p changed since commit bbbbbbbb, the version of one, two did not: raise it if what"
        " is measured changed"
    ]


def test_of_many_plugins_whose_files_changed_one_line_tells() -> None:
    few = {name: {"one": "b" * 40} for name in "pqr"}
    assert [line[:9] for line in describe_code_changes(few)] == [
        "Plugin p ",
        "Plugin q ",
        "Plugin r ",
    ]
    (line,) = describe_code_changes({**few, "s": {"two": ""}})
    assert line.startswith(
        "The files of 4 plugins changed since they were measured, their versions did not"
        " (p, q, r, s): raise"
    )


def test_the_same_files_and_records_of_earlier_runs_say_nothing(tmp_path: Path) -> None:
    past = [measured("one", "a", 1.0), measured("one", "b", 2.0)]
    assert said(tmp_path, past, [measured("one", "b", 10.0)]) == []
    # asv was told to skip what is there
    assert said(tmp_path, past, [measured("one", "a", 1.0)]) == []
    assert said(tmp_path, past, [measured("one", "", 10.0, source={})]) == []
    # two commits in one run
    (line,) = said(tmp_path, past, [measured("one", "b", 10.0), measured("one", "c", 11.0)])
    assert "since commit bbbbbbbb" in line


def task(name: str, rounds: int) -> Task:
    metrics = [Metric("time", "s", "lower")]
    source = PluginSource("p", path="p.py")
    return Declared(source, name, "1", {}, 60.0, metrics, rounds=rounds), {}


def test_what_is_left_counts_down_with_each_round_and_ends_at_the_limit() -> None:
    rounds = rounds_of(task("one", 3))
    past = [PastRound("one", "1", {}, "ok", 1.0, 20.0, "here")]
    report = RunReport(RoundTimes(past, "here"))
    report.plan(rounds, repeats=2)  # of two commits
    report.start_round(rounds[0], task("one", 3))
    first = report.time_left.seconds
    assert report._current == "round 1 of 3: one"
    report.finish_round(rounds[0])
    assert report.time_left.seconds < first
    limited = RunReport(RoundTimes(past, "here"), limit=TimeLimit(5.0))
    limited.plan(rounds)
    assert 0 < limited.time_left.seconds <= 5


def test_what_did_not_fit_into_the_limit_is_named_at_the_end(tmp_path: Path) -> None:
    report = RunReport(limit=TimeLimit(540.0))
    report.add([point(0)])
    for number in range(14):
        report.leave_out(task(f"b{number}", 3), measured_rounds=int(number == 0))
    (line,) = (each for each in report.summary({}, tmp_path) if each.startswith("Left out"))
    assert line.startswith("Left out 14 points that did not fit into the limit of 9 min: ")
    assert "b0 (measured 1 of 3 rounds), b1, " in line and line.endswith("b11 and 2 more.")


def test_a_point_that_the_limit_ended_says_how_far_it_was() -> None:
    rounds = rounds_of(task("one", 3))
    report = RunReport(limit=TimeLimit(540.0))
    report.start_round(rounds[0], task("one", 3))
    report.progress("run 4 of 5, epoch 2 of 12", 0.63)
    report.leave_out(task("one", 3), measured_rounds=0)
    report.finish_round(rounds[0])
    report.leave_out(task("two", 3), measured_rounds=0)  # had not started
    assert report.left_out == ["one (ended at: run 4 of 5, epoch 2 of 12 63%)", "two"]


def test_a_run_that_measured_nothing_says_why_in_its_last_line() -> None:
    failed = changed(point(1), status="failed", reason="no", metrics={})
    lacking = changed(point(2), status="skipped", reason="needs data set x: get it")
    reference = changed(point(3), benchmark=REFERENCE)
    old = "1 point of an earlier run"

    def ended(
        asked: int, *given: Record | None, stored: Sequence[Record] = (), **more: Any
    ) -> tuple[int, str]:
        report = RunReport(limit=TimeLimit(540.0))
        report.expect(asked, companion=REFERENCE, **more)
        report.stored += stored
        report.add(given)
        for number in range(
            asked - len(stored) - sum(each is not reference for each in given)
        ):
            if not more:
                report.leave_out(task(f"b{number}", 3), measured_rounds=0)
        return report.status, "".join(report.outcome)

    skipped = "1 point skipped: needs data set x: get it"
    assert ended(1, point(0)) == (0, "")
    assert ended(0) == (0, "")  # such as --bench just-discover
    assert ended(1, lacking) == (MEASURED_NOTHING, f"Measured nothing: {skipped}")
    # that the reference was measured too is nothing that anybody asked for
    assert ended(1, reference, lacking) == (
        MEASURED_NOTHING,
        f"Measured nothing but reference: {skipped}",
    )
    assert ended(2, failed, lacking) == (
        MEASURED_NOTHING,  # a failed point has a status of its own, which comes first
        f"Measured nothing: 1 point failed: no; {skipped}",
    )
    assert ended(2) == (
        MEASURED_NOTHING,
        "Measured nothing: 2 points did not fit into the limit of 9 min",
    )
    assert ended(1, None) == (
        MEASURED_NOTHING,
        "Measured nothing: 1 point skipped: not available at this commit",
    )
    # some of the points
    assert ended(2, point(0), lacking) == (0, "Measured 1 of 2 points: 1 skipped")
    # on a node without a GPU the reference is skipped too; it is none of these two points
    skipped_too = msgspec.structs.replace(lacking, benchmark=REFERENCE)
    one_of_two = (0, "Measured 1 of 2 points: 1 skipped")
    assert ended(2, skipped_too, point(0), lacking) == one_of_two
    assert ended(4, point(0), failed) == (
        NOT_WHOLE,
        "Measured 1 of 4 points: 1 failed, 2 did not fit into the limit of 9 min",
    )
    # what an earlier run measured is there; what it skipped still is not
    assert ended(1, stored=[point(0)]) == (0, f"Measured nothing new: {old}")
    assert ended(2, point(0), stored=[point(1)]) == (0, "")
    status, line = ended(1, stored=[lacking])
    assert (
        status == MEASURED_NOTHING and f"Measured nothing: {old}, without a number" in line
    )
    status, line = ended(3, keeps=True)
    assert status == 0 and line.startswith("Measured nothing new: 3 points not reached: ")
    assert ended(3, keeps=False)[0] == MEASURED_NOTHING
    # a benchmark of asv's own may have been measured
    assert ended(1, lacking, whole=False) == (0, "Measured 0 of 1 point: 1 skipped")


def test_of_a_long_point_a_log_gets_a_line_a_minute_with_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("hpml_plugins.clocks.monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    report = RunReport()
    (this,) = rounds_of(task("one", 1))
    report.plan([this])
    report.begin()
    report.start_round(this, task("one", 1))
    for second in range(600):
        now[0] = float(second)
        report.progress("run 4 of 5", second / 600)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 9
    assert lines[-1].startswith("[") and lines[-1].endswith(": one run 4 of 5 90%")


def test_an_interrupted_run_says_how_many_rounds_a_point_has() -> None:
    lines = shown(220, msgspec.structs.replace(point(0), planned_rounds=3))
    assert lines[-1] == "warning: number=0, kind='[red]': only 1 of 3 rounds measured"


def test_the_bar_is_of_time_and_never_goes_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("hpml_plugins.clocks.monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    rounds = rounds_of(task("one", 4))
    report = RunReport(
        RoundTimes([PastRound("one", "1", {}, "ok", 1.0, 100.0, "here")], "here")
    )
    report.plan(rounds)
    report.begin()
    shares = []
    for this in rounds:
        report.start_round(this, task("one", 4))
        bar = capsys.readouterr().err.rpartition("\r\x1b[K")[2]
        assert len(bar) < 120 and bar.count("█") + bar.count("░") == 20
        shares.append(int(bar.partition("[")[2].partition("%")[0]))
        now[0] += 150.0
        report.progress("later", 0.5)
        assert capsys.readouterr().err.endswith("one later 50%")  # of the point
        monkeypatch.setattr(report, "_current", "a long name " * 9)
        report.progress("later", 0.5)
        narrow = capsys.readouterr().err.rpartition("\r\x1b[K")[2]
        assert len(narrow) == 119 and narrow.endswith("… later 50%")
        report.finish_round(this)
    assert shares == sorted(shares) and shares[0] == 0 and 50 < shares[-1] < 100
    assert report.time_left.seconds == 0


def test_a_point_that_cannot_run_is_no_part_of_the_plan() -> None:
    report = RunReport()
    report.plan(rounds_of(task("one", 1)))
    left = report.time_left.seconds
    report.finish_round(rounds_of(task("skipped", 1))[0])
    assert report.time_left.seconds == left > 0


def test_a_time_that_is_not_known_well_is_told_as_a_range() -> None:
    report = RunReport()
    told = [
        (TimeLeft(200.0, 190.0, 230.0), "about 3 min 20 s"),
        (TimeLeft(200.0, 130.0, 290.0), "2 to 5 min"),
        (TimeLeft(70.0, 41.0, 119.0), "40 to 120 s"),
        (TimeLeft(120.0, 48.0, 301.0), "40 s to 5.5 min"),
        (TimeLeft(240.0, 155.0, 330.0), "2.5 to 5.5 min"),
        (TimeLeft(900.0, 620.0, 1310.0), "10 to 22 min"),
        (TimeLeft(7200.0, 3700.0, 14000.0), "1 to 3.9 h"),
    ]
    for left, words in told:
        assert report._format_left(left) == words
    # a gate may need less than what it plans
    early = RunReport(ends_early=True)
    assert early._format_left(TimeLeft(200.0, 130.0, 290.0)) == "at most 4 min 50 s"


def test_the_commits_that_are_still_to_be_built_are_in_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("hpml_plugins.clocks.monotonic", lambda: now[0])
    past = [PastRound("one", "1", {}, "ok", 1.0, 20.0, "here")]
    report = RunReport(RoundTimes(past, "here"))
    (this,) = rounds_of(task("one", 1))
    report.plan([this], repeats=2, commits=2)
    report.begin()
    both = report.time_left.seconds
    now[0] += 20
    report.finish_round(this)
    now[0] += 100  # builds the second commit
    report.begin()
    assert report.time_left.seconds < both - 20
    assert report.times.build > 50
