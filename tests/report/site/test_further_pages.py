"""Pages that plugins add by the hook `hpml_pages`: in the navigation and the search, and each on
its own when it raises."""

from __future__ import annotations

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

@hookimpl
def hpml_pages():
    return [SitePage("Broken", "raises", "broken.html", fail), SitePage("Added", "more words", "added.html", write)]
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


def test_pages_of_plugins_stand_in_the_navigation_and_one_that_raises_costs_itself(
    project: Project,
) -> None:
    plugins = {"adding": ADDING, "raising": RAISING, "strange": STRANGE}
    entries = "".join(f"  - {{name: {name}, path: {name}.py}}\n" for name in plugins)
    (project.folder / "registry.yaml").write_text(f"version: 1\nplugins:\n{entries}")
    for name, text in plugins.items():
        (project.folder / f"{name}.py").write_text(text)
    project.add(H200, 0, {TIME["name"]: [around(1e-5)] * 4})
    said = project.publish()

    assert "page broken.html of a plugin: ValueError: no such thing" in said
    assert "hpml_pages of plugin 'raising': ZeroDivisionError" in said
    assert (
        "hpml_pages of plugin 'strange': returned str, not a list of SitePage values"
        in said
    )
    assert "ValueError: no such thing" in (project.html / "broken.html").read_text()
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
