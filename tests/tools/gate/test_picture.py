"""The gate's picture: positions of what it draws, and escaped text of the measured code."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from test_loosened import HOSTILE
from test_verdicts import result_of

from hpml_plugins.tools.gate.picture import LEFT, MOST, RIGHT, as_svg
from hpml_plugins.tools.gate.verdicts import GatedValue, _Mean

SVG = "{http://www.w3.org/2000/svg}"


def value(ratio: float, half_width: float, p: float, name: str = "step") -> GatedValue:
    """A time that is `ratio` of the base's; half_width: of its logarithm."""
    mean = _Mean(math.log(ratio), half_width, p)
    return GatedValue(name, "n=1", "time", "s", 1.0, ratio, 0.05, mean)


SLOWER = value(1.25, 0.02, 0.0, "slower")
FASTER = value(0.8, 0.02, 0.0, "faster")
UNSURE = value(1.02, 0.3, 0.9, "unsure")


def rows(text: str) -> dict[str, ElementTree.Element]:
    """The drawn values by their benchmark."""
    found = ElementTree.fromstring(text).findall(f"{SVG}g")
    return {str(each.findtext(f"{SVG}title")).split()[0]: each for each in found}


def middle(row: ElementTree.Element) -> float:
    """Where the mark of a row is, in px."""
    if (square := row.find(f"{SVG}rect")) is not None:
        return float(square.get("x", "")) + 4
    circle = row.find(f"{SVG}circle")
    assert circle is not None
    return float(circle.get("cx", ""))


def test_values_are_drawn_on_one_logarithmic_scale_worst_first() -> None:
    text = as_svg(result_of([FASTER, UNSURE, SLOWER]))
    found = rows(text)
    assert list(found) == ["slower", "unsure", "faster"]
    centre = (LEFT + RIGHT) / 2
    assert middle(found["slower"]) - centre == pytest.approx(
        centre - middle(found["faster"]), abs=0.2
    )
    assert middle(found["unsure"]) > centre
    told = {name: str(row.findall(f"{SVG}text")[-1].text) for name, row in found.items()}
    assert told["slower"].startswith("1.25× (+25 %)") and told["slower"].endswith("refused")
    assert told["faster"].endswith("faster") and told["unsure"].endswith("undecided")
    assert ElementTree.fromstring(text).findtext(f"{SVG}title") == (
        "Benchmarks refused: 1 slower beyond the budget, 1 of 3 values undecided,"
        " 1 within the budget"
    )


def test_the_interval_ends_where_it_says_and_is_cut_off_with_a_sign() -> None:
    (row,) = rows(as_svg(result_of([UNSURE]))).values()
    lines = [each.get("d", "") for each in row.findall(f"{SVG}path")]
    (bar,) = [re.fullmatch(r"M([\d.]+) [\d.]+H([\d.]+)", each) for each in lines[1:]]
    assert bar
    low, high = float(bar[1]), float(bar[2])
    assert (low + high) / 2 == pytest.approx(middle(row), abs=0.2)
    assert LEFT < low < high < RIGHT
    (row,) = rows(as_svg(result_of([value(1.0, 9.0, 1.0)]))).values()
    assert sum("l-6 4l6 4" in each.get("d", "") for each in row) == 1
    assert sum("l6 4l-6 4" in each.get("d", "") for each in row) == 1


def test_more_values_than_are_drawn_are_counted_and_none_is_a_headline_alone() -> None:
    many = [value(1.5, 0.01, 0.0, f"b{number}") for number in range(MOST + 3)]
    text = as_svg(result_of(many))
    assert len(rows(text)) == MOST and "and 3 values more, in the report" in text
    nothing = as_svg(result_of())
    assert rows(nothing) == {} and "not judged: nothing was compared" in nothing


def test_a_value_without_a_ratio_has_its_change_as_text() -> None:
    count = GatedValue(
        "allocs", "", "n", "", 0.0, 3.0, 0.05, _Mean(3.0, 0.0, 0.0), is_ratio=False
    )
    (row,) = rows(as_svg(result_of([count]))).values()
    assert row.find(f"{SVG}circle") is None and row.find(f"{SVG}rect") is None
    assert "+3" in str(row.findall(f"{SVG}text")[-1].text)


@pytest.mark.parametrize("text", [*HOSTILE, "\x00\x0b\ufffe", '"><script>x</script>'])
def test_text_of_any_origin_is_text_in_the_picture(text: str) -> None:
    hostile = result_of([value(1.5, 0.01, 0.0, f"b{text}")])
    hostile.machine = text
    plain = ElementTree.fromstring(as_svg(result_of([value(1.5, 0.01, 0.0)])))
    made = ElementTree.fromstring(as_svg(hostile))
    assert [each.tag for each in made.iter()] == [each.tag for each in plain.iter()]
