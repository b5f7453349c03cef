"""Interface to git for the whole package. A missing repository is an answer; a repository that git
refuses to read is an error with git's reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hpml_plugins.errors import UsageError
from hpml_plugins.terminal import one_line

NOT_INSTALLED = "git is not installed, or not on the PATH; results name commits"


class GitRefused(UsageError):
    """git refuses to read an existing repository, such as one of another user."""


def run_git(
    folder: Path, *words: str, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run git and return its exit status and output, in English. Raises UsageError if git is not
    installed."""
    env = {**os.environ, **variables, "LC_ALL": "C.UTF-8"}
    try:
        return subprocess.run(
            ["git", *words], cwd=folder, env=env, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise UsageError(NOT_INSTALLED) from None


def ask_git(folder: Path, *words: str) -> str:
    """The output of git; empty if git does not know, or without a repository. Raises GitRefused."""
    if not folder.is_dir() or any("\0" in word for word in words):
        return ""
    try:
        done = run_git(folder, *words)
    except UsageError as error:
        if _repository_above(folder):
            raise GitRefused(error.what, str(folder.resolve())) from None
        return ""
    if done.returncode:
        _raise_if_refused(folder)
        return ""
    return os.fsdecode(done.stdout).strip()


def find_commit(folder: Path, name: str) -> str:
    """The full hash for a commit name ("HEAD", "v1.2", an abbreviated hash); empty if git knows
    none. Raises GitRefused."""
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return ask_git(folder, *words)


def tell_git(folder: Path, *words: str, fault: str = "", **variables: str) -> str:
    """The output of git. Raises UsageError if it fails, with `fault` or git's own reason."""
    done = run_git(folder, *words, **variables)
    if done.returncode:
        _raise_if_refused(folder)
        raise UsageError(fault or why_failed(done))
    return os.fsdecode(done.stdout).strip()


def why_failed(done: subprocess.CompletedProcess[bytes]) -> str:
    """`git log: fatal: …`, in one line."""
    word = next((each for each in done.args[1:] if each[:1] != "-" and "=" not in each), "")
    said = one_line(done.stderr.decode(errors="replace"))
    return f"git {word}: {said or f'exit status {done.returncode}'}"


def why_git_refuses(folder: Path) -> str:
    """Why git does not read the repository of a folder, and how to fix it; empty if it reads it, or
    if there is none."""
    repository = _repository_above(folder)
    try:
        done = run_git(folder, "log", "-1", "--format=")
    except UsageError as error:
        return error.what if repository else ""
    said = one_line(done.stderr.decode(errors="replace"))
    if not done.returncode or "does not have any commits yet" in said:
        return ""
    if "not a git repository" not in said:
        return f"git refuses the repository: {said}"
    damaged = f"git finds no repository in {repository}: {said}; restore it, or clone again"
    return damaged if repository else ""


def _raise_if_refused(folder: Path) -> None:
    if refusal := why_git_refuses(folder):
        raise GitRefused(refusal, str(folder.resolve()))


def _repository_above(folder: Path) -> Path | None:
    """The `.git` that git would find, limited to the file system of the folder as in git."""
    here = folder.resolve()
    if not here.is_dir():
        return None
    device = here.stat().st_dev
    for each in (here, *here.parents):
        if each.stat().st_dev != device:
            return None
        if (each / ".git").exists():
            return each / ".git"
    return None
