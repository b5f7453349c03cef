"""Charts as SVG files, which the pages embed: vl-convert draws each specification once, and the
user's cache keeps the result under the specification's digest.

Drawing the 117 charts of this repository takes 6.1 s of one CPU.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import re
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from typing import Any, Final, NamedTuple

from hpml_plugins.errors import HpmlError, needs_extra
from hpml_plugins.model.figure import Chart
from hpml_plugins.report.charts import INK
from hpml_plugins.report.kept import keep, kept_file, read_kept
from hpml_plugins.report.pictures import checked_svg
from hpml_plugins.report.site.slim_svg import slim, unite_clips

#: The version of the conversion in this module; increase it with every change.
_VERSION: Final = "6"
_SVG: Final = "{http://www.w3.org/2000/svg}"
_REFERENCE: Final = re.compile(r"url\(#([^)]*)\)")
#: The beginning of a file: the site's style sheet has the ink for light and for dark pages.
_STYLE: Final = '<?xml-stylesheet href="../site.css"?>\n'
#: What a file looks like without the style sheet, once it is downloaded.
_OWN_LOOK: Final = {"color": INK, "font-family": "Arial, Liberation Sans, sans-serif"}


class DrawnChart(NamedTuple):
    """A chart as an SVG file in a folder of the site.  width, height: in px."""

    file: bytes
    width: int
    height: int


def chart_svg(chart: Chart) -> DrawnChart:
    """A complete chart as SVG. The numbers in a mark's tooltip become its title.

    Raises ValueError if vl-convert cannot draw the chart.
    """
    encoded = json.dumps([_VERSION, _drawing_version(), chart], sort_keys=True)
    digest = hashlib.sha256(encoded.encode()).hexdigest()
    file = kept_file(f"{digest}.svg")
    if kept := read_kept(file):
        with suppress(HpmlError):  # another program may have written something else there
            return _file(checked_svg(kept))
    drawn = _draw(chart)
    keep(file, drawn)
    return _file(checked_svg(drawn))


def vega_library() -> bytes:
    """Vega, Vega-Lite and vegaEmbed as one script, which takes 1.5 s to bundle."""
    file = kept_file(f"vega-{_drawing_version()}.js")
    if kept := read_kept(file):
        return kept
    with needs_extra("publish"):
        import vl_convert

    made = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").encode()
    keep(file, made)
    return made


@functools.cache
def _drawing_version() -> str:
    with needs_extra("publish"):
        import vl_convert  # noqa: F401  # a missing package is reported as usual

    return importlib.metadata.version("vl-convert-python")


def _draw(chart: Chart) -> bytes:
    with needs_extra("publish"):
        import vl_convert

    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(_with_titles(chart)))
    slim(root)
    unite_clips(root)
    _number_identifiers(root)
    size = {name: root.get(name, "") for name in ("width", "height", "viewBox")}
    root.attrib.clear()
    root.attrib.update(size | _OWN_LOOK)
    return bytes(ElementTree.tostring(root, encoding="utf-8"))


def _with_titles(part: Any) -> Any:
    """A specification in which the description of each mark is its tooltip."""
    if isinstance(part, list):
        return [_with_titles(each) for each in part]
    if not isinstance(part, dict):
        return part
    made = {name: _with_titles(each) for name, each in part.items() if name != "data"}
    if "data" in part:
        made["data"] = part["data"]
    shown = (
        made["encoding"].get("tooltip") if "mark" in made and "encoding" in made else None
    )
    if isinstance(shown, list) and all(each.keys() == {"field", "title"} for each in shown):
        told = {"calculate": _told(shown), "as": "told"}
        made["transform"] = [*made.get("transform", ()), told]
        made["encoding"]["description"] = {"field": "told", "type": "nominal"}
    elif isinstance(mark := made.get("mark"), dict) and isinstance(
        mark.get("tooltip"), str
    ):
        made["mark"] = {**mark, "description": mark["tooltip"]}
    return made


def _told(shown: list[dict[str, str]]) -> str:
    """A Vega expression: the titles and the texts of a tooltip, in one line."""
    texts = []
    for each in shown:
        column = re.sub(r"\\([.\[\]])", r"\1", each["field"])
        value = f"datum[{json.dumps(column)}]"
        before = json.dumps(f" · {each['title']}: ")
        texts.append(f"(isValid({value}) && {value} !== '' ? {before} + {value} : '')")
    return f"slice({' + '.join(texts)}, 3)"


def _number_identifiers(root: ElementTree.Element) -> None:
    """Make identifiers those of this picture: vl-convert numbers them across all charts drawn by a
    process."""
    identified = [element for element in root.iter() if element.get("id")]
    names = {each.get("id"): f"c{place}" for place, each in enumerate(identified)}
    for element in identified:
        element.set("id", names[element.get("id")])
    for element in root.iter():
        for attribute, value in element.attrib.items():
            if "url(#" in value:
                encoded = _REFERENCE.sub(
                    lambda found: f"url(#{names.get(found[1])})", value
                )
                element.set(attribute, encoded)


def _file(root: ElementTree.Element) -> DrawnChart:
    ElementTree.register_namespace("", _SVG.strip("{}"))
    text = _STYLE + ElementTree.tostring(root, encoding="unicode")
    width, height = (round(float(root.get(name, 0))) for name in ("width", "height"))
    return DrawnChart(text.encode(), width, height)
