"""Where the scripts and styles that asv takes from CDNs lie on this machine."""

from __future__ import annotations

import importlib.metadata
import posixpath
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hpml_plugins.report.site.errors import SiteError


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


def asset_for(address: str) -> Asset | None:
    """The local file for a CDN's address, or None when we know none."""
    return ASSETS.get(plain_name(address))


def plain_name(address: str) -> str:
    """`https://host/jquery-3.3.1.min.js?x` → `jquery.js`: the name without version and `.min`, lower case."""
    name = posixpath.basename(urlsplit(address).path).lower()
    stem, dot, ending = name.rpartition(".")
    stem = re.sub(r"[.-]min$", "", stem)
    return re.sub(r"-\d+(\.\d+)*$", "", stem) + dot + ending


def read_asset(asset: Asset) -> dict[str, bytes]:
    """Everything an asset needs: path under `vendor/` → content. Raises SiteError if one is missing."""
    if not asset.distribution:
        return {asset.target: static(asset.source)}
    wanted = ((asset.source, asset.target), *asset.also)
    return {target: _installed(asset.distribution, source) for source, target in wanted}


def static(name: str) -> bytes:
    """A file of our own `static/` folder."""
    return (files("hpml_plugins.report.site") / "static" / name).read_bytes()


def _installed(name: str, path: str) -> bytes:
    # Read as data: importing these packages would pull in the web framework that they are made for.
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise SiteError(f"the pages need the package {name!r}, which is not installed: pip install {name}") from None
    found = Path(str(distribution.locate_file(path)))
    if not found.is_file():
        raise SiteError(f"{name} {distribution.version} has no {path}; the pages need it: pip install {PINS[name]}")
    return found.read_bytes()


#: What to install when an installed version lacks the file: the versions whose layout is known.
PINS: Final = {
    "js.jquery": "js.jquery==3.6.1",
    "js.jquery_flot": "js.jquery_flot==0.8.1",
    "js.bootstrap": "js.bootstrap==3.1.1",
}
