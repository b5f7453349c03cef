"""asv's own page, made complete offline and fixed from outside: local scripts, our links, one script and a policy.

No text of asv's scripts is changed; what is wrong there is put right when they run, by `static/asv_fixes.js`.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from hpml_plugins.model.formatting import format_point_texts
from hpml_plugins.report.reading import OK, History
from hpml_plugins.report.site.page import POLICY, SiteError, static, write_static

#: asv's navigation ends with the title of the graph; our pages are linked in front of it.
_NAVBAR_ANCHOR = "nav-li-graphdisplay"
#: Our pages, as asv's own navbar names them; the templates have a navigation of their own.
PAGES = {
    "gpus.html": "GPU types",
    "history.html": "History",
    "nodes.html": "Nodes",
    "plugins.html": "Plugins",
    "search.html": "Search",
}
FIXES = "asv_fixes.js"
#: asv's HTML, and that which Flot and jQuery make, place things by `style` attributes; a `<style>` element is still
#: refused. The font is Bootstrap's.
ASVS = f"{POLICY}; font-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'"
#: The key of a benchmark in index.json: for each of its parameters the numbers of the values to begin with.
FIRST_LINES = "hpml_selected"
#: Lines of each machine that a graph begins with, as asv has it.
MOST_LINES = 8


def finish_asv_page(html_dir: Path, benchmarks: Iterable[str]) -> list[str]:
    """Make the folder that asv published complete: nothing in it asks another host for anything.

    Doing it twice changes nothing. Returns what would not work under the content security policy. Raises SiteError
    naming the address that a page would still load from another host, or the package that is missing.
    """
    index = html_dir / "index.html"
    if not index.is_file():
        raise SiteError("asv has not written index.html; run `asv publish`", str(html_dir))
    text = localize(index.read_text(encoding="utf-8"), html_dir)
    for address, label in PAGES.items():
        text = link_page(text, address, label)
    index.write_text(add_fixes(text), encoding="utf-8")
    write_static(html_dir, FIXES)
    write_empty_summaries(html_dir, benchmarks)
    check_offline(html_dir)
    return list(apply_policy(html_dir))


# --- asv's scripts and styles, from installed packages --------------------------------------------------------------


@dataclass(frozen=True)
class Asset:
    """One local file that stands for a CDN's.

    target: its path under `html/vendor/`.  source: its path in the distribution, or in our `static/` where
    `distribution` is empty.  also: files of the same distribution that it refers to, as (source, target).
    """

    target: str
    source: str
    distribution: str = ""
    also: tuple[tuple[str, str], ...] = ()

    def read(self) -> dict[str, bytes]:
        """Everything it needs: path under `vendor/` → content. Raises SiteError if one is missing."""
        if not self.distribution:
            return {self.target: static(self.source)}
        wanted = ((self.source, self.target), *self.also)
        return {target: _installed(self.distribution, source) for source, target in wanted}


def _flot(name: str) -> Asset:
    return Asset(f"{name}.min.js", f"js/jquery_flot/resources/{name}.min.js", "js.jquery_flot")


_BOOTSTRAP = "js/bootstrap/resources"
# bootstrap.min.css asks for ../fonts/NAME, so css/ and fonts/ stay siblings under vendor/.
_FONTS = tuple(
    (f"{_BOOTSTRAP}/fonts/{name}", f"fonts/{name}")
    for name in (f"glyphicons-halflings-regular.{end}" for end in ("eot", "woff", "ttf", "svg"))
)

#: File name without version and `.min` → our file. Matching by name survives new versions in asv's addresses.
ASSETS: Final[dict[str, Asset]] = {
    "jquery.js": Asset("jquery.min.js", "js/jquery/resources/jquery-3.6.1.min.js", "js.jquery"),
    "jquery.flot.js": _flot("jquery.flot"),
    "jquery.flot.time.js": _flot("jquery.flot.time"),
    "jquery.flot.selection.js": _flot("jquery.flot.selection"),
    "jquery.flot.categories.js": _flot("jquery.flot.categories"),
    "bootstrap.js": Asset("bootstrap.min.js", f"{_BOOTSTRAP}/js/bootstrap.min.js", "js.bootstrap"),
    "bootstrap.css": Asset("css/bootstrap.min.css", f"{_BOOTSTRAP}/css/bootstrap.min.css", "js.bootstrap", _FONTS),
    # No installable package carries these three; ours do what asv's pages ask of them.
    "jquery.flot.orderbars.js": Asset("order_bars.js", "order_bars.js"),
    "stupidtable.js": Asset("table_sort.js", "table_sort.js"),
    "md5.js": Asset("hash.js", "hash.js"),
}
#: What to install when an installed version lacks the file: the versions whose layout is known.
_PINS: Final = {
    "js.jquery": "js.jquery==3.6.1",
    "js.jquery_flot": "js.jquery_flot==0.8.1",
    "js.bootstrap": "js.bootstrap==3.1.1",
}


def asset_for(address: str) -> Asset | None:
    """The local file for a CDN's address, or None when we know none."""
    return ASSETS.get(plain_name(address))


def plain_name(address: str) -> str:
    """`https://host/jquery-3.3.1.min.js?x` → `jquery.js`: the name without version and `.min`, lower case."""
    name = posixpath.basename(urlsplit(address).path).lower()
    stem, dot, ending = name.rpartition(".")
    stem = re.sub(r"[.-]min$", "", stem)
    return re.sub(r"-\d+(\.\d+)*$", "", stem) + dot + ending


def _installed(name: str, path: str) -> bytes:
    # Read as data: importing these packages would pull in the web framework that they are made for.
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise SiteError(f"the pages need the package {name!r}, which is not installed: pip install {name}") from None
    found = Path(str(distribution.locate_file(path)))
    if not found.is_file():
        raise SiteError(f"{name} {distribution.version} has no {path}; the pages need it: pip install {_PINS[name]}")
    return found.read_bytes()


def localize(text: str, html_dir: Path) -> str:
    """The page with each known CDN file replaced by one under `vendor/`, which is written on the way."""
    # From the end, so that the places of the earlier tags stay true.
    for load in reversed(loads(text)):
        asset = asset_for(load.address) if load.remote else None
        if asset is None:
            continue
        for target, content in asset.read().items():
            place = html_dir / "vendor" / target
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        # integrity and crossorigin belong to the CDN's copy; asv's onerror would blame the internet connection.
        address = f"vendor/{asset.target}"
        tag = f'<link rel="stylesheet" href="{address}">' if load.tag == "link" else f'<script src="{address}">'
        text = text[: load.start] + tag + text[load.end :]
    return text


# --- our links and our script ---------------------------------------------------------------------------------------


def link_page(text: str, address: str, label: str) -> str:
    """asv's index with one more entry in its navbar. Raises SiteError when asv's navbar is not as it was."""
    item = f'<li><a href="{escape(address)}">{escape(label)}</a></li>'
    if item in text:
        return text
    place = _read(text).identified.get(("li", _NAVBAR_ANCHOR))
    if place is None:
        raise SiteError(
            f"asv's index.html has no <li id={_NAVBAR_ANCHOR!r}>, so {address} cannot be linked; "
            "this asv is not known, use 0.6.6"
        )
    return f"{text[:place]}{item}\n        {text[place:]}"


def add_fixes(text: str) -> str:
    """asv's index with our script in front of asv's user interface and behind what that stands on.

    Raises SiteError where asv's index loads no script of that name.
    """
    if FIXES in text:
        return text
    place = next((load.start for load in loads(text) if load.address == "asv_ui.js"), None)
    if place is None:
        raise SiteError("asv's index.html loads no asv_ui.js; this asv is not known, use 0.6.6")
    return f'{text[:place]}<script src="{FIXES}"></script>\n    {text[place:]}'


def write_empty_summaries(html_dir: Path, benchmarks: Iterable[str]) -> None:
    """An empty summary of each benchmark that has no number anywhere: asv's grid asks for it all the same."""
    from asv.graph import Graph

    for name in benchmarks:
        path = html_dir / f"{Graph.get_file_path({'summary': ''}, name)}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("[]", encoding="utf-8")


def select_first_lines(history: History, declarations: Mapping[str, dict[str, Any]]) -> None:
    """Tell every benchmark which lines its graph begins with, for asv to write into its index: some with numbers.

    asv takes the first values of every parameter. Of a grid that no machine measures whole these may be lines without
    any number.
    """
    for name, entry in declarations.items():
        entry.pop(FIRST_LINES, None)
        names, params = entry.get("param_names") or [], entry.get("params") or []
        if not params or name not in history.lines:
            continue
        counts = (history.lines[name].status == OK).sum(axis=(0, 1))
        place = history.metrics[name].points.place
        labels = (format_point_texts(dict(zip(names, values, strict=False))) for values in itertools.product(*params))
        grid = np.array([counts[place[label]] if label in place else 0 for label in labels])
        if grid.any():
            entry[FIRST_LINES] = first_lines(grid.reshape([len(values) for values in params]))


def first_lines(counts: np.ndarray) -> list[list[int]]:
    """Of each axis, which values: around the point that was measured most often, the first of several.

    counts: how often each point was measured, one axis per parameter.
    """
    middle: tuple[Any, ...] = np.unravel_index(int(counts.argmax()), counts.shape)
    chosen: list[list[int]] = []
    room = MOST_LINES
    for axis, at in enumerate(middle):
        along = counts[(*middle[:axis], slice(None), *middle[axis + 1 :])]
        others = [int(value) for value in np.flatnonzero(along) if value != at]
        values = sorted([int(at), *others[: room - 1]])
        chosen.append(values)
        room = max(1, room // len(values))
    return chosen


# --- what a page loads and runs -------------------------------------------------------------------------------------

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
#: Two slashes, however HTML may spell them: without, no address names another host.
_MAY_LEAVE = re.compile(r"(/|&#x0*2f\b;?|&#0*47\b;?|&sol;){2}", re.IGNORECASE)
_RUNS = re.compile(r"(javascript|vbscript|data:text/html)", re.IGNORECASE)
#: Browsers leave these out of an address before they read its scheme.
_IGNORED = re.compile(r"[\x00-\x20]")
_ADDRESSES = {"href", "xlink:href", "src", "action", "formaction", "data", "srcdoc", "to", "values", "from"}
#: asv's one inline script, which nothing calls once its scripts are files of the site.
_INLINE_SCRIPT = re.compile(r"[ \t]*<script\b(?![^>]*\bsrc\b)[^>]*>.*?</script>\n?", re.DOTALL | re.IGNORECASE)


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
    return _read(text).loads


def active(text: str) -> list[str]:
    """What would run by itself: inline scripts, event handlers, `javascript:` addresses; in words."""
    return _read(text).active


def check_offline(html_dir: Path) -> None:
    """Raise SiteError naming the first address that a page or style would load from another host."""
    for page in sorted([*html_dir.rglob("*.html"), *html_dir.rglob("*.htm")]):
        text = page.read_text(encoding="utf-8", errors="replace")
        if _MAY_LEAVE.search(text):  # a large page takes a third of a second to take apart
            for load in loads(text):
                if load.remote:
                    raise _leak(page.relative_to(html_dir), load.address)
    for style in sorted(html_dir.rglob("*.css")):
        for address in _STYLE_ADDRESS.findall(style.read_text(encoding="utf-8", errors="replace")):
            raise _leak(style.relative_to(html_dir), address)


def apply_policy(html_dir: Path) -> Iterator[str]:
    """Put asv's policy into every page that has none; yields a warning for each that would not work under it."""
    for page in sorted([*html_dir.rglob("*.html"), *html_dir.rglob("*.htm")]):
        text = page.read_text(encoding="utf-8", errors="replace")
        if 'http-equiv="Content-Security-Policy"' in text[:1000]:
            continue
        text = _INLINE_SCRIPT.sub("", text)
        for found in active(text):
            yield f"{page.name} has {found}, which its content security policy forbids"
        head, start, rest = text.partition("<head>")
        if not start:
            head, rest = "", text
        page.write_text(f"{head}{start}\n    {policy_tag(ASVS)}{rest}", encoding="utf-8")


def policy_tag(policy: str) -> str:
    """The policy as an element of a page's head. A browser applies it to what stands behind it."""
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'


def _leak(page: Path, address: str) -> SiteError:
    return SiteError(
        f"{address} would be loaded from the network, and no local file is known for it; "
        "add one to hpml_plugins/report/site/asv_page.py",
        str(page),
    )


def _read(text: str) -> _Reader:
    reader = _Reader(text)
    reader.feed(text)
    reader.close()
    return reader


class _Reader(HTMLParser):
    """loads: see Load.  active: see `active`.  identified: (tag, id) → where its start tag begins."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[Load] = []
        self.active: list[str] = []
        self.identified: dict[tuple[str, str], int] = {}
        self._lines = [0, *itertools.accumulate(len(line) + 1 for line in text.split("\n"))]
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.identified.setdefault((tag, values["id"]), self._start())
        self._in_style = tag == "style"
        for address in (*_addresses(tag, values), *_STYLE_ADDRESS.findall(values.get("style", ""))):
            self._add(tag, address)
        if tag == "script" and "src" not in values:
            self.active.append("a script")
        self.active += [f"an event handler, {name}" for name in values if name.startswith("on")]
        self.active += [
            f"an address that runs a script, in {name}"
            for name, value in values.items()
            if name in _ADDRESSES and _RUNS.match(_IGNORED.sub("", value))
        ]

    def handle_data(self, data: str) -> None:
        if self._in_style:
            for address in _STYLE_ADDRESS.findall(data):
                self._add("style", address)

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._in_style = False

    def _add(self, tag: str, address: str) -> None:
        start = self._start()
        self.loads.append(Load(tag, address, start, start + len(self.get_starttag_text() or "")))

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
