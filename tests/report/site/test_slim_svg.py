"""What is left of a chart that vl-convert drew."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from hpml_plugins.report.site.slim_svg import slim, unite_clips

SVG = "http://www.w3.org/2000/svg"
MARK = 'role="graphics-symbol" aria-roledescription="point" aria-label="size: 1 B"'


def slimmed(inside: str) -> ET.Element:
    """The group of a drawn chart that holds these elements."""
    root = ET.fromstring(
        f'<svg xmlns="{SVG}"><g transform="translate(7,3)">{inside}</g></svg>'
    )
    slim(root)
    return root[0]


def names(group: ET.Element) -> list[str]:
    return [each.tag.removeprefix(f"{{{SVG}}}") for each in group]


def numbers(path: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?[\d.]+", path)]


def test_lines_that_look_alike_are_one_path() -> None:
    group = slimmed(
        '<line transform="translate(10,20)" x2="0" y2="5" stroke="#888"/>'
        '<line transform="translate(30.26,20)" x2="0" y2="-5" stroke="#888"/>'
        '<line x1="1" y1="2" x2="4" y2="6" stroke="#888"/>'
        '<line transform="translate(1,2)" x2="9" y2="0" stroke="#999"/>'
    )
    assert [(each.get("d"), each.get("stroke")) for each in group] == [
        ("M10 20v5M30.3 20v-5M1 2l3 4", "#888"),
        ("M1 2h9", "#999"),
    ]


def test_a_line_with_a_title_stays_a_mark_of_its_own() -> None:
    line = f'<line transform="translate(1,2)" x2="9" y2="0" stroke="#888" {MARK}/>'
    group = slimmed(line + line)
    assert names(group) == ["path", "path"]
    assert [each.findtext(f"{{{SVG}}}title") for each in group] == ["size: 1 B"] * 2


def test_marks_stand_where_they_stood() -> None:
    circle = "M2.9,0A2.9,2.9,0,1,1,-2.9,0A2.9,2.9,0,1,1,2.9,0"
    group = slimmed(
        f'<path transform="translate(10.04,20)" d="{circle}" fill="#123" {MARK}/>'
        f'<path transform="translate(50,60)" d="M-2,0L0,-3.35L2,3.35Z" fill="#456" {MARK}/>'
        f'<path transform="translate(5,6) rotate(90)" d="M0,0L1,1Z" fill="#789" {MARK}/>'
    )
    assert names(group) == ["circle", "path", "path"]
    assert [group[0].get(name) for name in ("cx", "cy", "r")] == ["10", "20", "2.9"]
    x, y, *steps = numbers(str(group[1].get("d")))
    assert (x, y) == (48, 60)
    assert abs(y + steps[1] - (60 - 3.35)) <= 0.05
    assert abs(y + steps[1] + steps[3] - (60 + 3.35)) <= 0.05
    assert group[2].get("transform") == "translate(5,6) rotate(90)"


def test_a_group_has_what_all_its_elements_have_alike() -> None:
    group = slimmed(
        '<text font-size="11px" fill="#111" transform="translate(1,1)">a</text>'
        '<text font-size="11px" fill="#222" transform="translate(1,9)">b</text>'
    )
    assert group.get("font-size") == "11px"
    assert group.get("fill") is None
    assert [each.get("fill") for each in group] == ["#111", "#222"]
    assert all("font-size" not in each.attrib for each in group)


def test_texts_and_shapes_stand_at_their_place_without_a_transform() -> None:
    group = slimmed(
        '<text fill="#111" transform="translate(16.04,9)">a</text>'
        '<path transform="translate(5.2,205.1)" d="M-3.4,-3.4h6.7v6.7h-6.7Z" fill="#111"/>'
        '<path d="M0,1L2.5,3L2.5,2.96" stroke="#111"/>'
    )
    assert [group[0].get(name) for name in ("x", "y", "transform")] == ["16", "9", None]
    assert group[1].attrib == {"d": "M1.8 201.7h6.7v6.7h-6.7z", "fill": "#111"}
    assert group[2].get("d") == "M0 1l2.5 2 0 0"


def test_consecutive_marks_that_look_alike_are_in_a_group_that_says_it() -> None:
    def mark(fill: str) -> str:
        return f'<path d="M0,0h1v1h-1Z" fill="{fill}" {MARK}/>'

    group = slimmed(3 * mark("#111") + 2 * mark("#222") + 4 * mark("#333"))
    assert names(group) == ["g", "path", "path", "g"]
    assert [each.get("fill") for each in group] == ["#111", "#222", "#222", "#333"]
    assert [len(each) for each in group if each.tag.endswith("}g")] == [3, 4]
    assert all("fill" not in each.attrib for each in group[0])


def test_groups_that_move_and_style_one_another_are_one() -> None:
    mark = '<path d="M0,0h1v1h-1Z" fill="#111"/>'
    inner = f'<g pointer-events="none">{mark}{mark.replace("#111", "#222")}</g>'
    (moved,) = slimmed(f'<g transform="translate(5,6)">{inner}</g>')
    assert moved.attrib == {"transform": "translate(5,6)", "pointer-events": "none"}
    (outer,) = slimmed(
        f'<g clip-path="url(#a)"><g transform="translate(1,2)">{mark}</g></g>'
    )
    assert outer.attrib == {"clip-path": "url(#a)"}  # what clips is not moved
    assert outer[0].attrib == {"transform": "translate(1,2)"}


def test_one_rectangle_that_clips_is_defined_once() -> None:
    def clipped(name: str, more: str = "") -> str:
        return f'<g clip-path="url(#{name})"{more}><path d="M0,0L1,1" stroke="#111"/></g>'

    moved = clipped("b", ' transform="translate(1,1)"')

    def clip(name: str, width: int) -> str:
        return f'<clipPath id="{name}"><rect width="{width}" height="9"/></clipPath>'

    root = ET.fromstring(
        f'<svg xmlns="{SVG}"><g>{clipped("a")}{clipped("b")}'
        f"{moved}{clipped('c')}</g>"
        f"<defs>{clip('a', 5)}{clip('b', 5)}{clip('c', 7)}</defs></svg>"
    )
    unite_clips(root)
    group, definitions = root
    assert [each.get("id") for each in definitions] == ["a", "c"]
    assert [(each.get("clip-path"), len(each)) for each in group] == [
        ("url(#a)", 2),
        ("url(#a)", 1),
        ("url(#c)", 1),
    ]


def test_opacity_stays_with_each_mark() -> None:
    path = '<path d="M0,0h1v1h-1Z" fill="#111" opacity="0.7"/>'
    group = slimmed(path + path)
    assert group.get("opacity") is None
    assert [each.get("opacity") for each in group] == ["0.7"] * 2


def test_hidden_circles_in_one_place_are_one_with_all_titles() -> None:
    def circle(x: int, label: str, more: str = "") -> str:
        shape = "M2,0A2,2,0,1,1,-2,0A2,2,0,1,1,2,0"
        mark = MARK.replace("size: 1 B", label)
        return f'<path transform="translate({x},1)" d="{shape}" {more} {mark}/>'

    hidden = 'stroke="#111" opacity="0"'
    group = slimmed(
        circle(5, "a", hidden) + circle(9, "b", hidden) + circle(5, "c", hidden)
    )
    titles = [(each.get("cx"), each.findtext(f"{{{SVG}}}title")) for each in group]
    assert titles == [("5", "a\nc"), ("9", "b")]
    assert group.get("opacity") == "0"
    assert all("opacity" not in each.attrib for each in group)
    shown = slimmed(circle(5, "a", 'fill="#111"') + circle(5, "b", 'fill="#111"'))
    assert len(shown) == 2


@pytest.mark.parametrize(
    ("titles", "told"),
    [
        (["part: a · x: 1", "part: b · x: 1", "part: c · x: 1"], "part: a, b, c · x: 1"),
        (["x: 1 · y: 2", "x: 1 · y: 2"], "x: 1 · y: 2\nx: 1 · y: 2"),
        (["x: 1 · y: 2", "x: 2 · y: 3"], "x: 1 · y: 2\nx: 2 · y: 3"),
        (["x: 1 · y: 2", "x: 1 · z: 2"], "x: 1 · y: 2\nx: 1 · z: 2"),
        (["x: 1 · y: 2", "x: 1"], "x: 1 · y: 2\nx: 1"),
    ],
)
def test_titles_that_differ_in_one_field_are_one_line(titles: list[str], told: str) -> None:
    shape = "M2,0A2,2,0,1,1,-2,0A2,2,0,1,1,2,0"
    marks = (MARK.replace("size: 1 B", title) for title in titles)
    hidden = f'd="{shape}" stroke="#111" opacity="0"'
    group = slimmed("".join(f"<path {hidden} {mark}/>" for mark in marks))
    assert [each.findtext(f"{{{SVG}}}title") for each in group] == [told]
