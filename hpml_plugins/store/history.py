"""The order of commits: the repository's history, and the commits of results that it lacks, placed by their dates.

A repository lacks them where it was cloned without a branch, where a branch was squashed or rebased after it was
measured, and where results come from another repository.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from hpml_plugins.store.asv_results import is_result_file
from hpml_plugins.store.files import machine_folders, read_object_or_empty


def ask_git(repository: Path, *words: str) -> str:
    """What git says there; empty where it is not installed, there is no repository, or it does not know."""
    try:
        return subprocess.run(["git", *words], cwd=repository, capture_output=True, text=True, check=True).stdout
    except (OSError, ValueError, subprocess.CalledProcessError):
        return ""


def commit_order(repository: Path, results: Path) -> dict[str, int]:
    """Commit → its position, the newest highest: the commits of the repository, and of the results that it lacks."""
    lines = ask_git(repository, "log", "--all", "--date-order", "--reverse", "--format=%H %ct").splitlines()
    dates = {commit: int(seconds) * 1000 for commit, seconds in (line.split() for line in lines)}
    stored = stored_dates(result_files(results, known=dates))
    ordered = place_by_date(dates, stored | dates, stored.keys() - dates.keys())
    return {commit: position for position, commit in enumerate(ordered)}


def result_files(results: Path, known: Iterable[str] = ()) -> list[Path]:
    """asv's result files, which are named after their commits, without those of known commits."""
    shown = {commit[:8] for commit in known}
    files = [path for folder in machine_folders(results) for path in sorted(folder.glob("*-*.json"))]
    return [path for path in files if path.name[:8] not in shown]


def stored_dates(files: Iterable[Path]) -> dict[str, int]:
    """Commit → its date in asv's result files, ms since 1970. Damaged files are left to those who read the rest."""
    dates: dict[str, int] = {}
    for path in files:
        found = read_object_or_empty(path)
        if is_result_file(found) and isinstance(found.get("date"), int):
            dates.setdefault(found["commit_hash"], found["date"])
    return dates


def place_by_date(ordered: Iterable[str], dates: Mapping[str, int], missing: Iterable[str]) -> list[str]:
    """Each missing commit before the first commit that is dated later. ordered, the result: oldest first."""
    waiting = sorted(missing, key=lambda commit: (dates[commit], commit), reverse=True)
    found: list[str] = []
    for commit in ordered:
        while waiting and commit in dates and dates[waiting[-1]] < dates[commit]:
            found.append(waiting.pop())
        found.append(commit)
    return found + waiting[::-1]
