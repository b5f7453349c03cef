"""The documentation as a site: it builds without a broken link, loads nothing from other hosts, and
its reference has every name. What only a publisher of the project knows is flagged until set."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml
from click import Context
from support import ROOT, unavailable

import hpml_plugins
from hpml_plugins.cli import group

HANDBOOK = ROOT / "benchmarks" / "handbook"
#: What only the publisher knows: (file, the text that stands for it).
PLACEHOLDERS = [
    ("docs/SECURITY.md", "SECURITY_ADDRESS"),
    ("docs/CODE_OF_CONDUCT.md", "CONDUCT_ADDRESS"),
    ("CITATION.cff", "AUTHOR_NAME"),
    ("CITATION.cff", "REPOSITORY_ADDRESS"),
    ("README.md", "REPOSITORY_ADDRESS"),
    ("docs/CONTRIBUTING.md", "REPOSITORY_ADDRESS"),
    ("docs/cluster.md", "REPOSITORY_ADDRESS"),
    ("docs/gpu-nodes.md", "REPOSITORY_ADDRESS"),
    ("docs/package.md", "REPOSITORY_ADDRESS"),
    ("docs/pull-requests.md", "REPOSITORY_ADDRESS"),
    ("docs/pull-requests.md", "REPOSITORY_OWNER"),
    ("docs/your-repository.md", "REPOSITORY_ADDRESS"),
    ("pyproject.toml", "AUTHOR_NAME"),
    ("pyproject.toml", "REPOSITORY_ADDRESS"),
]


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"handbook_{name}", HANDBOOK / f"{name}.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("material") is None:
        unavailable("no mkdocs-material: pip install 'hpml-plugins[docs]'")
    folder = tmp_path_factory.mktemp("handbook") / "docs"
    _module("plugin").build(
        folder
    )  # strict: a link or anchor that leads nowhere is an error
    return folder


def _links(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r'(?:href|src)="([^"]+)"', text)


def test_every_link_of_the_site_leads_to_a_page_of_it_or_of_the_published_site(
    site: Path,
) -> None:
    published = {
        f"questions-{path.stem}.html" for path in (HANDBOOK.parent / "pages").iterdir()
    }
    pages = list(site.rglob("*.html"))
    assert len(pages) >= 40
    for page in pages:
        for link in _links(page):
            target = link.partition("#")[0]
            if not target or re.match(r"\w+:", target) or page.name == "404.html":
                continue
            there = (page.parent / target).exists()
            outside = target.removeprefix("../")
            assert there or outside in published, f"{page.name} links to {link}"


def test_the_site_loads_nothing_from_other_hosts_and_is_small(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)"', text)
        loaded += re.findall(r'<link[^>]+rel="stylesheet"[^>]+href="(https?:[^"]+)"', text)
        assert loaded == [], page.name
    files = [path for path in site.rglob("*") if path.is_file()]
    assert len(files) <= 100
    assert sum(path.stat().st_size for path in files) <= 4_000_000


def test_the_reference_has_every_public_name_and_command(site: Path) -> None:
    api = (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert [
        name for name in hpml_plugins.__all__ if f'id="{name.lower()}"' not in api
    ] == []
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert [
        name
        for name in group.list_commands(Context(group))
        if f"Usage: hpml {name}" not in commands
    ] == []


def test_the_published_site_has_the_documentation_and_finds_it(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = _module("plugin")
    written: dict[str, list[tuple[str, str]]] = {}
    asked: list[Path] = []

    def make_folder(
        address: str, make: Callable[[Path], None], made_of: Iterable[Path]
    ) -> Path:
        asked[:] = made_of
        if not (tmp_path / address).exists():
            make(tmp_path / address)
        return tmp_path / address

    def write(chart: str, width: int = 1) -> list[tuple[str, str, str, str]]:
        address = "workload-memory.html#memory.kept"
        picture = "figures/memory-kept.svg"
        figure = SimpleNamespace(
            anchor="memory.kept",
            address=address,
            chart=chart,
            picture=picture,
            size=(width, 1),
        )
        published = SimpleNamespace(
            make_folder=make_folder,
            plugins=[SimpleNamespace(figures=[figure])],
            write=lambda _, address, documents: written.update({address: documents}),
        )
        return list(plugin.write(published))

    monkeypatch.setattr(plugin, "build", lambda folder: shutil.copytree(site, folder))
    found = write("figures/memory-kept.js")
    assert asked == [HANDBOOK, ROOT / "docs"]
    (documents,) = written.values()
    assert ("Glossary", "docs/glossary.html") in documents
    assert all((tmp_path / address).exists() for _, address in documents)
    assert any(title == "Two regimes: boost and sustained" for _, title, _, _ in found)
    text = (tmp_path / "docs/memory.html").read_text()
    assert 'data="../figures/memory-kept.svg"' in text
    assert 'href="../workload-memory.html#memory.kept"' in text
    # a figure that nothing was measured for keeps the command that draws it
    assert "<code>hpml plot memory.batch</code>" in text
    # what is taken over from the site that is replaced gets the charts of today, in files of its
    # own
    shutil.copytree(tmp_path / "docs", tmp_path / "old", copy_function=os.link)
    assert write("figures/memory-kept.js", 2) == found
    drawn = (tmp_path / "docs/memory.html").read_text()
    assert drawn == text.replace('width="1"', 'width="2"') != text
    assert (tmp_path / "old/memory.html").read_text() == text
    write("")
    assert (tmp_path / "docs/memory.html").read_text() == (site / "memory.html").read_text()


def test_every_document_of_a_plugin_has_a_chart(site: Path) -> None:
    chart = _module("plugin")._CHART
    for path in (ROOT / "docs").glob("*.md"):
        if "\n## Repeat it\n" in path.read_text():
            assert chart.search((site / f"{path.stem}.html").read_text()), path.name


def test_the_fields_of_a_record_are_explained(site: Path) -> None:
    text = (site / "reference" / "record.html").read_text(encoding="utf-8")
    row = re.search(r"<tr>\s*<td><code>started</code></td>.*?</tr>", text, re.DOTALL)
    assert row and "Unix time" in row[0]


def test_every_environment_variable_is_documented() -> None:
    if importlib.util.find_spec("mkdocs") is None:
        unavailable("no mkdocs: pip install 'hpml-plugins[docs]'")
    told = {
        name
        for variables in _module("reference").ENVIRONMENT.values()
        for name in variables
    }
    read = {
        name
        for path in (ROOT / "hpml_plugins").rglob("*")
        if path.suffix in (".py", ".jinja", ".sh")
        for name in re.findall(r"\bHPML_[A-Z0-9_]+", path.read_text(encoding="utf-8"))
    }
    assert told == read


def test_no_other_file_waits_for_the_publisher() -> None:
    documents = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.*")]
    marks = re.compile(
        r"\b(?:(?:SECURITY|CONDUCT|REPOSITORY)_ADDRESS|AUTHOR_NAME|REPOSITORY_OWNER)\b"
        r"|(?<=clone )ADDRESS|\bOWNER\b"
    )
    found = {
        (str(path.relative_to(ROOT)), mark)
        for path in documents
        if path.suffix in (".md", ".cff", ".toml", ".yml")
        for mark in marks.findall(path.read_text(encoding="utf-8"))
    }
    assert found == set(PLACEHOLDERS)


@pytest.mark.xfail(
    strict=True, reason="set it before publishing, then remove its line above"
)
@pytest.mark.parametrize(("file", "placeholder"), PLACEHOLDERS)
def test_the_publisher_has_set(file: str, placeholder: str) -> None:
    assert placeholder not in (ROOT / file).read_text(encoding="utf-8")


def test_the_issue_forms_and_the_citation_are_what_hosts_read() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) == 4
    for path in forms:
        form = yaml.safe_load(path.read_text())
        if path.name != "config.yml":
            assert {"name", "description", "body"} <= set(form)
            assert {each["type"] for each in form["body"]} <= {"textarea", "input"}
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_nothing_is_misspelt() -> None:
    if importlib.util.find_spec("codespell_lib") is None:
        unavailable("no codespell: pip install 'hpml-plugins[test]'")
    command = [sys.executable, "-m", "codespell_lib", "--dictionary=-"]
    done = subprocess.run(
        [*command, "--dictionary=tests/wording.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
