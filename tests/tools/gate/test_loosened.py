"""A change that loosens its own gate is reported; foreign text is escaped in a comment."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from repositories import make_repository

from hpml_plugins.model import Node
from hpml_plugins.registry import Registry, read_registry
from hpml_plugins.tools.gate.loosened import find_loosened, registry_of_base
from hpml_plugins.tools.gate.pull_request import GateResult, as_comment, plain_text
from hpml_plugins.tools.gate.sides import Commits
from hpml_plugins.tools.gate.verdicts import GatedValue, _Mean

ENTRY = (
    "{name: p, path: p.py, gate: {sort: 3, step: {time: 4}}, sampling: {budget: 2, rounds: 5},"
    " grid: {sort: {n: [1, 2, 3]}}, timeout: 60, profiles: {quick: {sort: {n: [1, 2]}}}}"
)


NODE = Node(os="L", arch="x", cpu="C", num_cpu=1, ram=1.0, python="3")


def registry(folder: Path, *entries: str) -> Registry:
    file = folder / "registry.yaml"
    file.write_text(
        "version: 1\nplugins:\n" + "".join(f"  - {entry}\n" for entry in entries)
    )
    return read_registry(file)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sort: 3", "sort: 30", "the allowed slow-down of sort is raised from 3 to 30 %"),
        ("sort: 3, ", "", "the allowed slow-down of sort is raised from 3 to 5 %"),
        (
            "time: 4",
            "time: 50",
            "the allowed slow-down of step.time is raised from 4 to 50 %",
        ),
        (
            "step: {time: 4}",
            "step: {time: 4, size: 9}",
            "of step.size is raised from 5 to 9 %",
        ),
        ("sort: 3", "sort: 3, other: 99", "the allowed slow-down of other is raised"),
        ("budget: 2", "budget: 0.1", "sampling budget was 2, is 0.1"),
        ("rounds: 5", "rounds: 2", "sampling rounds was 5, is 2"),
        (
            "rounds: 5",
            "rounds: 5, precision: 0.5",
            "sampling precision was the default, is 0.5",
        ),
        ("n: [1, 2, 3]", "n: [1, 3]", "sort is no longer measured for n=2"),
        ("grid: {", "grid: {step: {m: [1]}, ", "the grid of step is restricted: m"),
        ("timeout: 60", "timeout: 1", "the timeout was 60.0, is 1.0"),
        ("n: [1, 2]}}", "n: [1]}}", "profile quick chooses other points"),
        ("path: p.py", "path: p.py, enabled: false", "not enabled"),
        ("name: p,", "name: q,", "no longer in the registry"),
    ],
)
def test_each_rule_that_is_loosened_is_named(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    base = registry(tmp_path, ENTRY)
    assert old in ENTRY
    (line,) = find_loosened(base, registry(tmp_path, ENTRY.replace(old, new)), "quick")
    assert said in line
    assert line.startswith("plugin p: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sort: 3", "sort: 2"),
        ("gate: {", "gate: {other: 4, "),
        ("budget: 2", "budget: 20"),
        ("n: [1, 2, 3]", "n: [1, 2, 3, 4]"),
        ("p.py", "moved.py"),
    ],
)
def test_a_rule_that_is_tightened_or_kept_is_not(
    old: str, new: str, tmp_path: Path
) -> None:
    base = registry(tmp_path, ENTRY)
    changed = registry(tmp_path, ENTRY.replace(old, new), "{name: more, path: m.py}")
    assert find_loosened(base, changed, "quick") == []


def test_the_registry_of_the_base_is_read_from_its_commit(tmp_path: Path) -> None:
    head = registry(tmp_path, ENTRY)
    make_repository(tmp_path, "x")
    registry(tmp_path, ENTRY.replace("sort: 3", "sort: 30"))
    found = registry_of_base(head, tmp_path, "HEAD")
    assert found
    assert found.plugins[0].gate["sort"] == 3
    assert registry_of_base(head, tmp_path, "0" * 40) is None


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<!-- hpml gate -->",
    "@everyone",
    "@org/team",
    "#123",
    "!45",
    "a | b",
    "`code`",
    "```",
    "[link](https://evil.example)",
    "![image](https://evil.example/x.png)",
    "https://evil.example",
    "www.evil.example",
    "<https://evil.example>",
    "**bold** _it_ ~~gone~~",
    "# heading",
    "- list",
    "&lt;b&gt; &#64;everyone",
    "line\n\n# break",
    "\u202eturned",
    "$$x$$",
    "\\",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_text_is_escaped_in_a_comment(text: str) -> None:
    result = result_with(text)
    assert result.headline.startswith("refused")
    body = as_comment(result)
    made = (
        MarkdownIt("commonmark", {"html": True})
        .enable(["table", "strikethrough"])
        .render(body)
    )
    tags = set(re.findall(r"<(/?\w+)", made))
    assert tags <= {"h3", "/h3", "p", "/p", "ul", "/ul", "li", "/li", "code", "/code"}
    seen = html.unescape(made)
    assert not re.search(r"@\w|(?<!&)#\d|!\d", re.sub(r"&#\d+;", "", seen))
    assert "://" not in body
    assert "www." not in body
    assert len(body.splitlines()) == len(as_comment(result_with("x")).splitlines())


def result_with(text: str) -> GateResult:
    """A refused result with this text in every place that foreign text can reach."""
    result = GateResult(Commits("a" * 40, "b" * 40, False), NODE, f"m {text}")
    result.broken = [f"sort {text}"]
    result.loosened = [text]
    result.left_out = {text: 1}
    return result


def test_text_cannot_end_a_cell_of_a_table() -> None:
    table = "| a | b |\n| --- | --- |\n" + f"| {plain_text('x | y')} | 1 |\n"
    made = MarkdownIt("commonmark").enable("table").render(table)
    assert made.count("<td>") == 2
    assert "x | y" in html.unescape(made)


def test_a_change_that_loosens_its_own_gate_is_not_judged() -> None:
    within = GatedValue("b", "", "time", "s", 1.0, 1.0, 0.05, _Mean(0.0, 0.01, 1.0))
    result = GateResult(Commits("a" * 40, "b" * 40, False), NODE, "m", [within])
    assert result.headline.startswith("passed")
    result.loosened = ["plugin p: the timeout was 60.0, is 1.0"]
    assert (
        result.headline == "not judged: 1 within the budget, 1 rule loosened by this change"
    )
    assert any("Loosened by this change: plugin p" in line for line in result.describe())
