"""The table at the end of `hpml run` can be read at any width."""

from __future__ import annotations

import pytest

from hpml_plugins.cli.show import Display
from hpml_plugins.model.record import MetricSamples, Record

NAMES = [f"metric_number_{number}" for number in range(8)]


def point(number: int, without: str = "") -> Record:
    metrics = {name: MetricSamples("s", "lower", [0.001 * (number + 1)]) for name in NAMES if name != without}
    return Record(
        benchmark="many", plugin="p", version="1", params={"number": number, "kind": "[red]"}, status="ok",
        metrics=metrics, machine="here",
    )  # fmt: skip


def shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, *records: Record
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    Display(len(records)).table(records)
    return capsys.readouterr().out.splitlines()


def test_with_room_a_row_is_a_point(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    title, fixed, header, *rows = shown(capsys, monkeypatch, 220, point(0), point(1))
    assert (title, fixed) == ("many", "kind=[red]")
    assert header.split() == ["number", *NAMES]
    assert [row.count(f"{number + 1}.000 ms") for number, row in enumerate(rows)] == [len(NAMES)] * 2


@pytest.mark.parametrize("width", [40, 80, 120])
def test_without_room_there_are_several_tables_and_nothing_is_cut(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(capsys, monkeypatch, width, *(point(number) for number in range(9)))
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    for number in range(9):
        assert sum(line.count(f" {number + 1}.000 ms") for line in lines) == len(NAMES)
    assert "[red]" in "".join(lines)


def test_a_number_that_a_point_lacks_is_a_dash(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(capsys, monkeypatch, 220, point(0), point(1, without=NAMES[2]))
    assert lines[-1].count("–") == 1 and lines[-1].count("2.000 ms") == len(NAMES) - 1
