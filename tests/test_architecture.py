"""What docs/architecture.md promises of the code: its names, and that asv has every value."""

from __future__ import annotations

import ast
import re

import counts
import pytest
from support import ROOT

from hpml_plugins.plugins.course.questions import FOLDER

#: What has a name in a file.
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


def test_asv_has_every_metric_value_of_the_records() -> None:
    missing, total = counts.count_missing(ROOT / "results")
    assert (missing, total > 5000) == (0, True)


def test_public_classes_of_core_and_tools_have_names_of_their_own() -> None:
    assert counts.classes_of_one_name(counts.core_and_tools()) == {}


def test_the_stations_from_a_step_to_a_verdict_are_in_their_files() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 11))
    for _, where in rows:
        for file, name in re.findall(r"`([a-z_/]+\.py)`(?:, `(?:\w+\.)?(\w+)`)?", where):
            tree = ast.parse((counts.PACKAGE / file).read_text(encoding="utf-8"))
            defined = {
                node.name for node in ast.walk(tree) if isinstance(node, DEFINITIONS)
            }
            assert not name or name in defined, where


#: These documents name files of a reader's own, or of other packages.
NAME_OTHER_FILES = {"docs/your-repository.md", "benchmarks/pages/quantization.md"}
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / FOLDER).glob("*.md"))]


@pytest.mark.parametrize(
    "page", sorted({str(path.relative_to(ROOT)) for path in PAGES} - NAME_OTHER_FILES)
)
def test_paths_that_the_docs_name_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|js|yaml|md))`", text):
        found = [ROOT / name, ROOT / "tests" / name, ROOT / "hpml_plugins" / name]
        assert any(path.exists() for path in found), name


def test_no_test_waits_for_a_process_for_less_than_a_loaded_machine_needs() -> None:
    """They wait for `support.PATIENCE`."""
    short = re.compile(r"\.wait\(\d.*|\.communicate\(timeout=\d.*")
    found = {
        path.name: short.findall(path.read_text(encoding="utf-8"))
        for path in (ROOT / "tests").rglob("*.py")
    }
    assert {name: calls for name, calls in found.items() if calls} == {}
