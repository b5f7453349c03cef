"""asv's own pages, made complete offline, under a content security policy."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import zlib
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from hpml_plugins.errors import HpmlError
from hpml_plugins.report.site import asv_page
from hpml_plugins.report.site.asv_page import ASVS, PAGE, finish_asv_page
from hpml_plugins.report.site.page import OURS

WWW = Path(str(files("asv"))) / "www"


class Tags(HTMLParser):
    """Every start tag of a page. loads: the addresses that a browser fetches.  inline: what would
    run by itself."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.inline: list[str] = []
        self.feed(page.read_text())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "link", "img", "iframe", "object", "embed", "source"):
            self.loads += [
                values[name] or "" for name in ("src", "href", "data") if name in values
            ]
        if tag == "script" and "src" not in values:
            self.inline.append(tag)
        self.inline += [name for name in values if name.startswith("on")]

    @property
    def remote(self) -> list[str]:
        return [address for address in self.loads if re.match(r"(https?:)?//", address)]


@pytest.fixture
def html_dir(tmp_path: Path) -> Path:
    """What asv's publish writes before its publishers run."""
    shutil.copytree(WWW, tmp_path / "html")
    return tmp_path / "html"


def test_asv_s_index_loads_from_other_hosts_before_and_from_none_after(
    html_dir: Path,
) -> None:
    assert len(Tags(html_dir / "index.html").remote) == 10
    finish_asv_page(html_dir, {})
    after = Tags(html_dir / PAGE)
    assert not after.remote
    assert len(after.loads) == 2 + len(
        Tags(WWW / "index.html").loads
    )  # our script and style


def test_every_file_that_the_index_names_is_in_the_folder(html_dir: Path) -> None:
    finish_asv_page(html_dir, {})
    for address in Tags(html_dir / PAGE).loads:
        assert (html_dir / address).is_file() or address == "regressions.xml", address


def test_the_fonts_that_bootstrap_s_style_names_are_there(html_dir: Path) -> None:
    finish_asv_page(html_dir, {})
    style = html_dir / "vendor" / "bootstrap.css"
    wanted = set(re.findall(r"url\(\'?([^\'?#)]+)", style.read_text()))
    assert wanted and all((style.parent / font).resolve().is_file() for font in wanted)


def test_stylesheets_come_first_and_scripts_keep_their_order_with_ours_between_asv_s(
    html_dir: Path,
) -> None:
    page = html_dir / PAGE
    index = html_dir / "index.html"
    before, body = Tags(index).loads, index.read_text().partition("<body>")[2]
    finish_asv_page(html_dir, {})
    wanted = [
        f"vendor/{asv_page.plain_name(load)}" if load.startswith("http") else load
        for load in before
    ]
    wanted.insert(wanted.index("asv_ui.js"), "asv_fixes.js")
    styles = [load for load in wanted if load.endswith(".css")] + ["asv_fixes.css"]
    assert len(styles) == 5
    assert Tags(page).loads == styles + [load for load in wanted if load not in styles]
    assert (
        wanted.index("asv_fixes.js")
        > wanted.index("asv.js")
        > wanted.index("vendor/jquery.flot.js")
    )
    assert body.split('<li id="nav-li-graphdisplay">')[0] in page.read_text()
    assert "integrity" not in page.read_text() and "crossorigin" not in page.read_text()


def test_asv_s_scripts_are_as_asv_wrote_them(html_dir: Path) -> None:
    finish_asv_page(html_dir, {})
    for script in WWW.glob("*.js"):
        assert (html_dir / script.name).read_bytes() == script.read_bytes()


def test_doing_it_twice_changes_nothing(html_dir: Path) -> None:
    finish_asv_page(html_dir, {})
    once = {path.name: path.read_text() for path in html_dir.glob("*.html")}
    finish_asv_page(html_dir, {})
    assert {path.name: path.read_text() for path in html_dir.glob("*.html")} == once
    assert once[PAGE].count('<li><a href="evidence.html">Evidence</a></li>') == 1
    assert once[PAGE].count("asv_fixes.js") == 1


def test_asv_s_pages_get_their_policy_once_and_nothing_inline_is_left(
    html_dir: Path,
) -> None:
    finish_asv_page(html_dir, {})
    pages = list(html_dir.glob("*.html"))
    assert {each.name for each in pages} == {PAGE, "error.html"}
    for each in pages:
        assert each.read_text().count(ASVS) == 1
        assert Tags(each).inline == []


def test_no_policy_lets_a_script_in_that_is_no_file_of_the_site() -> None:
    for policy in (OURS, ASVS):
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["script-src"] == rules["img-src"] == rules["style-src"] == "'self'"
        assert rules.get("connect-src") == (None if policy == OURS else "'self'")
        assert (rules["default-src"], rules["base-uri"]) == ("'none'", "'none'")
        assert "http" not in policy and "*" not in policy and "unsafe-eval" not in policy
    assert "unsafe" not in OURS


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://cdn.example/new-library.min.js"></script>',
        "<SCRIPT\n  SRC='http://cdn.example/new.js'></SCRIPT>",
        '<link rel="stylesheet" href="//cdn.example/new.css">',
        '<img src="https://cdn.example/badge.svg">',
    ],
)
def test_an_unknown_file_of_another_host_is_refused_by_its_address(
    html_dir: Path, tag: str
) -> None:
    index = html_dir / "index.html"
    index.write_text(index.read_text().replace("</head>", f"{tag}</head>"))
    with pytest.raises(HpmlError, match=r"asv\.html: .*cdn\.example/"):
        finish_asv_page(html_dir, {})


def test_a_missing_package_is_named_with_the_command_that_fixes_it(
    html_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(
        HpmlError,
        match=r"needs the package js\.jquery, .*pip install 'hpml-plugins\[publish\]'",
    ):
        finish_asv_page(html_dir, {})


def test_another_asv_without_what_we_know_of_its_page_is_refused(html_dir: Path) -> None:
    index = html_dir / "index.html"
    known = index.read_text()
    for part in ("asv_ui.js", "nav-li-graphdisplay"):
        index.write_text(known.replace(part, "other"))
        with pytest.raises(HpmlError, match=part):
            finish_asv_page(html_dir, {})


def test_asv_s_list_of_a_machine_has_the_points_that_it_measured(html_dir: Path) -> None:
    list_of_machine = html_dir / "graphs" / "machine-m" / "summary.json"
    list_of_machine.parent.mkdir(parents=True)
    rows = [{"name": "a", "last_value": 0.0}, {"name": "b", "last_value": None}]
    list_of_machine.write_text(json.dumps(rows))
    finish_asv_page(html_dir, {})
    assert not list_of_machine.exists()
    packed = list_of_machine.with_suffix(".deflate").read_bytes()
    assert json.loads(zlib.decompress(packed, -zlib.MAX_WBITS)) == rows[:1]


def test_a_folder_without_index_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(HpmlError, match="asv publish"):
        finish_asv_page(tmp_path, [])


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://code.jquery.com/jquery-3.3.1.min.js", "jquery.js"),
        ("https://c.example/flot/9.9/jquery.flot.time.min.js?x=1", "jquery.flot.time.js"),
        ("https://c.example/js/jquery.flot.orderBars.js", "jquery.flot.orderbars.js"),
        ("//c.example/bootstrap@3.1.1/dist/css/bootstrap.min.css", "bootstrap.css"),
        ("https://c.example/js/md5.min.js", "md5.js"),
    ],
)
def test_a_cdn_file_is_known_by_its_name_whatever_version_and_host(
    address: str, name: str
) -> None:
    assert asv_page.plain_name(address) == name
    assert (asv_page.STATIC / "vendor" / name).is_file() or asv_page.read_installed(
        *asv_page.ASSETS[name]
    )


@pytest.mark.skipif(
    shutil.which("node") is None,
    reason="no node; test_browser.py checks the same in a browser",
)
@pytest.mark.parametrize(
    "text", ["", "abc", "é" * 40, "x" * 55, "x" * 56, "x" * 64, "message digest" * 99]
)
def test_our_md5_is_md5(text: str) -> None:
    script = (
        asv_page.STATIC / "vendor" / "md5.js"
    ).read_text() + "; process.stdout.write(md5(process.argv[1]));"
    ran = subprocess.run(
        ["node", "-e", script, text], capture_output=True, text=True, check=True
    )
    assert ran.stdout == hashlib.md5(text.encode()).hexdigest()


def test_from_the_disk_asv_s_page_says_that_it_needs_a_server(
    published: Path, browser: Any
) -> None:
    tab = browser.new_page()
    tab.goto(f"file://{published}/asv.html")
    tab.locator("#error-message", has_text="asv preview").wait_for()
    tab.close()
