"""What a browser would load by itself when it opens a page, and where that is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import accumulate

#: tag → attributes whose address is fetched without a click. Anchors and forms are left out on purpose.
_FETCHED = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "frame": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "audio": ("src",),
    "video": ("src", "poster"),
    "input": ("src",),
    "image": ("href", "xlink:href"),
    "use": ("href", "xlink:href"),
}
#: `<link>` is fetched for these relations; `alternate` or `canonical` only name an address.
_FETCHED_LINKS = {
    "stylesheet", "icon", "apple-touch-icon", "mask-icon", "manifest", "preload", "modulepreload", "prefetch",
    "preconnect", "dns-prefetch", "prerender",
}  # fmt: skip
_REMOTE = re.compile(r"\s*(https?:)?//", re.IGNORECASE)
_STYLE_ADDRESS = re.compile(r"""(?:url\(\s*|@import\s+)['"]?\s*((?:https?:)?//[^'")\s;]+)""", re.IGNORECASE)


@dataclass(frozen=True)
class Load:
    """One start tag with an address that the browser fetches. start, end: the tag's place in the text."""

    tag: str
    address: str
    start: int
    end: int

    @property
    def remote(self) -> bool:
        """Whether the address leaves the folder."""
        return is_remote(self.address)


def is_remote(address: str) -> bool:
    """Whether an address names another host: http, https, or the protocol of the page."""
    return bool(_REMOTE.match(address))


def loads(text: str) -> list[Load]:
    """Every load of a page, in the order of the text."""
    return _read(text).found


def style_addresses(css: str) -> Iterator[str]:
    """The addresses of other hosts in a style sheet."""
    return (match[1] for match in _STYLE_ADDRESS.finditer(css))


def start_of(text: str, tag: str, identifier: str) -> int | None:
    """Where the start tag with this id begins, or None."""
    return _read(text).identified.get((tag, identifier))


def _read(text: str) -> _Reader:
    reader = _Reader(text)
    reader.feed(text)
    reader.close()
    return reader


class _Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[Load] = []
        self.identified: dict[tuple[str, str], int] = {}
        self._lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.identified.setdefault((tag, values["id"]), self._start())
        self._in_style = tag == "style"
        for address in _addresses(tag, values):
            self._add(tag, address)
        for address in style_addresses(values.get("style", "")):
            self._add(tag, address)

    def handle_data(self, data: str) -> None:
        if self._in_style:
            for address in style_addresses(data):
                self._add("style", address)

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._in_style = False

    def _add(self, tag: str, address: str) -> None:
        start = self._start()
        self.found.append(Load(tag, address, start, start + len(self.get_starttag_text() or "")))

    def _start(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column


def _addresses(tag: str, values: dict[str, str]) -> Iterator[str]:
    if tag == "link":
        if _FETCHED_LINKS & set(values.get("rel", "").lower().split()):
            yield values.get("href", "")
        return
    for name in _FETCHED.get(tag, ()):
        if name == "srcset":
            yield from (part.split()[0] for part in values.get(name, "").split(",") if part.strip())
        elif values.get(name):
            yield values[name]
