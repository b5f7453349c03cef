"""git that refuses a repository, is missing or damaged is said to be so, and is never taken for a
folder without a repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from repositories import git
from support import ROOT

from hpml_plugins.cli import group
from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.git import GitRefused, ask_git, tell_git, why_git_refuses
from hpml_plugins.store import commit_order

PLUGIN = """
from hpml_plugins import Benchmark, Metric, hookimpl

@hookimpl
def hpml_benchmarks():
    return [Benchmark("one", lambda bench: {"m": 1.0}, metrics=[Metric("m", "1", "lower")])]
"""
CONFIGURATION = """
{"version": 1, "repo": ".", "branches": ["main"], "environment_type": "node",
 "plugins": [".hpml_plugins.asv"]}
"""


def another_owner(repository: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    return "dubious ownership.*safe.directory"


def no_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PATH", str(repository.parent / "empty"))
    return "git is not installed"


def bad_configuration(repository: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (repository / ".git" / "config").write_text("[bad")
    return "bad config line"


def no_head(repository: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (repository / ".git" / "HEAD").unlink()
    return "restore it, or clone again"


def no_objects(repository: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    shutil.rmtree(repository / ".git" / "objects")
    (repository / ".git" / "objects").mkdir()
    return "bad object|bad tree"


def lost_worktree(repository: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    shutil.rmtree(repository / ".git")
    (repository / ".git").write_text("gitdir: /nowhere/.git/worktrees/x")
    return "not a git repository: /nowhere"


State = Callable[[Path, pytest.MonkeyPatch], str]
STATES: list[State] = [
    *(another_owner, no_git, bad_configuration, no_head, no_objects, lost_worktree),
]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "one.py").write_text(PLUGIN)
    (folder / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: one, path: one.py}\n"
    )
    (folder / "asv.conf.json").write_text(CONFIGURATION)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("state", STATES)
def test_a_repository_that_git_does_not_read_is_refused_with_the_reason(
    repository: Path, monkeypatch: pytest.MonkeyPatch, state: State
) -> None:
    assert why_git_refuses(repository) == ""
    reason = state(repository, monkeypatch)
    for asked in (
        lambda: ask_git(repository, "rev-parse", "--verify", "--quiet", "HEAD^{tree}"),
        lambda: tell_git(repository, "log", fault="no such commit"),
        lambda: commit_order(repository, repository / "results", ["main"]),
    ):
        with pytest.raises(HpmlError, match=reason) as raised:
            asked()
        assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(GitRefused):
        tell_git(repository, "log") if state is not no_git else ask_git(repository, "log")


@pytest.mark.parametrize(
    "command", [["init"], ["table", "one"], ["gate", "main"], ["compare", "main", "HEAD"]]
)
@pytest.mark.parametrize("state", STATES)
def test_commands_end_with_the_reason_in_one_line(
    repository: Path, monkeypatch: pytest.MonkeyPatch, state: State, command: list[str]
) -> None:
    if state is no_objects and command == ["init"]:
        pytest.skip("it asks for no commit")
    reason = state(repository, monkeypatch)
    ended = CliRunner().invoke(group, command)
    # which `main` prints in one line, and ends with status 2
    assert isinstance(ended.exception, UsageError), ended.output
    assert re.search(reason, str(ended.exception))


@pytest.mark.parametrize("words", [["publish"], ["show"], ["run"]])
def test_asv_ends_with_the_reason_too(repository: Path, words: list[str]) -> None:
    env = {**os.environ, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1", "PYTHONPATH": str(ROOT)}
    (repository / "results").mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "asv", *words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ended.stderr + ended.stdout
    if words == ["show"]:  # which asks git nothing where there are no results
        return
    assert ended.returncode == 2
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("hpml: ")]
    assert "dubious ownership" in line and "safe.directory" in line


def test_no_repository_no_commit_and_no_answer_are_no_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask_git(tmp_path, "log") == why_git_refuses(tmp_path) == ""
    assert ask_git(tmp_path / "absent", "log") == ""
    git(tmp_path, "init", "-q")
    assert ask_git(tmp_path, "rev-parse", "HEAD") == why_git_refuses(tmp_path) == ""
    assert list(commit_order(tmp_path, tmp_path / "results")) == []
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    assert ask_git(outside, "log") == why_git_refuses(outside) == ""


def test_git_is_asked_in_one_way() -> None:
    # the installer of a bundle runs without the package; harness makes projects of its own
    apart = {"git.py", "install.py", "processes.py"}
    asking = {
        path.name
        for path in (ROOT / "hpml_plugins").rglob("*.py")
        if '["git", ' in path.read_text() or '"git", *' in path.read_text()
    }
    assert asking <= apart
