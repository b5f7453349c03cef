"""What would run in a page's HTML, and the policy that keeps it from running."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from hpml_plugins.report.site.asv_page import ASVS, active, apply_policy, finish_asv_page
from hpml_plugins.report.site.page import OURS


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<script>x()</script>", "a script"),
        ("<p ONclick='x()'>", "an event handler, onclick"),
        ("<svg/onload=x()>", "an event handler, onload"),
        ("<a href=' java\tscript:x()'>", "an address that runs a script, in href"),
        ("<a href='&#106;avascript:x()'>", "an address that runs a script, in href"),
        ("<form action='data:text/html,x'>", "an address that runs a script, in action"),
        ("<svg><a xlink:href='vbscript:x'>", "an address that runs a script, in xlink:href"),
    ],
)
def test_what_would_run_is_named(html: str, found: str) -> None:
    assert active(f"<p>before</p>{html}") == [found]


def test_text_styles_pictures_and_links_run_nothing() -> None:
    html = "<p style='color:red'>&lt;script&gt; onload=x javascript:x <a href='gpus.html'>x</a><img src='a.svg'></p>"
    assert active(html) == []


def test_no_policy_lets_a_script_in_that_is_no_file_of_the_site() -> None:
    for policy in (OURS, ASVS):
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["script-src"] == rules["connect-src"] == "'self'"
        assert (rules["default-src"], rules["base-uri"]) == ("'none'", "'none'")
        assert "http" not in policy and "*" not in policy and "unsafe-eval" not in policy
    assert "unsafe" not in OURS


def test_asv_s_pages_get_theirs_once_and_no_inline_script_is_left(tmp_path: Path) -> None:
    html = tmp_path / "html"
    shutil.copytree(Path(str(files("asv"))) / "www", html)
    assert finish_asv_page(html, []) == []
    first = {path.name: path.read_text() for path in html.glob("*.html")}
    assert set(first) == {"index.html", "error.html"}
    for text in first.values():
        assert text.count(ASVS) == 1
        assert active(text) == []
    assert list(apply_policy(html)) == []
    assert {path.name: path.read_text() for path in html.glob("*.html")} == first


def test_a_page_that_would_not_work_under_the_policy_is_said(tmp_path: Path) -> None:
    (tmp_path / "new.html").write_text("<html><head></head><body onload='start()'></body></html>")
    said = list(apply_policy(tmp_path))
    assert said == ["new.html has an event handler, onload, which its content security policy forbids"]
