"""asv's own pages, made complete offline."""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from hpml_plugins.report.site import asv_page
from hpml_plugins.report.site.asv_page import check_offline, finish_asv_page, is_remote, loads
from hpml_plugins.report.site.page import SiteError, static


@pytest.fixture
def html_dir(tmp_path: Path) -> Path:
    """What asv's publish writes before its publishers run."""
    with_www = Path(str(files("asv"))) / "www"
    shutil.copytree(with_www, tmp_path / "html")
    return tmp_path / "html"


def page(text: str) -> str:
    return f"<!doctype html><html><head>{text}</head><body></body></html>"


def test_asv_s_index_loads_from_other_hosts_before_and_from_none_after(html_dir: Path) -> None:
    index = html_dir / "index.html"
    before = [load for load in loads(index.read_text()) if load.remote]
    assert len(before) == 10
    finish_asv_page(html_dir, [])
    after = loads(index.read_text())
    assert not [load for load in after if load.remote]
    assert len(after) == 1 + len(loads((Path(str(files("asv"))) / "www" / "index.html").read_text()))  # our script


def test_every_file_that_the_index_names_is_in_the_folder(html_dir: Path) -> None:
    finish_asv_page(html_dir, [])
    for load in loads((html_dir / "index.html").read_text()):
        assert (html_dir / load.address).is_file(), load.address


def test_the_scripts_keep_their_order_and_the_rest_of_the_page_is_as_it_was(html_dir: Path) -> None:
    index = html_dir / "index.html"
    before = index.read_text()
    wanted = [asv_page.plain_name(load.address) for load in loads(before) if load.remote]
    finish_asv_page(html_dir, [])
    after = index.read_text()
    vendored = [load.address for load in loads(after) if load.address.startswith("vendor/")]
    assert vendored == [f"vendor/{asv_page.ASSETS[name].target}" for name in wanted]
    assert before[before.index("<body>") :].split("<li id=")[0] in after
    assert "integrity" not in after and "crossorigin" not in after


def test_the_fonts_that_bootstrap_s_style_names_are_there(html_dir: Path) -> None:
    finish_asv_page(html_dir, [])
    assert {font.suffix for font in (html_dir / "vendor" / "fonts").iterdir()} == {".eot", ".svg", ".ttf", ".woff"}


def test_the_navbar_links_the_page_of_gpu_types_once_even_if_done_twice(html_dir: Path) -> None:
    finish_asv_page(html_dir, [])
    once = (html_dir / "index.html").read_text()
    finish_asv_page(html_dir, [])
    assert (html_dir / "index.html").read_text() == once
    assert once.count('<li><a href="gpus.html">GPU types</a></li>') == 1


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://cdn.example/new-library.min.js"></script>',
        "<SCRIPT\n  SRC='http://cdn.example/new.js'></SCRIPT>",
        '<link rel="stylesheet" href="//cdn.example/new.css">',
        '<link href="https://cdn.example/x.woff" rel="preload" as="font">',
        '<img src="https://cdn.example/badge.svg">',
        '<img src="here.png" srcset="https://cdn.example/big.png 2x">',
        '<iframe src="https://cdn.example/"></iframe>',
        "<style>@import 'https://cdn.example/a.css';</style>",
        "<style>p { background: url(https://cdn.example/a.png) }</style>",
        '<p style="background: url(https://cdn.example/a.png)">',
    ],
)
def test_a_load_from_another_host_is_refused_by_its_address(html_dir: Path, tag: str) -> None:
    (html_dir / "more").mkdir()
    (html_dir / "more" / "extra.html").write_text(page(tag))
    with pytest.raises(SiteError, match=r"more/extra\.html: .*cdn\.example/"):
        finish_asv_page(html_dir, [])


def test_an_unknown_cdn_script_in_the_index_is_refused_by_its_address(html_dir: Path) -> None:
    index = html_dir / "index.html"
    index.write_text(index.read_text().replace("</head>", '<script src="https://cdn.example/d3.js"></script></head>'))
    with pytest.raises(SiteError, match=r"https://cdn\.example/d3\.js"):
        finish_asv_page(html_dir, [])


def test_a_style_sheet_that_asks_another_host_is_refused(html_dir: Path) -> None:
    (html_dir / "own.css").write_text("@font-face { src: url('https://fonts.example/a.woff2') }")
    with pytest.raises(SiteError, match=r"own\.css: https://fonts\.example/a\.woff2"):
        finish_asv_page(html_dir, [])


@pytest.mark.parametrize(
    "tag",
    [
        '<a href="https://example.org/">elsewhere</a>',
        '<link rel="canonical" href="https://example.org/">',
        "<script>var text = '<script src=\"https://example.org/x.js\">';</script>",
        '<!-- <script src="https://example.org/x.js"></script> -->',
        '<img src="data:image/png;base64,AAAA">',
    ],
)
def test_what_a_browser_does_not_load_by_itself_is_left_alone(tmp_path: Path, tag: str) -> None:
    (tmp_path / "page.html").write_text(page(tag))
    check_offline(tmp_path)


def test_a_missing_package_is_named_with_the_command_that_mends_it(
    html_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(SiteError, match=r"pip install js\.bootstrap"):
        finish_asv_page(html_dir, [])


def test_another_asv_without_the_known_script_is_refused(html_dir: Path) -> None:
    index = html_dir / "index.html"
    index.write_text(index.read_text().replace("asv_ui.js", "other.js"))
    with pytest.raises(SiteError, match=r"asv_ui\.js"):
        finish_asv_page(html_dir, [])


def test_another_asv_without_the_known_navbar_is_refused(html_dir: Path) -> None:
    (html_dir / "index.html").write_text(page(""))
    with pytest.raises(SiteError, match="nav-li-graphdisplay"):
        finish_asv_page(html_dir, [])


def test_a_folder_without_index_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="asv publish"):
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
def test_a_cdn_file_is_known_by_its_name_whatever_version_and_host(address: str, name: str) -> None:
    assert is_remote(address)
    assert asv_page.plain_name(address) == name
    assert asv_page.asset_for(address) is not None


@pytest.mark.skipif(shutil.which("node") is None, reason="no node; test_browser.py checks the same in a browser")
@pytest.mark.parametrize("text", ["", "abc", "é" * 40, "x" * 55, "x" * 56, "x" * 64, "message digest" * 99])
def test_our_md5_is_md5(text: str) -> None:
    script = static("hash.js").decode() + "; process.stdout.write(md5(process.argv[1]));"
    ran = subprocess.run(["node", "-e", script, text], capture_output=True, text=True, check=True)
    assert ran.stdout == hashlib.md5(text.encode()).hexdigest()
