"""Git repositories for tests, made in one place: nothing of this user's settings is in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def git(folder: Path, *words: str, date: str = "", name: str = "test") -> str:
    """What git says in a folder.  date: of the commit that it makes; now when left out.  name: of
    its author."""
    who = ["-c", f"user.name={name}", "-c", "user.email=test@example.invalid"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    if date:
        env |= {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    done = subprocess.run(
        ["git", *who, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit_all(folder: Path, message: str) -> str:
    """Commit everything in the folder; returns the hash."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD")


def make_repository(folder: Path, message: str = "") -> None:
    """Make the folder a repository, on the branch main.  message: of a commit of all that is in
    it."""
    git(folder, "init", "-q", "-b", "main")
    if message:
        commit_all(folder, message)
