from __future__ import annotations

import pytest

from hpml_plugins import dots, legend_below, panels

figure = pytest.importorskip("matplotlib.figure")


def test_panels_stand_two_abreast_on_a_sheet_that_grows() -> None:
    sheet = figure.Figure(figsize=(8.0, 4.0))
    drawn = panels(sheet, 3)
    assert (len(drawn), len(sheet.axes)) == (3, 3)
    assert tuple(sheet.get_size_inches()) == (8.0, 8.0)
    assert len(panels(figure.Figure(), 1)) == 1


def test_a_label_looks_alike_in_all_panels_and_stands_in_the_legend_once() -> None:
    sheet = figure.Figure(layout="constrained")
    first, second = panels(sheet, 2)
    first.plot([1, 2], [1, 2], marker="o", label="a")
    first.plot([1, 2], [2, 1], marker="s", label="b")
    second.plot([1, 2], [3, 4], marker="o", label="b")  # drawn as the panel's first line
    limit = second.axhline(5, color="0.5", marker="", label="limit")
    legend_below(sheet)
    (legend,) = sheet.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "limit"]
    own, other = first.get_lines()[1], second.get_lines()[0]
    assert own.get_color() == other.get_color() != first.get_lines()[0].get_color()
    assert list(other.get_ydata()) == [3, 4]
    assert limit.get_color() == "0.5"


def test_looks_that_mean_something_are_kept() -> None:
    sheet = figure.Figure(layout="constrained")
    (axes,) = panels(sheet, 1)
    axes.plot([1, 2], [1, 2], marker="D", color="C7", label="a")
    axes.barh(["x"], [1], label="b")
    legend_below(sheet, restyle=False)
    assert (axes.get_lines()[0].get_color(), axes.get_lines()[0].get_marker()) == ("C7", "D")
    assert [text.get_text() for text in sheet.legends[0].get_texts()] == ["a", "b"]


def test_rows_of_marks_are_the_same_in_all_panels() -> None:
    sheet = figure.Figure(figsize=(8.0, 4.0), layout="constrained")
    time = [("relu", "a", 1.0), ("relu", "b", 1.0), ("pool", "a", 3.0)]
    left, right = dots(sheet, {"time, s": time, "power, W": [("relu", "b", 9.0), ("pool", "a", None)]})
    assert [text.get_text() for text in left.get_yticklabels()] == ["relu", "pool"]
    of_a, of_b = left.get_lines()
    assert list(of_a.get_xdata()) == [1.0, 3.0]
    assert of_a.get_ydata()[0] != of_b.get_ydata()[0]  # equal values do not hide each other
    none, other = right.get_lines()
    assert list(none.get_xdata()) == []
    assert other.get_color() == of_b.get_color() != of_a.get_color()
    assert [text.get_text() for text in sheet.legends[0].get_texts()] == ["a", "b"]
    assert not right.get_legend()


def test_marks_that_no_line_joins_stay_apart() -> None:
    sheet = figure.Figure(layout="constrained")
    (axes,) = panels(sheet, 1)
    axes.plot([1, 2, 1], [1, 2, 3], marker="o", linestyle="", label="a")
    axes.plot([1, 2], [2, 1], marker="s", label="b")
    legend_below(sheet)
    assert [line.get_linestyle() for line in axes.get_lines()] == ["None", "-"]


def test_long_labels_have_a_column_each_that_stands_on_the_sheet() -> None:
    for length in (8, 30, 60):
        sheet = figure.Figure(figsize=(7.6, 4.0), layout="constrained")
        dots(sheet, {"time, s": [("relu", letter * length, 1.0) for letter in "nox"]})
        sheet.canvas.draw()
        box = sheet.legends[0].get_window_extent()
        assert 0 <= box.x0 < box.x1 <= sheet.bbox.width
