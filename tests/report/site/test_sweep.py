"""The chart of a workload over a parameter: what its axis and its legend say."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from records import a_value

from hpml_plugins.report.reading import Hardware, TrackedBenchmark, TrackedMetric
from hpml_plugins.report.site import sweep
from hpml_plugins.report.site.line_chart import LONGEST_NAME
from hpml_plugins.report.site.matrix import TaskCell, TaskRow, TypeColumn
from hpml_plugins.store import Index

H100 = TypeColumn(0, Hardware(0, "NVIDIA H100 80GB HBM3", "1"), ("m",))


def rows_of(points: dict[str, dict[str, str]]) -> list[TaskRow]:
    """A row with a value for each point, by its name."""
    benchmark = TrackedBenchmark("b", "p", "b", "1", Index({}))
    benchmark.points.update(points)
    metric = TrackedMetric("b.track_rate", benchmark, "rate", "B/s", "higher")
    cells = {0: TaskCell(a_value(1e9))}
    return [TaskRow(metric, name, "settled", cells, frozenset(), "", "") for name in points]


def texts(drawn: tuple[str, str] | None, kind: str) -> list[str]:
    assert drawn is not None
    groups = re.findall(
        rf'<(g|text) [^>]*class="{kind}"[^>]*>(.*?)</\1>', str(drawn[1]), re.S
    )
    return [
        text for _, group in groups for text in re.findall("([^<>]+)(?:</text>|$)", group)
    ]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (("'1KiB'", "'1MiB'", "'8GiB'"), ["1KiB", "1MiB", "8GiB"]),
        (("1024", "4096", "16384"), ["1,024", "4,096", "16,384"]),
    ],
)
def test_the_axis_tells_the_parameter_as_it_was_given(
    written: tuple[str, ...], told: list[str]
) -> None:
    rows = rows_of({text: {"size": text} for text in written})
    drawn = sweep.draw_sweep(rows, 0, [H100])
    ticks = texts(drawn, "tick")
    assert [each for each in ticks if each in told] == told
    assert "size" in ticks


def test_a_line_stops_where_a_type_was_not_measured() -> None:
    h200 = TypeColumn(1, Hardware(0, "NVIDIA H200", "1"), ("n",))
    measured = {0: TaskCell(a_value(1e9)), 1: TaskCell(a_value(2e9))}
    one, two, *others = rows_of({str(size): {"size": str(size)} for size in (1, 2, 4, 8)})
    rows = [replace(one, cells=measured), two]
    rows += [replace(each, cells=measured) for each in others]
    drawn = sweep.draw_sweep(rows, 0, [H100, h200])
    assert drawn is not None
    lines = re.findall('class="line" points="([^"]*)"', str(drawn[1]))
    assert [len(line.split()) for line in lines] == [4, 2]  # 4 and 8, not from 1


def test_the_legend_names_what_tells_the_lines_apart() -> None:
    points = {
        f"{dtype} {size}": {"dtype": repr(dtype), "layout": "'nn'", "size": str(size)}
        for dtype in ("bfloat16", "float8_e4m3fn")
        for size in (1, 2, 4)
    }
    drawn = sweep.draw_sweep(rows_of(points), 0, [H100])
    assert texts(drawn, "legend") == [
        "H100 80GB HBM3 ×1, bfloat16",
        "H100 80GB HBM3 ×1, float8_e4m3fn",
    ]


def test_a_name_that_is_too_long_for_the_legend_says_so() -> None:
    points = {
        f"{name} {size}": {"name": repr(name), "size": str(size)}
        for name in ("a b", "an implementation with a very long name")
        for size in (1, 2, 4)
    }
    short, long = texts(sweep.draw_sweep(rows_of(points), 0, [H100]), "legend")
    assert short.endswith("a b") and long.endswith(" …")
    assert len(long) <= LONGEST_NAME


def test_without_three_numbers_there_is_no_sweep() -> None:
    rows = rows_of({text: {"size": text} for text in ("1", "2", "'x'")})
    assert sweep.draw_sweep(rows, 0, [H100]) is None
