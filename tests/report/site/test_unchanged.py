"""A site stays as it is where nothing that it is made of has changed since it was published."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from repositories import git, make_repository

from hpml_plugins.report import kept
from hpml_plugins.report.kept import package_digest
from hpml_plugins.report.site import unchanged
from hpml_plugins.report.site.manifest import NAME as MANIFEST
from hpml_plugins.report.site.manifest import complete_manifest, write_manifest
from hpml_plugins.report.site.previous import replacing
from hpml_plugins.store import CommitOrder


class Conf:
    """What asv's configuration has."""

    def __init__(self, folder: Path) -> None:
        self.repo = str(folder)
        self.html_dir = str(folder / "html")
        self.project = "p"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conf:
    folder = tmp_path / "project"
    folder.mkdir()
    make_repository(folder)
    (folder / "results" / "m").mkdir(parents=True)
    (folder / "results" / "m" / "a.jsonl").write_text("1\n")
    (folder / ".gitignore").write_text("results\nhtml\nignored\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    monkeypatch.chdir(folder)
    return Conf(folder)


def digest(conf: Conf) -> str:
    return digest_of(conf, CommitOrder.of({}), None)


def digest_of(conf: Conf, order: CommitOrder, commits: str | None) -> str:
    return unchanged.digest_inputs(conf, order, commits, Path("site"), Path("results"))


def test_the_digest_changes_with_all_that_pages_are_made_of(
    conf: Conf, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digest(conf)
    assert first
    conf.html_dir = "elsewhere"
    Path("ignored").write_text("1")
    Path("site").mkdir()
    Path("site", "badge.svg").write_text("of today")
    assert digest(conf) == first
    found = {first}

    def differs() -> bool:
        new = digest(conf)
        is_new = new not in found
        found.add(new)
        return is_new

    (Path("results") / "m" / "a.jsonl").write_text("2\n")
    assert differs()
    (Path("results") / "m" / "b.jsonl").write_text("1\n")
    assert differs()
    for text in ("prices: {}", "prices: {NVIDIA H200: 4}"):
        Path("gpu-prices.yaml").write_text(text)
        assert differs()
    monkeypatch.setenv("HPML_PROFILE", "quick")
    assert differs()
    conf.project = "another"
    assert differs()
    git(Path(), "add", ".")
    git(Path(), "commit", "-qm", "second")
    assert differs()
    git(Path(), "tag", "-m", "t", "t")
    assert differs()
    assert digest_of(conf, CommitOrder.of({"c": 0}), None) not in found
    assert digest_of(conf, CommitOrder.of({}), "HEAD^..") not in found
    assert len(found) == 9


def test_the_digest_changes_with_a_plugin_outside_of_the_project(
    conf: Conf, tmp_path: Path
) -> None:
    plugin = tmp_path / "beside.py"
    plugin.write_text("1")
    Path("registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: beside, path: ../beside.py}\n"
    )
    first = digest(conf)
    plugin.write_text("2")
    assert digest(conf) not in (first, "")


def test_without_git_everything_counts_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert digest(Conf(tmp_path)) == ""


def test_a_repository_that_is_elsewhere_may_have_new_commits(conf: Conf) -> None:
    conf.repo = "https://localhost/repository.git"
    assert digest(conf) == ""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A site that was published."""
    site = tmp_path / "old"
    (site / "data").mkdir(parents=True)
    (site / "index.html").write_text("our first page")
    (site / "index.json").write_text('{"benchmarks": {}}')
    (site / "info.json").write_text("{}")
    (site / "data" / "1.js").write_text("1")
    more = {
        "problems": ["a plugin said so"],
        "made": {"data": "made of", "index.html": "of it", "gone": ""},
    }
    write_manifest(site, ["index.html"], [], lasts=True, **more)
    complete_manifest(site, "d")
    return site


def test_a_site_that_was_made_of_the_same_is_unchanged(old: Path) -> None:
    with replacing(old):
        assert unchanged.unchanged_problems("d") == ["a plugin said so"]
        assert unchanged.unchanged_problems("") is None


def test_a_site_that_lacks_what_failed_is_published_again(old: Path) -> None:
    write_manifest(old, ["index.html"], [], lasts=False)
    complete_manifest(old, "d")
    with replacing(old):
        assert unchanged.unchanged_problems("d") is None
        assert unchanged.unchanged_problems("") is None


def test_a_folder_or_a_file_that_was_made_of_the_same_is_taken_over_alone(
    tmp_path: Path, old: Path
) -> None:
    site = tmp_path / "new"
    with replacing(old):
        unlike = (("data", "of another"), ("dat", "made of"), ("", ""), ("gone", ""))
        for address, digest in unlike:
            assert not unchanged.take_over_made(address, digest, site)
        assert not site.exists()
        assert unchanged.take_over_made("data", "made of", site)
        assert [path.name for path in site.rglob("*.*")] == ["1.js"]
        assert (site / "data" / "1.js").read_text() == "1"
        assert unchanged.take_over_made("index.html", "of it", site)
    assert (site / "index.html").read_text() == "our first page"


@pytest.mark.parametrize(
    "damage", ["missing", "cut", "written to", "manifest", "cut manifest", "no site"]
)
def test_a_site_is_published_again_where_something_differs(
    tmp_path: Path, old: Path, damage: str
) -> None:
    file, manifest = old / "data" / "1.js", old / MANIFEST
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_text("")
        os.utime(file, (0, 0))
    elif damage == "written to":
        file.write_text("2")
        later = manifest.stat().st_mtime + 1
        os.utime(file, (later, later))
    elif damage == "manifest":
        manifest.unlink()
    elif damage == "cut manifest":
        manifest.write_bytes(manifest.read_bytes()[:-20])
    with replacing(tmp_path / "none" if damage == "no site" else old):
        assert unchanged.unchanged_problems("d") is None
        assert not unchanged.take_over_made("data", "made of", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_byte_code_that_is_being_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_PACKAGE", tmp_path)
    (tmp_path / "code.py").write_text("x = 1")
    before = package_digest.__wrapped__()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "code.cpython-311.pyc.139852").write_bytes(b"half")
    assert package_digest.__wrapped__() == before
    (tmp_path / "code.py").write_text("x = 2")
    assert package_digest.__wrapped__() != before
