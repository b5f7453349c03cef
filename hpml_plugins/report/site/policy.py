"""The content security policy of each page: scripts are files of the site, nothing comes from elsewhere.

It is written into the page, so that it holds on any web server. Text is escaped besides; the policy is the second wall.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpml_plugins.report.site.active import active

_COMMON = "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'"

#: Of our own pages.
OURS = f"{_COMMON}; img-src 'self'; style-src 'self'"
#: Of pages whose HTML a plugin makes: it may also set styles, and carry pictures in it.
PLUGINS = f"{_COMMON}; img-src 'self' data:; style-src 'self' 'unsafe-inline'"
#: Of asv's: its HTML, and that which Flot and jQuery make, place things by `style` attributes; a `<style>` element is
#: still refused. The font is Bootstrap's.
ASVS = f"{_COMMON}; img-src 'self'; font-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'"

#: asv's one inline script, which nothing calls once its scripts are files of the site.
_LOAD_FAILURE = """    <script type="text/javascript">
      function js_load_failure() {
        window.location = "error.html";
      }
    </script>
"""


def tag(policy: str) -> str:
    """The policy as an element of a page's head. A browser applies it to what stands behind it."""
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'


def apply_policies(html_dir: Path) -> Iterator[str]:
    """Put asv's policy into every page that has none; yields a warning for each that would not work under it.

    Doing it twice changes nothing.
    """
    for page in sorted([*html_dir.rglob("*.html"), *html_dir.rglob("*.htm")]):
        text = page.read_text(encoding="utf-8", errors="replace")
        if 'http-equiv="Content-Security-Policy"' in text[:1000]:
            continue
        text = text.replace(_LOAD_FAILURE, "")
        for found in active(text):
            yield f"{page.name} has {found}, which its content security policy forbids"
        head, start, rest = text.partition("<head>")
        if not start:
            head, rest = "", text
        page.write_text(f"{head}{start}\n    {tag(ASVS)}{rest}", encoding="utf-8")
