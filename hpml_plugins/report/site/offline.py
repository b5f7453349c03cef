"""Makes the folder that asv published complete: nothing in it asks another host for anything."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from hpml_plugins.report.site.errors import SiteError
from hpml_plugins.report.site.loads import Load, loads, start_of, style_addresses
from hpml_plugins.report.site.vendor import asset_for, read_asset

#: asv's navigation ends with the title of the graph; our pages are linked in front of it.
_NAVBAR_ANCHOR = ("li", "nav-li-graphdisplay")
#: Our pages, as asv's own navbar names them; the templates have a navigation of their own.
PAGES = {
    "gpus.html": "GPU types",
    "history.html": "History",
    "nodes.html": "Nodes",
    "plugins.html": "Plugins",
    "search.html": "Search",
}

#: Two slashes, however HTML may spell them: without, no address names another host.
_MAY_LEAVE = re.compile(r"(/|&#x0*2f\b;?|&#0*47\b;?|&sol;){2}", re.IGNORECASE)


def make_offline(html_dir: Path) -> None:
    """Replace every CDN script and style of asv's index by a local file, and link our pages from its navbar.

    html_dir: what `asv publish` wrote. Doing it twice changes nothing. Raises SiteError naming the address
    that a page would still load from another host, or the package that is missing.
    """
    index = html_dir / "index.html"
    if not index.is_file():
        raise SiteError("asv has not written index.html; run `asv publish`", str(html_dir))
    text = localize(index.read_text(encoding="utf-8"), html_dir)
    for address, label in PAGES.items():
        text = link_page(text, address, label)
    index.write_text(text, encoding="utf-8")
    check_offline(html_dir)


def localize(text: str, html_dir: Path) -> str:
    """The page with each known CDN file replaced by one under `vendor/`, which is written on the way."""
    # From the end, so that the places of the earlier tags stay true.
    for load in reversed(loads(text)):
        asset = asset_for(load.address) if load.remote else None
        if asset is None:
            continue
        for target, content in read_asset(asset).items():
            place = html_dir / "vendor" / target
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        text = text[: load.start] + _local_tag(load, f"vendor/{asset.target}") + text[load.end :]
    return text


def link_page(text: str, address: str, label: str) -> str:
    """asv's index with one more entry in its navbar. Raises SiteError when asv's navbar is not as it was."""
    item = f'<li><a href="{escape(address)}">{escape(label)}</a></li>'
    if item in text:
        return text
    place = start_of(text, *_NAVBAR_ANCHOR)
    if place is None:
        raise SiteError(
            f"asv's index.html has no <li id={_NAVBAR_ANCHOR[1]!r}>, so {address} cannot be linked; "
            "this asv is not known, use 0.6.6"
        )
    return f"{text[:place]}{item}\n        {text[place:]}"


def check_offline(html_dir: Path) -> None:
    """Raise SiteError naming the first address that a page or style would load from another host."""
    for page in sorted([*html_dir.rglob("*.html"), *html_dir.rglob("*.htm")]):
        text = page.read_text(encoding="utf-8", errors="replace")
        if not _MAY_LEAVE.search(text):
            continue  # a large page takes a third of a second to take apart
        for load in loads(text):
            if load.remote:
                raise _leak(page.relative_to(html_dir), load.address)
    for style in sorted(html_dir.rglob("*.css")):
        for address in style_addresses(style.read_text(encoding="utf-8", errors="replace")):
            raise _leak(style.relative_to(html_dir), address)


def _leak(page: Path, address: str) -> SiteError:
    return SiteError(
        f"{address} would be loaded from the network, and no local file is known for it; "
        "add one to hpml_plugins/report/site/vendor.py",
        str(page),
    )


def _local_tag(load: Load, address: str) -> str:
    # integrity and crossorigin belong to the CDN's copy; asv's onerror would blame the internet connection.
    if load.tag == "link":
        return f'<link rel="stylesheet" href="{address}">'
    return f'<script src="{address}">'
