"""Arguments of asv's commands that asv does not check: it would end in a traceback, or show
nothing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from hpml_plugins.errors import UsageError, regular_expression
from hpml_plugins.git import find_commit, run_git, why_failed
from hpml_plugins.store.history import result_files

#: Ranges that are words of asv's, not git's.
_WORDS = ("EXISTING", "NEW", "ALL", "TAGS", "HEAD")


def refuse_unknown(conf: Any, args: Any) -> None:
    """Raises UsageError for a pattern that is none, and for commits that the repository does not
    have, if it is here."""
    for pattern in getattr(args, "bench", None) or ():
        regular_expression(pattern, "--bench")
    if benchmark := getattr(args, "benchmark", None):  # of `asv profile`
        regular_expression(benchmark, "benchmark")
    repository = Path(conf.repo)
    if not (repository / ".git").exists():
        return
    asked = getattr(args, "range", None)
    if isinstance(asked, str) and asked not in _WORDS and not asked.startswith("HASHFILE:"):
        _refuse_range(repository, asked)
    if commit := getattr(args, "commit", None):  # of `asv show`
        _refuse_commit(repository, commit, Path(conf.results_dir))


def _refuse_range(repository: Path, asked: str) -> None:
    try:
        words = shlex.split(asked)
    except ValueError as error:
        raise UsageError(f"{asked!r} names no commits: {error}") from None
    if not words:
        return
    done = run_git(repository, "rev-list", "--first-parent", "-n1", *words, "--")
    if done.returncode:
        raise UsageError(f"{asked!r} names no commits here: {why_failed(done)}")


def _refuse_commit(repository: Path, commit: str, results: Path) -> None:
    if find_commit(repository, commit):
        return
    if not any(path.name.startswith(commit[:8]) for path in result_files(results)):
        raise UsageError(
            f"{commit!r} is no commit of the repository, and no result is of such a commit"
        )
