"""asv's own page, made to work offline and fixed from outside: local scripts, our links, one script
and a policy.

asv's scripts are not modified; `static/asv_fixes.js` corrects their behaviour at run time.
"""

from __future__ import annotations

import importlib.metadata
import json
import posixpath
import re
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from hpml_plugins.errors import HpmlError, needs_extra
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.page import POLICY, navigation
from hpml_plugins.terminal import escape_direction

#: The name of asv's page; the site's first page is ours.
PAGE = "asv.html"
#: The last item of asv's navigation, the title of the graph; links to our pages are inserted
#: before it.
_NAVBAR_END = '<li id="nav-li-graphdisplay">'
FIXES = "asv_fixes.js"
#: asv's HTML and the HTML made by Flot and jQuery use `style` attributes; `<style>` elements are
#: still refused. The fonts are Bootstrap's.
ASVS = (
    f"{POLICY}; connect-src 'self'; font-src 'self'; style-src 'self'; style-src-attr"
    " 'unsafe-inline'"
)
#: Key of a benchmark in index.json that has no summary because it has no number.
EMPTY = "hpml_empty"
#: Key of the machines that have a graph of a benchmark.
MACHINES = "hpml_machines"

#: asv's folder of graphs.
GRAPHS = "graphs"
#: asv's list of what a machine measured.
LIST = "summary.json"
#: The extension of their published files: raw deflate. asv's pages need a web server anyway.
PACKED = ".deflate"
_FLOT = "js/jquery_flot/resources"
_BOOTSTRAP = "js/bootstrap/resources"
#: The name of a CDN's file, without version and `.min` → the distribution that contains it, and
#: its path there. Matching by name also works for new versions in asv's addresses.
ASSETS: Final[dict[str, tuple[str, str]]] = {
    "jquery.js": ("js.jquery", "js/jquery/resources/jquery-3.6.1.min.js"),
    "jquery.flot.js": ("js.jquery_flot", f"{_FLOT}/jquery.flot.min.js"),
    "jquery.flot.time.js": ("js.jquery_flot", f"{_FLOT}/jquery.flot.time.min.js"),
    "jquery.flot.selection.js": ("js.jquery_flot", f"{_FLOT}/jquery.flot.selection.min.js"),
    "jquery.flot.categories.js": (
        "js.jquery_flot",
        f"{_FLOT}/jquery.flot.categories.min.js",
    ),
    "bootstrap.js": ("js.bootstrap", f"{_BOOTSTRAP}/js/bootstrap.min.js"),
    "bootstrap.css": ("js.bootstrap", f"{_BOOTSTRAP}/css/bootstrap.min.css"),
}
#: No package contains these three; ours, in `static/vendor/`, provide what asv's pages need of
#: them.
OWN: Final = ("jquery.flot.orderbars.js", "stupidtable.js", "md5.js")
STATIC: Final = Path(__file__).parent / "static"
#: Bootstrap's style loads them from `../fonts`; asv's tables use them to show the sort order.
FONTS = tuple(
    f"glyphicons-halflings-regular.{ending}" for ending in ("eot", "woff", "ttf", "svg")
)
#: A tag that loads a script, a style or a picture, and the address.
_LOADING = re.compile(
    r"""<(script|link|img)\b[^>]*?\b(?:src|href)\s*=\s*["']?([^"'\s>]+)[^>]*>""",
    re.IGNORECASE,
)
_REMOTE = re.compile(r"\s*(https?:)?//", re.IGNORECASE)
#: asv's only inline script, which is unused once its scripts are files of the site.
_INLINE_SCRIPT = re.compile(
    r"[ \t]*<script\b(?![^>]*\bsrc\b)[^>]*>.*?</script>\n?", re.DOTALL | re.IGNORECASE
)

#: In our scripts: comments on separate lines; and indentation.
_COMMENT = re.compile(r"^ *(//.*|/\*\*[^*]*(?:\*(?!/)[^*]*)*\*/)\n", re.MULTILINE)
_INDENT = re.compile(r"^ +", re.MULTILINE)


def finish_asv_page(html_dir: Path, declarations: Mapping[str, dict[str, Any]]) -> None:
    """Rename asv's index.html to PAGE, and make the folder self-contained, so that it loads nothing
    from other hosts.

    declarations: what asv will write into its index; a benchmark without any number, whose summary
    asv's grid would still request, gets the key EMPTY. Applying it twice changes nothing. Raises
    HpmlError naming the address that a page would still load from another host, the missing
    package, or what this asv lacks.
    """
    written = next(
        (page for name in ("index.html", PAGE) if (page := html_dir / name).is_file()), None
    )
    if written is None:
        raise HpmlError("asv has not written index.html; run `asv publish`", str(html_dir))
    copy_static(html_dir)
    text = localize(written.read_text(encoding="utf-8"), html_dir)
    if FIXES not in text:
        ours = [(label, page) for label, _, page in navigation()]
        links = "".join(
            f'<li><a href="{page}">{label}</a></li>\n'
            for label, page in (*ours, ("Search", "search.html"))
        )
        text = _insert(text, _NAVBAR_END, links)
        # Before asv's user interface and after its dependencies.
        tags = (found[0] for found in _LOADING.finditer(text) if found[2] == "asv_ui.js")
        text = _insert(
            text, next(tags, "script asv_ui.js"), f'<script src="{FIXES}"></script>\n'
        )
        text = _insert(text, "</head>", '<link rel="stylesheet" href="asv_fixes.css">\n')
        text = _move_styles(text)
    written.write_text(text, encoding="utf-8")
    written.rename(html_dir / PAGE)
    for name, entry in declarations.items():
        if not _has_graph(html_dir, name):
            entry[EMPTY] = True
    merge_graphs(html_dir)
    for summary in html_dir.glob(f"{GRAPHS}/**/{LIST}"):
        _drop_empty_rows(summary)
    # asv's list, which is empty: asv's page links to ours
    (html_dir / "regressions.json").unlink(missing_ok=True)
    for page in html_dir.glob("*.html"):
        apply_policy(page)


def _move_styles(text: str) -> str:
    """The page with its stylesheets before its scripts, which then wait for them.

    asv's grid draws into boxes once its scripts run. If a stylesheet is late, they have no height,
    Flot refuses to draw, and asv does not try again.
    """
    styles = [
        found[0] for found in _LOADING.finditer(text) if 'rel="stylesheet"' in found[0]
    ]
    for style in styles:
        text = text.replace(style, "", 1)
    first = next(found[0] for found in _LOADING.finditer(text) if found[1] == "script")
    return _insert(text, first, "".join(f"{style}\n" for style in styles))


def copy_static(html_dir: Path) -> None:
    """Write the scripts and styles of our pages; the first page's script includes the data reader,
    to save a request. Comments and indentation are removed: a quarter of the bytes."""
    shutil.copytree(STATIC, html_dir, copy_function=shutil.copyfile, dirs_exist_ok=True)
    texts = {path.name: path.read_text(encoding="utf-8") for path in STATIC.glob("*.*s")}
    texts["compare.js"] = texts["data.js"] + texts["compare.js"]
    for name, text in texts.items():
        shown = _COMMENT.sub("", text) if name.endswith(".js") else text
        (html_dir / name).write_text(_INDENT.sub("", shown), encoding="utf-8")


def _has_graph(html_dir: Path, benchmark: str) -> bool:
    """Whether a benchmark has a summary, as asv wrote it or merged."""
    from asv.graph import Graph

    summary = html_dir / f"{Graph.get_file_path({'summary': ''}, benchmark)}.json"
    merged = html_dir / GRAPHS / summary.with_suffix(PACKED).name
    return summary.exists() or merged.exists()


def merge_graphs(html_dir: Path) -> None:
    """Combine all graphs of a benchmark into one file, `graphs/NAME.deflate`: the folder in which
    asv wrote each → its text. `static/asv_fixes.js` extracts the requested one.

    asv writes a file of about 1 kB for each benchmark and machine: 2,475 for this repository, which
    become 523. asv's lists of machines are unchanged.
    """
    folder = html_dir / GRAPHS
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*/**/*.json")):
        if path.name != LIST:
            found.setdefault(path.name, []).append(path)
    for name, paths in found.items():
        pieces = []
        for path in paths:
            place = json.dumps(path.parent.relative_to(folder).as_posix())
            pieces.append(f"{place}:{path.read_text(encoding='utf-8')}")
            path.unlink()
        _pack(folder / name, f"{{{','.join(pieces)}}}")
    remove_empty_folders(folder)


def remove_empty_folders(folder: Path) -> None:
    """Remove empty folders below this one."""
    for path in sorted(folder.glob("**/"), reverse=True):
        if path != folder and not any(path.iterdir()):
            path.rmdir()


def _drop_empty_rows(summary: Path) -> None:
    """Remove points without a number from asv's list of a machine. For these, asv lists names
    without a graph: six of the seven MB of this repository's lists."""
    rows = json.loads(summary.read_bytes())
    measured = [row for row in rows if row["last_value"] is not None]
    summary.unlink()
    _pack(summary, json.dumps(measured))


def _pack(path: Path, text: str) -> None:
    """Write a JSON file deflated: a tenth of the bytes."""
    packer = zlib.compressobj(zlib.Z_BEST_COMPRESSION, wbits=-zlib.MAX_WBITS)
    packed = packer.compress(escape_direction(text).encode()) + packer.flush()
    path.with_suffix(PACKED).write_bytes(packed)


def localize(text: str, html_dir: Path) -> str:
    """The page with each CDN file replaced by a local copy under `vendor/`, which is written
    here."""

    def local(found: re.Match[str]) -> str:
        tag = found[1].lower()
        address = found[2]
        if not _REMOTE.match(address):
            return found[0]
        name = plain_name(address)
        if tag not in ("script", "link") or name not in (*ASSETS, *OWN):
            raise HpmlError(
                f"{address} would be loaded from the network, and no local file is known for it; "
                "add one to hpml_plugins/report/site/asv_page.py",
                PAGE,
            )
        if name in ASSETS:
            (html_dir / "vendor" / name).write_bytes(read_installed(*ASSETS[name]))
        if name == "bootstrap.css":
            (html_dir / "fonts").mkdir(exist_ok=True)
            for font in FONTS:
                (html_dir / "fonts" / font).write_bytes(
                    read_installed("js.bootstrap", f"{_BOOTSTRAP}/fonts/{font}")
                )
        # integrity and crossorigin belong to the CDN's copy; asv's onerror would blame the
        # internet connection.
        if tag == "link":
            return f'<link rel="stylesheet" href="vendor/{name}">'
        return f'<script src="vendor/{name}">'

    return _LOADING.sub(local, text)


def plain_name(address: str) -> str:
    """`https://host/jquery-3.3.1.min.js?x` → `jquery.js`: the name without version and `.min`,
    lower case."""
    name = posixpath.basename(urlsplit(address).path).lower()
    stem, dot, ending = name.rpartition(".")
    return re.sub(r"-\d+(\.\d+)*$", "", re.sub(r"[.-]min$", "", stem)) + dot + ending


def read_installed(package: str, path: str) -> bytes:
    """A file of an installed package. Raises HpmlError if it is missing or if the package has
    another layout."""
    # Read as data: importing these packages would import the web framework for which they are
    # made.
    with needs_extra("publish"):
        distribution = importlib.metadata.distribution(package)
    found = Path(str(distribution.locate_file(path)))
    if not found.is_file():
        raise HpmlError(
            f"{package} {distribution.version} has no {path}; install the version in pyproject.toml"
        )
    return found.read_bytes()


def apply_policy(page: Path) -> None:
    """Add asv's policy to a page that has none, and remove the inline script that it forbids."""
    text = page.read_text(encoding="utf-8", errors="replace")
    if 'http-equiv="Content-Security-Policy"' not in text[:1000]:
        text = _INLINE_SCRIPT.sub("", text).replace("<html>", '<html lang="en">', 1)
        head, start, rest = text.partition("<head>")
        page.write_text(f"{head}{start}\n    {policy_tag(ASVS)}{rest}", encoding="utf-8")


def policy_tag(policy: str) -> str:
    """The policy as an element for a page's head. Browsers apply it to everything after it."""
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'


def _insert(text: str, before: str, inserted: str) -> str:
    if before not in text:
        raise HpmlError(
            f"asv's page has no {before}; use the version of asv in pyproject.toml"
        )
    return text.replace(before, inserted + before, 1)


def name_machines(history: History, declarations: Mapping[str, dict[str, Any]]) -> None:
    """Add to every benchmark the machines that have a graph of it, for asv's index; otherwise pages
    would request all."""
    for metric in history.measured:
        measured = {
            machine
            for (_, machine), line in metric.benchmark.index.lines().items()
            if any(metric.metric in outcome.readings for outcome in line)
        }
        declarations.get(metric.name, {})[MACHINES] = sorted(measured)
