"""Charts as they stand in pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hpml_plugins.model.figure import Chart, Table
from hpml_plugins.report.charts import (
    Axis,
    Rule,
    bar_chart,
    complete,
    dot_chart,
    line_chart,
)
from hpml_plugins.report.kept import kept_file
from hpml_plugins.report.site.chart_svg import (
    chart_svg,
    vega_library,
)

vl_convert = pytest.importorskip("vl_convert")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def chart(machine: str = "m") -> Chart:
    rule = Rule("y", 3e-5, "published")
    made = line_chart(Axis("size.B", "size", "B"), Axis("time", "time", "s"), "machine")
    ruled = line_chart(Axis("size.B", "size", "B"), Axis("time", "time", "s"), rules=[rule])
    table = Table({"size.B": [1, 2], "time": [1e-5, 3.5e-5], "machine": [machine] * 2})
    return complete(ruled if machine == "ruled" else made, table)


def svg_of(chart: Chart) -> str:
    return chart_svg(chart).file.decode()


def titles(svg: str) -> list[str]:
    return re.findall("<title>(.*?)</title>", svg)


def test_marks_carry_the_values_of_their_tooltips_as_titles() -> None:
    assert titles(svg_of(chart())) == [
        "machine: m · size: 1 B · time: 10 µs",
        "machine: m · size: 2 B · time: 35 µs",
    ]
    assert "published" in titles(svg_of(chart("ruled")))


@pytest.mark.parametrize("draw", [dot_chart, bar_chart])
def test_an_interval_carries_the_values_of_its_mark(draw: Callable[..., Chart]) -> None:
    made = draw("machine", Axis("time", "time", "s"), low="fastest", high="slowest")
    row = {"machine": ["m"], "time": [1e-5], "fastest": [9e-6], "slowest": [2e-5]}
    told = "machine: m · time: 10 µs · fastest: 9 µs · slowest: 20 µs"
    assert titles(svg_of(complete(made, Table(row)))) == [told, told]


def test_a_drawn_chart_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = svg_of(chart())
    monkeypatch.setattr(vl_convert, "vegalite_to_svg", None)
    assert svg_of(chart()) == first
    with pytest.raises(TypeError):
        svg_of(chart("another"))


def test_a_file_is_the_same_whatever_was_drawn_before_it() -> None:
    first = svg_of(chart())
    (kept,) = kept_file("").glob("*.svg")
    svg_of(chart("another"))
    kept.unlink()
    assert svg_of(chart()) == first
    assert {*re.findall(r"url\(#(.*?)\)", first)} <= {*re.findall(r'id="(.*?)"', first)}


def test_a_file_says_its_size_and_has_the_ink_of_its_page() -> None:
    made = chart_svg(chart())
    assert f'width="{made.width}" height="{made.height}"' in made.file.decode()
    assert b'href="../site.css"' in made.file
    assert b' color="#1a1d21"' in made.file  # once downloaded, without the style sheet


def test_a_chart_has_no_style_that_the_policy_of_pages_would_refuse() -> None:
    svg = svg_of(chart("<b>&amp;\u0022"))
    assert "style=" not in svg
    assert "<b>" not in svg
    assert "currentColor" in svg


@pytest.mark.parametrize(
    "damage", ["", "<svg", "<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>"]
)
def test_a_damaged_chart_in_the_cache_is_drawn_again(damage: str) -> None:
    first = svg_of(chart())
    (kept,) = kept_file("").glob("*.svg")
    kept.write_text(damage)
    assert svg_of(chart()) == first
    assert kept.read_text() != damage


def test_a_site_without_the_script_that_explores_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(snippet: str) -> str:
        raise ValueError("no bundle")

    monkeypatch.setattr(vl_convert, "javascript_bundle", fail)
    with pytest.raises(ValueError, match="no bundle"):
        vega_library()
