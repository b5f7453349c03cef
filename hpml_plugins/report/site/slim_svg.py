"""Reduce a chart drawn by vl-convert to a small picture for a page: marks have their values as
titles, and invisible parts are removed."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from typing import Final

from hpml_plugins.report.charts import INK

_SVG: Final = "{http://www.w3.org/2000/svg}"
_GROUP, _LINE, _PATH, _TEXT = (f"{_SVG}{name}" for name in ("g", "line", "path", "text"))
_CIRCLE = f"{_SVG}circle"
_CLIP: Final = f"{_SVG}clipPath"
_TITLE = f"{_SVG}title"
#: Attributes without effect: these values are the defaults, or the page's own.
_DEFAULTS: Final = {
    "opacity": "1",
    "stroke-width": "1",
    "font-family": "sans-serif",
    "font-weight": "normal",
    "text-anchor": "start",
    "transform": "translate(0,0)",
}
#: Attributes for programs that read a drawn chart: within a page it is a single picture.
_FOR_PROGRAMS: Final = (
    "aria-label",
    "aria-hidden",
    "aria-roledescription",
    "role",
    "class",
)
#: Attributes that an element inherits from its group.
_INHERITED: Final = (
    *(
        "fill",
        "fill-opacity",
        "stroke",
        "stroke-width",
        "stroke-opacity",
        "stroke-dasharray",
    ),
    *("font-size", "font-weight", "font-style", "text-anchor", "pointer-events"),
)
_OF_STROKES: Final = ("stroke-width", "stroke-opacity", "stroke-dasharray")
#: Attributes in px, for which one decimal is enough.
_LENGTHS: Final = ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height")
#: Separates the fields of a title: `size: 1 B · type: H100`.
_BETWEEN: Final = " · "
#: Marks that represent more than one row, and texts, which describe themselves.
_UNTITLED: Final = ("line mark", "area mark", "trail mark", "text mark")
_TENTH = re.compile(r"-?\d+\.\d+")
_HUNDREDTH = re.compile(r"-?\d+\.\d{3,}")
_TRANSLATED: Final = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")
#: How Vega draws a circle, straight lines, and a rectangle, around their position.
_ROUND: Final = re.compile(r"M([\d.]+),0A\1,\1,0,1,1,-\1,0A\1,\1,0,1,1,\1,0")
_LINES: Final = re.compile(r"M(-?[\d.]+,-?[\d.]+(?:L-?[\d.]+,-?[\d.]+)+)(Z?)")
_RECTANGLE: Final = re.compile(r"M(-?[\d.]+),(-?[\d.]+)((?:[hv]-?[\d.]+)+Z)")
#: The fewest consecutive elements that get a group for what they share.
_ENOUGH: Final = 3


def slim(element: ElementTree.Element) -> None:
    """Turn descriptions of marks into titles, remove invisible parts, and write the rest with fewer
    elements, attributes and digits."""
    kept: list[ElementTree.Element] = []
    for child in element:
        slim(child)
        if child.tag == _GROUP and not child.attrib:
            kept += child
        elif _shows(child):
            kept.append(child)
    element[:] = kept
    label = element.get("aria-label")
    kind = element.get("aria-roledescription")
    is_mark = element.get("role") == "graphics-symbol" and element.tag != _GROUP
    for name in _FOR_PROGRAMS:
        element.attrib.pop(name, None)
    _place(element)
    for name, value in list(element.attrib.items()):
        element.attrib[name] = _shortened(name, value.replace(INK, "currentColor"))
        if _DEFAULTS.get(name) == value:
            del element.attrib[name]
    if element.tag != _GROUP and "stroke" not in element.attrib:
        for name in _OF_STROKES:
            element.attrib.pop(name, None)
    if label and is_mark and kind not in _UNTITLED:
        ElementTree.SubElement(element, _TITLE).text = label
    if element.tag == _GROUP:
        element[:] = _joined(element)
        _unite_hidden(element)
        _share(element)
        element[:] = _grouped(element)
        element[:] = _unwrapped(element)


def unite_clips(root: ElementTree.Element) -> None:
    """Let elements that are clipped to the same rectangle refer to one definition, and consecutive
    ones share a group."""
    first: dict[bytes, str] = {}
    names: dict[str, str] = {}
    for parent in list(root.iter()):
        for clip in parent.findall(_CLIP):
            name = clip.attrib.pop("id")
            names[f"url(#{name})"] = f"url(#{first.setdefault(_text(clip), name)})"
            clip.set("id", name)
            if name not in first.values():
                parent.remove(clip)
    for group in root.iter(_GROUP):
        if "clip-path" in group.attrib:
            group.set("clip-path", names[group.attrib["clip-path"]])
    for group in list(root.iter(_GROUP)):
        group[:] = _clipped(group)


def _text(element: ElementTree.Element) -> bytes:
    return bytes(ElementTree.tostring(element))


def _clipped(group: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The elements of a group, in which consecutive ones with the same clip are in one group."""
    for clip, run in itertools.groupby(group, key=_clip_alone):
        elements = list(run)
        if not clip or len(elements) < 2:
            yield from elements
            continue
        for each in elements:
            del each.attrib["clip-path"]
        united = ElementTree.Element(_GROUP, {"clip-path": clip})
        united.extend(elements)
        united[:] = _unwrapped(united)
        yield united


def _clip_alone(element: ElementTree.Element) -> str:
    """The clip of a group that is not moved."""
    return "" if "transform" in element.attrib else element.get("clip-path", "")


def _shows(element: ElementTree.Element) -> bool:
    if element.tag == _GROUP:
        return len(element) > 0
    if element.find(_TITLE) is not None:
        return True
    painted = (
        element.get("fill", "none") != "none" or element.get("stroke", "none") != "none"
    )
    hidden = element.get("opacity") == "0" or element.get("display") == "none"
    if element.tag == _TEXT and not "".join(element.itertext()):
        return False
    drawn = element.tag in (_PATH, _TEXT, _CIRCLE)
    return not drawn or (painted and not hidden)


def _place(element: ElementTree.Element) -> None:
    """Apply the transform of a text or of a shape that is its position, and write it in short."""
    place = _TRANSLATED.fullmatch(element.get("transform", "translate(0,0)"))
    if not place:
        return
    x, y = map(float, place.groups())
    shape = element.get("d", "")
    if element.tag == _LINE:
        attributes = ("x1", "y1", "x2", "y2")
        left, top, right, bottom = (
            float(element.attrib.pop(each, 0)) for each in attributes
        )
        element.tag = _PATH
        element.set("d", _segment(x + left, y + top, right - left, bottom - top))
    elif element.tag == _PATH and (found := _ROUND.fullmatch(shape)):
        element.tag = _CIRCLE
        del element.attrib["d"]
        element.attrib |= {"cx": _short(x), "cy": _short(y), "r": _short(float(found[1]))}
    elif element.tag == _PATH and (found := _LINES.fullmatch(shape)):
        corners = [tuple(map(float, each.split(","))) for each in found[1].split("L")]
        lines = _lines([(x + across, y + down) for across, down in corners])
        element.set("d", lines + found[2].lower())
    elif element.tag == _PATH and (found := _RECTANGLE.fullmatch(shape)):
        start = f"M{_short(x + float(found[1]))} {_short(y + float(found[2]))}"
        element.set("d", start + found[3].lower())
    elif element.tag == _TEXT and "transform" in element.attrib:
        element.attrib |= {"x": _short(x), "y": _short(y)}
    else:
        return
    element.attrib.pop("transform", None)


def _segment(x: float, y: float, across: float, down: float) -> str:
    start = f"M{_short(x)} {_short(y)}"
    if not across:
        return f"{start}v{_short(down)}"
    if not down:
        return f"{start}h{_short(across)}"
    return f"{start}l{_short(across)} {_short(down)}"


def _lines(corners: list[tuple[float, float]]) -> str:
    """Straight lines; each corner is relative to the rounded one before it."""
    rounded = [(round(x, 1), round(y, 1)) for x, y in corners]
    steps = [
        f"{_short(x - before)} {_short(y - above)}"
        for (before, above), (x, y) in itertools.pairwise(rounded)
    ]
    (x, y) = rounded[0]
    return f"M{_short(x)} {_short(y)}l{' '.join(steps)}".replace(" -", "-")


def _shortened(name: str, value: str) -> str:
    """The value of an attribute with only the visible digits."""
    if name in _LENGTHS and "scale" not in value:
        return _TENTH.sub(lambda found: _short(float(found[0])), value)
    return _HUNDREDTH.sub(lambda found: f"{float(found[0]):.2f}", value)


def _short(length: float) -> str:
    """A length in px: `12.3`, `12`."""
    return f"{round(length, 1) + 0.0:.1f}".removesuffix(".0")


def _joined(group: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The elements of a group. Consecutive lines without a title and with the same style become one
    path."""
    before: ElementTree.Element | None = None
    for element in group:
        alike = before is not None and _look(element) == _look(before)
        if alike and before is not None and _is_line(element) and _is_line(before):
            before.set("d", before.get("d", "") + element.get("d", ""))
            continue
        yield element
        before = element


def _is_line(element: ElementTree.Element) -> bool:
    return element.tag == _PATH and not len(element) and "fill" not in element.attrib


def _look(element: ElementTree.Element) -> dict[str, str]:
    return {name: value for name, value in element.attrib.items() if name != "d"}


def _unite_hidden(group: ElementTree.Element) -> None:
    """Merge hidden circles, which only carry titles, if they have the same style and position:
    otherwise only the last one would show its title."""
    titles: dict[tuple[tuple[str, str], ...], list[str]] = {}
    kept: list[ElementTree.Element] = []
    for element in group:
        title = element.find(_TITLE)
        if element.tag == _CIRCLE and element.get("opacity") == "0" and title is not None:
            of_place = titles.setdefault(tuple(sorted(element.attrib.items())), [])
            of_place.append(title.text or "")
            if len(of_place) > 1:
                continue
        kept.append(element)
    for element in kept:
        told = titles.get(tuple(sorted(element.attrib.items())), ())
        title = element.find(_TITLE)
        if len(told) > 1 and title is not None:
            title.text = _one_title(told)
    group[:] = kept


def _one_title(titles: Sequence[str]) -> str:
    """Combine titles: one line with all values if only one of their fields differs, otherwise one
    line each."""
    rows = [title.split(_BETWEEN) for title in titles]
    if len({len(row) for row in rows}) == 1:
        fields = [list(dict.fromkeys(field)) for field in zip(*rows, strict=True)]
        names = [{each.partition(": ")[0] for each in field} for field in fields]
        if sum(len(field) > 1 for field in fields) == 1 and all(
            len(each) == 1 for each in names
        ):
            return _BETWEEN.join(map(_one_field, fields))
    return "\n".join(titles)


def _one_field(values: Sequence[str]) -> str:
    """`part: float, bits8` of `part: float` and `part: bits8`."""
    first, *more = values
    return ", ".join([first, *(each.partition(": ")[2] for each in more)])


def _share(group: ElementTree.Element) -> None:
    """Move attributes that all elements of a group share to the group."""
    elements = [each for each in group if each.tag != _TITLE]
    if len(elements) < 2:
        return
    if all(each.get("opacity") == "0" for each in elements):
        group.set("opacity", "0")
        for each in elements:
            del each.attrib["opacity"]
    for name in _INHERITED:
        values = {each.get(name) for each in elements}
        if len(values) == 1 and (value := values.pop()) is not None:
            group.set(name, value)
            for each in elements:
                del each.attrib[name]


def _grouped(group: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The elements of a group, in which consecutive ones that look alike are in a group that has
    their attributes."""
    for look, run in itertools.groupby(group, key=_inherited):
        elements = list(run)
        if not look or len(elements) < _ENOUGH:
            yield from elements
            continue
        for each in elements:
            for name in look:
                del each.attrib[name]
        alike = ElementTree.Element(_GROUP, look)
        alike.extend(elements)
        yield alike


def _inherited(element: ElementTree.Element) -> dict[str, str]:
    """What an element that is no group would inherit as well."""
    if element.tag == _GROUP:
        return {}
    return {name: element.attrib[name] for name in _INHERITED if name in element.attrib}


def _unwrapped(group: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The elements of a group, without groups that have no attribute or only one group in them."""
    for element in group:
        if element.tag == _GROUP and not element.attrib:
            yield from element
            continue
        inner = element[0] if len(element) == 1 else element
        if element.tag == inner.tag == _GROUP and inner is not element:
            attributes = element.attrib.keys() | inner.attrib.keys()
            together = {*_INHERITED, "transform"}
            if not element.attrib.keys() & inner.attrib.keys() and attributes <= together:
                element.attrib |= inner.attrib
                element[:] = inner
        yield element
