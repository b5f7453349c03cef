"""The feed of changes, as it is written of one change whose texts all hold a given text."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

ATOM = "{http://www.w3.org/2005/Atom}"
_NAMES = (
    "title",
    "point",
    "where",
    "day",
    "range",
    "before",
    "after",
    "change",
    "differences",
    "open_cause",
    "also",
    "steps",
    "link",
)


def feed_of(folder: Path, text: str) -> tuple[ElementTree.Element, ElementTree.Element]:
    """The feed and its only entry, read from the file that was written into the folder."""
    from hpml_plugins.report.site.feed import write_feed

    shown = {**dict.fromkeys(_NAMES, f"a{text}b"), "date": 1e12, "identity": [text] * 5}
    write_feed(folder / "feed.xml", [shown], f"project{text}")
    feed = ElementTree.parse(folder / "feed.xml").getroot()
    (entry,) = feed.iter(f"{ATOM}entry")
    return feed, entry
