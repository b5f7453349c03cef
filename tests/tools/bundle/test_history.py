"""The packed repository, and what of it is not packed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repositories import commit_all, git, make_repository

from hpml_plugins.errors import UsageError
from hpml_plugins.tools.bundle.pack import pack_history


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits on main."""
    folder = tmp_path / "repository"
    folder.mkdir()
    make_repository(folder)
    for number in (1, 2):
        (folder / "file").write_text(str(number))
        commit_all(folder, str(number))
    return folder


def test_the_whole_history_of_the_branch_travels(repository: Path, tmp_path: Path) -> None:
    git(repository, "tag", "v1", "HEAD~1")
    history = pack_history(repository, [""], tmp_path / "history.bundle")
    assert (history.branches, history.commits, history.warnings) == (("main",), 2, ())
    git(tmp_path, "clone", "-q", "-b", "main", "history.bundle", "copy")
    assert git(tmp_path / "copy", "log", "--format=%s", "--decorate=no").split() == [
        "2",
        "1",
    ]
    assert git(tmp_path / "copy", "tag") == "v1"


def test_what_is_not_packed_is_reported(repository: Path, tmp_path: Path) -> None:
    (repository / "file").write_text("3")
    (repository / "new").write_text("")
    git(repository, "checkout", "-q", "-b", "other")
    git(repository, "commit", "-q", "--allow-empty", "-m", "3")
    history = pack_history(repository, ["main"], tmp_path / "history.bundle")
    assert history.warnings == (
        "file and 1 more not committed: uncommitted changes do not travel",
        "main travels (asv.conf.json), not the commit that is checked out here",
    )


def test_an_empty_a_cut_off_and_no_repository_are_named(
    repository: Path, tmp_path: Path
) -> None:
    def refused(folder: Path, branch: str, message: str) -> None:
        with pytest.raises(UsageError, match=re.escape(message)):
            pack_history(folder, [branch], tmp_path / "history.bundle")

    refused(
        repository,
        "release",
        "asv.conf.json names branch 'release', which is not here; git branch release",
    )
    for name in ("empty", "none"):
        (tmp_path / name).mkdir()
    make_repository(tmp_path / "empty")
    refused(
        tmp_path / "empty", "main", "asv.conf.json names branch 'main', which is not here"
    )
    refused(tmp_path / "none", "main", "not a git repository; results name commits")
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), "shallow")
    refused(
        tmp_path / "shallow",
        "main",
        "the repository is a shallow clone; run git fetch --unshallow",
    )
