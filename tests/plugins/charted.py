"""What a figure's chart shows, read from the picture that Vega-Lite makes of it."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass

from hpml_plugins import Figure, Record, Table
from hpml_plugins.report.figures import Drawable, render

_SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Picture:
    """texts: all that can be read.  marks: kind ("point", "bar", "line mark", "rule") → the
    description of each."""

    texts: set[str]
    marks: dict[str, list[str]]


def picture(figure: Figure, of: Iterable[Record] | Table) -> Picture:
    """The figure's chart of these Records, or of a table. Every mark has a colour: one whose series
    is not in the colours' domain is invisible."""
    table = of if isinstance(of, Table) else figure.table(list(of))
    svg = render(Drawable("plugin", figure, table), "svg")
    assert svg is not None
    root = ElementTree.fromstring(svg)
    marks: dict[str, list[str]] = {}
    for node in root.iter():
        if kind := node.get("aria-roledescription"):
            if node.tag == f"{_SVG}path" and node.get("opacity") != "0":
                described = f"{figure.name}: {kind} {node.get('aria-label')}"
                assert node.get("fill") or node.get("stroke"), f"{described} has no colour"
            marks.setdefault(kind, []).append(node.get("aria-label") or "")
    return Picture({node.text for node in root.iter(f"{_SVG}text") if node.text}, marks)
