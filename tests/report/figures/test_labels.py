"""Labels of points do not cover each other."""

from __future__ import annotations

import re

import pytest
import vl_convert

from hpml_plugins import Axis, Table, line_chart, roofline_chart
from hpml_plugins.report.charts import LABEL_MARGIN, WIDTH, complete
from hpml_plugins.report.labels import SIDES, Point, Scale, highest_of_each, sides_of


def test_a_label_is_right_below_its_point_where_there_is_room() -> None:
    assert sides_of([Point(0, 0, "a"), Point(100, 0, "b"), Point(50, 0, "")]) == [
        0,
        0,
        None,
    ]


def test_labels_of_close_points_are_on_different_sides() -> None:
    # the left one's would cover the other point on the right
    assert sides_of([Point(0, 0, "wide"), Point(8, 2, "other")]) == [2, 0]
    crowd = [Point(0, number / 10, f"label {number}") for number in range(6)]
    found = sides_of(crowd)
    assert sorted(each for each in found if each is not None) == [0, 1, 2, 3]


def test_a_repeated_label_is_at_the_highest_of_close_points() -> None:
    points = [Point(0, 10, "same"), Point(0, 0, "same"), Point(0, 90, "same")]
    assert sides_of(points) == [None, 0, 0]


def test_a_label_once_is_at_the_highest_point_however_far_the_others_are() -> None:
    points = [Point(0, 10, "same"), Point(900, 0, "same"), Point(0, 90, "other")]
    assert [point.text for point in highest_of_each(points)] == ["", "same", "other"]


def test_places_on_an_axis() -> None:
    rows = [{"n": number} for number in (1.0, 10.0, 1000.0, None, 0.0, "text")]
    logarithmic = Scale("n", 320, 10, is_log=True)
    assert logarithmic.places(rows) == [10, 110, 310, None, None, None]
    wider = Scale("n", 520, 10, is_log=True, beyond=(0.1, 10)).places(rows)
    assert wider[:3] == pytest.approx([110, 210, 410])
    assert Scale("n", 120, 10, is_log=False).places(rows[:2]) == [10, 110]
    assert Scale("n", 120, 10, is_log=False).places([{"n": 5.0}]) == [10]
    assert Scale("n", 120, 10, is_log=False).places([{"n": None}]) == [None]


def test_the_places_are_those_that_vega_draws() -> None:
    rows = [{"x": 10.0**power, "y": 2.0, "name": f"at {power}"} for power in range(3)]
    chart = line_chart(Axis("x", "x", log=True), Axis("y", "y", log=True), label="name")
    svg = vl_convert.vegalite_to_svg(complete(chart, Table.of(rows)))
    drawn = dict(re.findall(r"<text[^>]*translate\(([\d.]+),[^>]*>(at \d)<", svg))
    found = {text: float(place) for place, text in drawn.items()}
    places = Scale("x", WIDTH, LABEL_MARGIN, is_log=True).places(rows)
    for power, place in enumerate(places):
        assert place is not None
        assert found[f"at {power}"] == pytest.approx(place + SIDES[0].right, abs=1)


def test_a_roof_has_no_label() -> None:
    axes = Axis("x", "x", log=True), Axis("y", "y", log=True)
    chart = roofline_chart(*axes, ("kind",), roof="datum.y", label="name")
    rows = [
        {"what": what, "kind": "k", "x": 1.0, "y": 1.0, "name": what}
        for what in ("roof", "point")
    ]
    values = complete(chart, Table.of(rows))["data"]["values"]
    assert [row.get("label side") for row in values] == [None, 0]
