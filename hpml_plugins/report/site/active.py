"""What in a page's HTML would run by itself, or lead the reader away."""

from __future__ import annotations

import re
from html.parser import HTMLParser

#: Elements that run something, show another page inside this one, or change what its addresses mean.
_ELEMENTS = {"iframe", "frame", "frameset", "object", "embed", "applet", "base", "meta", "portal"}
#: Attributes whose address a browser follows, at once or on a click.
_ADDRESSES = {"href", "xlink:href", "src", "action", "formaction", "data", "srcdoc", "to", "values", "from"}
_RUNS = re.compile(r"(javascript|vbscript|data:text/html)", re.IGNORECASE)
#: Browsers leave these out of an address before they read its scheme.
_LEFT_OUT = re.compile(r"[\x00-\x20]")


def active(text: str, *, frames_too: bool = False) -> list[str]:
    """What would run: inline scripts, event handlers, `javascript:` addresses; in words, in the order of the text.

    frames_too: also scripts from files, frames, objects, and elements that lead the whole page elsewhere.
    """
    reader = _Reader(frames_too)
    reader.feed(text)
    reader.close()
    return reader.found


class _Reader(HTMLParser):
    def __init__(self, frames_too: bool) -> None:
        super().__init__()
        self.found: list[str] = []
        self._frames_too = frames_too

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        if tag == "script" and (self._frames_too or "src" not in names):
            self.found.append("a script")
        elif self._frames_too and tag in _ELEMENTS:
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on"):
                self.found.append(f"an event handler, {name}")
            elif name in _ADDRESSES and _RUNS.match(_LEFT_OUT.sub("", value or "")):
                self.found.append(f"an address that runs a script, in {name}")
