"""Pages that plugins add by the hook `hpml_pages`: in the navigation and the search, and each on
its own when it raises."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from browsing import read_data
from site_history import H200, TIME, Project, around

ADDING = '''
from hpml_plugins import SitePage, hookimpl

TEXT = """{% extends "base.html" %}{% block title %}Added{% endblock %}
{% block header %}<h1>{{ name }}</h1>{% endblock %}"""

def write(site):
    site.write(TEXT, "added.html", name="<b>" + site.project)
    return [("note", "a note of ours", "more", "added.html#note")]

def fail(site):
    raise ValueError("no such thing")

def leave(site):
    raise SystemExit("bye")

@hookimpl
def hpml_pages():
    return [SitePage("Broken", "raises", "broken.html", fail), SitePage("Left", "exits", "left.html", leave), SitePage("Added", "more words", "added.html", write)]
'''  # noqa: E501
RAISING = """
from hpml_plugins import hookimpl

@hookimpl
def hpml_pages():
    return [1 / 0]
"""
STRANGE = """
from hpml_plugins import hookimpl

@hookimpl
def hpml_pages():
    return ["a page"]
"""
MAKING = """
import time
from pathlib import Path

from hpml_plugins import SitePage, hookimpl

SOURCES = Path(__file__).parent / "sources"

def make(folder):
    folder.mkdir()
    (folder / "text.html").write_text((SOURCES / "text.md").read_text())
    (folder / "made.txt").write_text(f"{time.time_ns():030}")

def write(site):
    folder = site.make_folder("made", make, [SOURCES])
    site.write("{% extends 'base.html' %}", "making.html")
    return ()

@hookimpl
def hpml_pages():
    return [SitePage("Making", "makes", "making.html", write)]
"""


@pytest.mark.slow
def test_a_folder_is_made_anew_where_what_it_is_made_of_changed_or_a_file_is_gone(
    project: Project,
) -> None:
    (project.folder / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: making, path: making.py}\n"
    )
    (project.folder / "making.py").write_text(MAKING)
    source = project.folder / "sources" / "text.md"
    source.parent.mkdir()
    source.write_text("first")
    text, made = (project.html / "made" / name for name in ("text.html", "made.txt"))
    project.add(H200, 0, {TIME["name"]: [around(1e-5)] * 4})
    project.publish()
    first = made.read_text()
    project.add(H200, 1, {TIME["name"]: [around(1e-5)] * 4})
    project.publish()
    assert (made.read_text(), text.read_text()) == (first, "first")

    source.write_text("second")
    project.publish()
    second = made.read_text()
    assert second > first and text.read_text() == "second"
    text.unlink()
    project.publish()
    assert made.read_text() > second and text.read_text() == "second"


def test_pages_of_plugins_stand_in_the_navigation_and_one_that_raises_costs_itself(
    project: Project,
) -> None:
    outside = ADDING.replace("added.html", "../out.html").replace("Added", "Outside")
    plugins = {
        "adding": ADDING,
        "raising": RAISING,
        "strange": STRANGE,
        "outside": outside,
    }
    entries = "".join(f"  - {{name: {name}, path: {name}.py}}\n" for name in plugins)
    (project.folder / "registry.yaml").write_text(f"version: 1\nplugins:\n{entries}")
    for name, text in plugins.items():
        (project.folder / f"{name}.py").write_text(text)
    project.add(H200, 0, {TIME["name"]: [around(1e-5)] * 4})
    said = project.publish()

    assert "page broken.html of a plugin: ValueError: no such thing" in said
    assert "page left.html of a plugin: SystemExit: bye" in said
    assert (
        "hpml_pages of plugin 'outside': page 'Outside': address '../out.html' is" in said
    )
    assert not (project.html.parent / "out.html").exists()
    assert "hpml_pages of plugin 'raising': ZeroDivisionError" in said
    assert (
        "hpml_pages of plugin 'strange': returned str, not a list of SitePage values"
        in said
    )
    assert "ValueError: no such thing" in (project.html / "broken.html").read_text()
    first = html.unescape((project.html / "index.html").read_text())
    assert '<a href="#problems">5 problems</a> while building this site' in first
    assert "hpml_pages of plugin 'raising': ZeroDivisionError" in first
    added = (project.html / "added.html").read_text()
    assert "<h1>&lt;b&gt;hpml-plugins</h1>" in added
    assert '<a href="added.html" aria-current="page">Added</a>' in added
    for page in ("index.html", "changes.html", "workloads.html", "asv.html"):
        assert '<a href="added.html">Added</a>' in (project.html / page).read_text(), page
    entries = read_data(project.html, "search-index.js")["entries"]
    assert ["page", "Added", "more words", "added.html"] in entries
    assert ["note", "a note of ours", "more", "added.html#note"] in entries
    # the pages of the plugin `course` are there with it alone
    assert not (project.html / "questions.html").exists()
    assert "questions.html" not in (project.html / "index.html").read_text()


def test_a_plugin_replaces_no_page_of_the_site(project: Project) -> None:
    (project.folder / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: taking, path: taking.py}\n"
    )
    taking = ADDING.replace("added.html", "index.html")
    (project.folder / "taking.py").write_text(taking)
    project.add(H200, 0, {TIME["name"]: [around(1e-5)] * 4})
    said = project.publish()
    assert "page index.html of a plugin: the site has one of that name; rename it" in said
    assert "&lt;b&gt;" not in (project.html / "index.html").read_text()


def test_a_plugin_that_cannot_be_loaded_is_named_on_the_first_page(
    project: Project,
) -> None:
    (project.folder / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: absent, path: absent.py}\n"
    )
    home = Path.home() / "own"
    (project.folder / "absent.py").write_text(f"raise ValueError('<b>&{home}')")
    project.publish()
    first = (project.html / "index.html").read_text()
    assert '<a href="#problems">1 problem</a> while building this site' in first
    assert "<b>&" not in first and str(home) not in first
    assert "plugin 'absent' cannot be loaded: ValueError: <b>&~/own" in html.unescape(first)
