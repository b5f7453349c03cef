"""What every document in docs/ keeps to: its length, and whom it is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT

DOCUMENTS = sorted((ROOT / "docs").rglob("*.md"))
#: Documents of one plugin: what it measures, how, the result in three sentences, how to repeat it.
OF_PLUGINS = [each for each in DOCUMENTS if "\n## Repeat it\n" in each.read_text()]


def _words(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").split())


def test_the_documents_are_at_most_30000_words() -> None:
    assert sum(map(_words, DOCUMENTS)) <= 30_000


def test_a_document_of_a_plugin_is_at_most_600_words() -> None:
    assert len(OF_PLUGINS) >= 13
    assert {path.name: _words(path) for path in OF_PLUGINS if _words(path) > 600} == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_says_in_two_lines_whom_it_is_for(path: Path) -> None:
    title, who, *_ = re.split(r"\n{2,}", path.read_text(encoding="utf-8"))
    assert title.startswith("# ")
    assert re.match(r"For[: ]", who) and len(who.splitlines()) <= 2
