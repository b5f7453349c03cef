"""Check pictures from a plugin's process, as data, before they become files of the site."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Final

from hpml_plugins.errors import HpmlError

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_NAME = re.compile(r"(?:\{(.*)\})?(.*)")
#: Elements that matplotlib uses: no scripts, links, animations, or elements that contain HTML.
_ELEMENTS: Final = {
    "svg",
    "g",
    "defs",
    "style",
    "title",
    "desc",
    "path",
    "rect",
    "circle",
    "ellipse",
    "line",
    "polyline",
    "polygon",
    "text",
    "tspan",
    "use",
    "image",
    "symbol",
    "marker",
    "clipPath",
    "mask",
    "pattern",
    "linearGradient",
    "radialGradient",
    "stop",
    "filter",
    "feColorMatrix",
    "feGaussianBlur",
}
#: Allowed targets of attributes: within the picture, or embedded pixels.
_WITHIN = re.compile(r"#|data:image/(?:png|jpeg);base64,")
#: Forbidden in styles: external addresses, in any CSS notation.
_OUTWARD = re.compile(r"url\(\s*['\"]?(?!#)|@import|expression\(|\\", re.IGNORECASE)
_BEGINNINGS: Final = {"png": b"\x89PNG\r\n", "pdf": b"%PDF-"}


def checked_picture(picture: bytes, form: str) -> bytes:
    """Check a picture; an SVG is rewritten from its allowed parts.

    form: "svg", "png" or "pdf". Raises HpmlError for another form, and for an SVG that is not
    well-formed or contains things that no chart needs: scripts, links, external addresses,
    entities.
    """
    if form != "svg":
        if not picture.startswith(_BEGINNINGS[form]):
            raise HpmlError(f"the picture is not {form.upper()}")
        return picture
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = checked_svg(picture)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def checked_svg(picture: bytes) -> ElementTree.Element:
    """The root of an SVG, without its metadata. Raises HpmlError like `checked_picture`."""
    if b"<!ENTITY" in picture:
        raise HpmlError("the picture declares entities")
    try:
        root = ElementTree.fromstring(picture)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise HpmlError(f"the picture is not well-formed XML: {error}") from None
    if root.tag != f"{{{_SVG}}}svg":
        raise HpmlError("the picture is not SVG")
    for child in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(child)
    for element in root.iter():
        _check(element)
    return root


def _check(element: ElementTree.Element) -> None:
    namespace, name = _parts(element.tag)
    if namespace != _SVG or name not in _ELEMENTS:
        raise HpmlError(f"the picture has an element {name!r}")
    texts = [element.text or ""] if name == "style" else []
    for attribute, value in element.attrib.items():
        _, attribute_name = _parts(attribute)
        if attribute_name.lower().startswith("on"):
            raise HpmlError(f"the picture has an attribute {attribute_name!r}")
        if attribute_name == "href":
            if not _WITHIN.match(value):
                raise HpmlError("the picture has a link")
        elif attribute_name != "d":  # the `d` of a path has only numbers and letters
            texts.append(value)
    if any(map(_OUTWARD.search, texts)):
        raise HpmlError("the picture loads external data")


def _parts(tag: object) -> tuple[str, str]:
    """Namespace and name."""
    found = _NAME.fullmatch(tag) if isinstance(tag, str) else None
    return (found[1] or "", found[2]) if found else ("", "?")
