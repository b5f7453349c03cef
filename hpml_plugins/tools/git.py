"""git, as the tools ask it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hpml_plugins.errors import UsageError
from hpml_plugins.terminal import one_line


def run_git(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """git's exit status and what it printed, as text; bytes that are not UTF-8 are escaped.

    variables: of its environment.  Raises UsageError where it is not installed.
    """
    try:
        return subprocess.run(
            ["git", *words],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
    except FileNotFoundError:
        raise UsageError("git is not installed; results name commits") from None


def git_answer(folder: Path, *words: str, fault: str = "", **variables: str) -> str:
    """What git answers.  Raises UsageError where it fails: `fault`, or git's own reason."""
    done = run_git(folder, *words, **variables)
    if not done.returncode:
        return done.stdout.strip()
    if fault:
        raise UsageError(fault)
    raise UsageError(f"git {words[0]}: {one_line(done.stderr)}", str(folder))
