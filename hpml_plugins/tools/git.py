"""git, as the tools ask it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hpml_plugins.errors import UsageError


def run_git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """git's exit status and what it printed, as text. Raises UsageError where it is not
    installed."""
    try:
        return subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise UsageError("git is not installed; results name commits") from None
