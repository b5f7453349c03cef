"""A line for each point and one for its doubts; the machine's own numbers and what changed, at the
end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from records import a_record

from hpml_plugins.model.figure import Table
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.registry import Question, TaskEntry
from hpml_plugins.report.last_commit import changes
from hpml_plugins.report.points import doubts, headlines, kind_of, point_lines
from hpml_plugins.report.shares import Roof
from hpml_plugins.report.tables import as_text

LONG = {"layer": "granite-3.0-1b-a400m/qkv", "tokens": 64, "format": "float32"}


def timed(samples: list[float], rounds: list[int] | None = None) -> MetricSamples:
    return MetricSamples(
        "s", "lower", samples, {"timer": "perf_counter"}, rounds=rounds or []
    )


def lines(*records: Record, width: int = 100) -> list[str]:
    return list(point_lines(records, Roof([]), width))


def test_a_point_is_a_line_and_a_skipped_one_is_none() -> None:
    quiet = a_record("one", {"time": [0.001] * 10, "other": 7.0}, params={"size": 10})
    skipped = a_record("one", params={"size": 20}, status="skipped", reason="no GPU")
    assert lines(quiet, skipped) == ["one size=10  time 1.000 ms ± 0 %"]


def test_a_failed_point_is_named_with_its_whole_reason() -> None:
    failed = a_record("one", status="failed", reason=f"no\n{'x' * 200}")
    assert lines(failed) == [f"one  FAILED: no {'x' * 200}"]


def test_a_long_point_is_named_by_what_differs() -> None:
    other = {**LONG, "tokens": 128}
    shown = lines(
        *(a_record("gemm", {"n": 1.0}, params=params) for params in (LONG, other))
    )
    assert [line.split("  ")[0].rstrip() for line in shown] == [
        "gemm tokens=64",
        "gemm tokens=128",
    ]


@pytest.mark.parametrize(
    ("samples", "rounds", "said"),
    [
        ([1.0] * 9, [3, 3, 3], []),
        ([1.0] * 3 + [1.05] * 3, [3, 3], []),
        ([1.0] * 3 + [3.0] * 3, [3, 3], ["noisy: ± 50 %, rounds differ 3.00×"]),
        ([1.0, 1.5, 2.0, 40.0] * 5, [], ["noisy: ± >100 %"]),
    ],
)
def test_noise_is_said_in_a_few_words(
    samples: list[float], rounds: list[int], said: list[str]
) -> None:
    assert doubts(a_record("one", {"time": timed(samples, rounds)})) == said


def test_of_several_warnings_the_first_is_said_and_the_others_are_counted() -> None:
    warned = a_record("one", {"n": 1.0}, warnings=["a", "b", "c"], noise=["n: noisy"])
    assert doubts(warned) == ["a", "2 more warnings (-v)"]
    noisy = msgspec.structs.replace(warned, metrics={"n": timed([1.0, 1.5, 2.0, 40.0] * 5)})
    assert doubts(noisy) == ["noisy: ± >100 %", "3 more warnings (-v)"]
    point, doubt = lines(msgspec.structs.replace(warned, warnings=["w" * 200]), width=60)
    assert point.startswith("one  n") and doubt == f"    ! {'w' * 53}…"


def test_reasons_are_of_one_kind_whatever_the_number_of_gpus() -> None:
    reasons = (
        "needs 1 GPU, this node has none",
        "needs 8 GPUs, this node has none; needs data",
    )
    assert {kind_of(reason) for reason in reasons} == {
        "needs more GPUs, this node has none"
    }


def test_a_table_that_does_not_fit_is_transposed_in_parts() -> None:
    table = Table({"name": ["a", "bb", "c"], "long value": ["x" * 12, "y" * 12, "z" * 12]})
    assert as_text(table, width=18) == as_text(table)
    assert as_text(
        Table({**table.columns, "more": ["1", "2", "3"]}), width=18
    ).splitlines() == [
        "name        a",
        "long value  xxxxxxxxxxxx",
        "more        1",
        "",
        "name        bb",
        "long value  yyyyyyyyyyyy",
        "more        2",
        "",
        "name        c",
        "long value  zzzzzzzzzzzz",
        "more        3",
    ]


def task(metric: str, **more: Any) -> TaskEntry:
    return TaskEntry("On a GPU", metric, **more)


def test_the_headlines_are_the_newest_values_of_the_tasks_that_were_measured() -> None:
    old = a_record("copy", {"time": [2.0] * 9}, gpu="G", params={"size": 1}, started=1.0)
    new = a_record("copy", {"time": [1.0] * 9}, gpu="G", params={"size": 1}, started=2.0)
    tasks = {"Memory": [task("copy.time", point={"size": 1}), task("never.time")]}
    assert headlines(tasks, [new, old], {new.run}) == ["On a GPU  1.000 s ± 0 %"]
    assert headlines(tasks, [new], {"another"}) == ["On a GPU  1.000 s ± 0 %    earlier"]
    assert headlines({}, [new], set()) == headlines(tasks, [], set()) == []


def test_a_node_without_a_gpu_answers_the_kin() -> None:
    record = a_record("copy_cpu", {"time": [1.0] * 9})
    kin = Question("On a CPU", "copy_cpu.time")
    tasks = {"Memory": [task("copy.time", on_cpu=kin), task("copy_cpu.time")]}
    assert headlines(tasks, [record], {record.run}) == ["On a CPU  1.000 s ± 0 %"]


@pytest.mark.parametrize("rounds", [[], [3, 3, 3]])
def test_a_task_at_boost_takes_the_samples_before_the_card_throttled(
    rounds: list[int],
) -> None:
    metric = MetricSamples(
        "s", "lower", [2.0] * 9, boost=[1.0] * 9, rounds=rounds, boost_rounds=rounds
    )
    record = a_record("gemm", {"time": metric}, gpu="G")
    asked = [task("gemm.time", regime="boost"), task("gemm.time")]
    at_boost, settled = headlines({"x": asked}, [record], {record.run})
    assert "1.000 s" in at_boost and "sustained" not in at_boost
    assert "2.000 s" in settled and "sustained" in settled


def of_commit(commit: str, scale: float, started: float) -> list[Record]:
    return [
        a_record(
            "one",
            {"time": timed([scale * (1 + 1e-4 * number) for number in range(9)])},
            params={"size": size},
            commit=commit * 40,
            started=started + size,
            run=f"{commit}{size}",
            source={"sha256": commit},
        )
        for size in range(4)
    ]


def test_what_changed_is_told_against_the_last_commit_before_it() -> None:
    records = [
        *of_commit("a", 1.0, 0),
        *of_commit("b", 1.0, 100),
        *of_commit("c", 3.0, 200),
    ]
    order = {commit * 40: place for place, commit in enumerate("abc")}
    first, *_ = changes(records, "m", "c" * 40, order)
    assert first.startswith(
        "Since bbbbbbbb, the last commit measured here: 4 values of 4 points: "
    )
    (alone,) = changes(records, "m", "a" * 40, order)
    assert alone == "No earlier commit measured these points on m: nothing to compare with."


def test_a_changed_value_is_told_in_the_one_form_of_ratios() -> None:
    counted = [
        a_record(
            "one", {"bytes": number}, units={"bytes": "B"}, commit=commit * 40, run=commit
        )
        for commit, number in (("a", 100.0), ("b", 121.0))
    ]
    shown = list(changes(counted, "m", "b" * 40, {"a" * 40: 0, "b" * 40: 1}))
    assert "  WORSE one: 1.21× the bytes (+21 %)" in shown
    assert shown[-1] == "  all of them: hpml compare aaaaaaaa bbbbbbbb --machine m"


def test_what_changed_beside_other_work_is_counted_without_a_verdict() -> None:
    timed = {"timer": "perf_counter"}
    records = [
        a_record(
            "one",
            {"time": MetricSamples("s", "lower", [seconds] * 30, timed)},
            conditions={"cores": 2.0, "other_cpus": others},
            commit=commit * 40,
            run=commit,
        )
        for commit, seconds, others in (("a", 1.0, 0.0), ("b", 9.0, 1.9))
    ]
    shown = list(changes(records, "m", "b" * 40, {"a" * 40: 0, "b" * 40: 1}))
    assert shown[0].endswith("the last commit measured here: no value is judged.")
    assert shown[1:] == [
        "  Not judged: 1 point measured while other processes used the CPUs; measure again when"
        " idle",
        "  all of them: hpml compare aaaaaaaa bbbbbbbb --machine m",
    ]
