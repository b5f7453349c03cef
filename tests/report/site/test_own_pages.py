"""Pages that plugins make: framed, linked, and left out with the reason where they raise or load from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support import TOY

from hpml_plugins.host import Host
from hpml_plugins.model.record import Record
from hpml_plugins.report.site.plugin_pages import write_plugin_pages
from hpml_plugins.store import append_record

PAGED = (
    TOY.replace("Metric, hookimpl", "Metric, Page, hookimpl")
    + """

def body(records):
    return f"<p>{len(records)} records</p>"

@hookimpl
def hpml_pages():
    return [
        Page("own", "Its own page", ("toy",), body),
        Page("far", "From elsewhere", ("toy",), lambda records: '<script src="https://example.org/x.js"></script>'),
        Page("bad", "Raises", ("toy",), lambda records: 1 / 0),
        Page("own", "Again", ("toy",), body),
    ]
"""
)


def test_a_page_is_framed_and_linked_and_the_others_are_named(host_of: Callable[..., Host], tmp_path: Path) -> None:
    host = host_of("version: 1\nplugins:\n  - {name: toy, path: toy.py}\n", toy=PAGED)
    source = {"path": "toy.py", "sha256": "a" * 64}
    record = Record(
        benchmark="toy", plugin="toy", version="1", params={"size": 10}, status="ok", source=source, machine="m"
    )
    append_record(tmp_path / "results" / "m" / "records" / "c.jsonl", record)
    html = tmp_path / "html"
    html.mkdir()
    _, problems = write_plugin_pages(host.plugins, tmp_path / "results", html, "project", {})
    assert "<p>1 records</p>" in (html / "plugin-toy-own.html").read_text()
    page = (html / "plugin-toy.html").read_text()
    assert '<a href="plugin-toy-own.html">Its own page</a>' in page
    assert "path toy.py" in page
    assert "aaaaaaaaaaaa" in page
    assert sorted(path.name for path in html.glob("plugin-toy-*.html")) == ["plugin-toy-own.html"]
    assert [problem.partition("plugin 'toy': ")[2] for problem in problems] == [
        "page 'far' would load https://example.org/x.js from the network; left out",
        "ZeroDivisionError: division by zero",
        "two pages called 'own'; the first stands",
    ]
