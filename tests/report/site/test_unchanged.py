"""Pages are taken over from the site that is replaced where nothing that they are made of has
changed."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from repositories import git, make_repository

from hpml_plugins.report.site import unchanged
from hpml_plugins.report.site.manifest import NAME as MANIFEST
from hpml_plugins.report.site.manifest import write_manifest
from hpml_plugins.report.site.previous import replacing
from hpml_plugins.store import CommitOrder


class Conf:
    """What asv's configuration has."""

    def __init__(self, folder: Path) -> None:
        self.results_dir = str(folder / "results")
        self.html_dir = str(folder / ".html-staged" / "site")
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
    return unchanged.digest_inputs(conf, CommitOrder.of({}), {})


def test_the_digest_changes_with_all_that_pages_are_made_of(
    conf: Conf, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digest(conf)
    assert first
    staged = Path(conf.html_dir)
    staged.mkdir(parents=True)
    (staged / "index.html").write_text("asv's")
    Path("ignored").write_text("1")
    site = Path("site").resolve()
    site.mkdir()
    (site / "badge.svg").write_text("of today")
    with replacing(site):
        assert digest(conf) == first
    shutil.rmtree(site)
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
    assert unchanged.digest_inputs(conf, CommitOrder.of({"c": 0}), {"c": 1.0}) not in found
    assert len(found) == 8


def test_without_git_nothing_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert digest(Conf(tmp_path)) == ""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A site that was published."""
    site = tmp_path / "old"
    (site / "data").mkdir(parents=True)
    (site / "index.html").write_text("asv's")
    (site / "regressions.json").write_text("{}")
    before, entries = unchanged.written(site), {"a.track_time": {"name": "a"}}
    (site / "asv.html").write_text("asv's")
    (site / "index.html").write_text("our first page")
    (site / "data" / "1.js").write_text("1")
    (site / "regressions.json").unlink()
    now = {"a.track_time": {"name": "a", "hpml_machines": ["m"]}}
    write_manifest(site, ["index.html"], ["a.track_time"])
    unchanged.remember(
        "d", before, entries, site, now, ["a plugin said so"], {"data": "made of"}
    )
    return site


def staged(folder: Path) -> Path:
    """What asv writes before our pages."""
    site = folder / "new"
    site.mkdir(parents=True)
    (site / "index.html").write_text("asv's")
    (site / "regressions.json").write_text("{}")
    return site


def test_pages_and_what_asv_was_told_are_taken_over(tmp_path: Path, old: Path) -> None:
    site, entries = staged(tmp_path), {"a.track_time": {"name": "a"}}
    with replacing(old):
        assert unchanged.take_over_pages("d", site, entries) == ["a plugin said so"]
    names = {"asv.html", "index.html", "data/1.js", MANIFEST, unchanged.NAME}
    assert unchanged.written(site).keys() == names
    for name in names - {MANIFEST}:
        assert (site / name).read_bytes() == (old / name).read_bytes()
    assert entries == {"a.track_time": {"name": "a", "hpml_machines": ["m"]}}
    (site / MANIFEST).write_text("completed")
    assert (old / MANIFEST).read_text() != "completed"


def test_a_folder_that_was_made_of_the_same_is_taken_over_alone(
    tmp_path: Path, old: Path
) -> None:
    site = staged(tmp_path)
    with replacing(old):
        for address, digest in (("data", "of another"), ("dat", "made of"), ("", "")):
            assert not unchanged.take_over_folder(address, digest, site)
        assert not (site / "data").exists()
        assert unchanged.take_over_folder("data", "made of", site)
    assert (site / "data" / "1.js").read_text() == "1"
    assert (site / "index.html").read_text() == "asv's"
    (old / "data" / "1.js").unlink()
    with replacing(old):
        assert not unchanged.take_over_folder("data", "made of", staged(tmp_path / "data"))


@pytest.mark.parametrize(
    "damage",
    ["digest", "missing", "cut", "state", "not gzip", "cut gzip", "manifest", "no site"],
)
def test_pages_are_written_where_something_differs(
    tmp_path: Path, old: Path, damage: str
) -> None:
    if damage == "missing":
        (old / "data" / "1.js").unlink()
    elif damage == "cut":
        (old / "index.html").write_text("our")
    elif damage == "state":
        (old / unchanged.NAME).write_bytes(gzip.compress(b"["))
    elif damage == "not gzip":
        (old / unchanged.NAME).write_text("[")
    elif damage == "cut gzip":
        (old / unchanged.NAME).write_bytes((old / unchanged.NAME).read_bytes()[:-20])
    elif damage == "manifest":
        (old / MANIFEST).unlink()
    site = staged(tmp_path)
    before = unchanged.written(site)
    with replacing(tmp_path / "none" if damage == "no site" else old):
        asked = "another" if damage == "digest" else "d"
        assert unchanged.take_over_pages(asked, site, {}) is None
    assert unchanged.written(site) == before
