"""The table at the end of `hpml run` can be read at any width."""

from __future__ import annotations

import msgspec
import pytest

from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.report.progress import RunReport

NAMES = [f"metric_number_{number}" for number in range(8)]


def point(number: int, without: str = "") -> Record:
    metrics = {name: MetricSamples("s", "lower", [0.001 * (number + 1)]) for name in NAMES if name != without}
    return Record(
        benchmark="many", plugin="p", version="1", params={"number": number, "kind": "[red]"}, status="ok",
        metrics=metrics, machine="here",
    )  # fmt: skip


def shown(width: int, *records: Record) -> list[str]:
    report = RunReport()
    for record in records:
        report.add(record)
    return report.finish_benchmark(width).splitlines()


def test_with_room_a_row_is_a_point() -> None:
    fixed, header, *rows = shown(220, point(0), point(1))
    assert fixed == "kind=[red]"
    assert header.split() == ["number", *NAMES]
    assert [row.count(f"{number + 1}.000 ms") for number, row in enumerate(rows)] == [len(NAMES)] * 2


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
    failed = [msgspec.structs.replace(point(n), status="failed", reason="no", metrics={}) for n in (1, 2)]
    lines = shown(220, slow, *failed)
    assert lines[-2:] == ["warning: number=0, kind=[red]: other work", "failed: 2 of 3 points: no"]
