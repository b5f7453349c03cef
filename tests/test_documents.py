"""What every document in docs/ keeps to: its length, and whom it is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT

from hpml_plugins.report.site import point_details
from hpml_plugins.report.site.data_files import MOST_RECORDS
from hpml_plugins.tools.pull.command import command

DOCUMENTS = sorted((ROOT / "docs").rglob("*.md"))
#: Documents of one plugin: what it measures, how, the result in three sentences, how to repeat it.
OF_PLUGINS = [each for each in DOCUMENTS if "\n## Repeat it\n" in each.read_text()]


def _words(path: Path) -> int:
    """As many as are read: comments, which say where a quoted number is from, are not shown."""
    shown = re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return len(shown.split())


def test_the_documents_are_at_most_30000_words() -> None:
    assert sum(map(_words, DOCUMENTS)) <= 30_000


def test_a_document_of_a_plugin_tells_its_result_and_how_to_repeat_it() -> None:
    told = (ROOT / "benchmarks/handbook/mkdocs.yml").read_text()
    listed = told.partition("- Plugins:\n")[2].partition("- Reference:")[0]
    assert sorted(re.findall(r"- (\S+\.md)", listed)) == [path.name for path in OF_PLUGINS]
    assert [path.name for path in OF_PLUGINS if "\n## Result" not in path.read_text()] == []


def test_documents_agree_how_many_records_a_site_offers() -> None:
    texts = [path.read_text() for path in DOCUMENTS]
    texts += [str(command.help)]
    told = re.findall(
        r"newest\s+(\d+)\s+Records\s+(?:of\s+each|on\s+each)", "\n".join(texts)
    )
    assert len(told) >= 3 and set(map(int, told)) == {MOST_RECORDS}


def test_the_page_on_the_site_names_how_many_records_a_table_has() -> None:
    text = (ROOT / "docs/reading-the-site.md").read_text()
    assert re.findall(r"newest (\d+) of a point", text) == [str(point_details.MOST_RECORDS)]


def test_a_document_of_a_plugin_is_at_most_600_words() -> None:
    assert {path.name: _words(path) for path in OF_PLUGINS if _words(path) > 600} == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_says_in_two_lines_whom_it_is_for(path: Path) -> None:
    title, who, *_ = re.split(r"\n{2,}", path.read_text(encoding="utf-8"))
    assert title.startswith("# ")
    assert re.match(r"For[: ]", who) and len(who.splitlines()) <= 2
