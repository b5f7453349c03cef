"""The commits of results that asv leaves out, placed by their dates, so that `asv publish` shows them.

asv knows the first parents of a branch alone: not what was merged into it, nor what the repository does not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from asv.console import log
from asv.repo import Repo, get_repo
from asv.util import ProcessError, UserError

from hpml_plugins.errors import HpmlError
from hpml_plugins.store.history import ask_git, place_by_date, result_files, stored_dates
from hpml_plugins.terminal import one_line

DVCS = "hpml"
#: What only a repository can answer.
_ASKED = (
    "get_hashes_from_range", "get_range_spec", "get_new_range_spec", "get_hash_from_name", "get_hash_from_parent",
    "get_name_from_hash",
)  # fmt: skip


class StoredHistory(Repo):  # type: ignore[misc]  # asv is not typed
    """A repository, or none, and the commits that asv leaves out. asv finds it by `dvcs`.

    known: asv's repository; None where there is none.  dates: of every commit with results, ms since 1970.  missing:
    the commits of results that the repository lacks, and those that were merged into a branch.
    """

    dvcs = DVCS
    known: Any = None
    dates: ClassVar[dict[str, int]] = {}
    missing: frozenset[str] = frozenset()

    def __init__(self, *_: object) -> None:
        for name in _ASKED:  # asv's Repo has them all, and raises
            setattr(self, name, getattr(self.known, name) if self.known is not None else _refuse)

    @classmethod
    def url_match(cls, url: str) -> bool:
        """Never: it is chosen by name."""
        return False

    def pull(self) -> None:
        """As the repository does."""
        if self.known is not None:
            self.known.pull()

    def get_tags(self) -> dict[str, str]:
        """The repository's."""
        return dict(self.known.get_tags()) if self.known is not None else {}

    def get_date(self, commit: str) -> int:
        """The stored date of a commit, else the repository's, ms since 1970."""
        return self.dates[commit] if commit in self.dates else int(self.known.get_date(commit))

    def get_date_from_name(self, name: str) -> int:
        """The date of what git calls so."""
        return self.dates[name] if name in self.dates else int(self.known.get_date_from_name(name))

    def get_branch_name(self, branch: str | None = None) -> str:
        """The repository's; "results" where there is none."""
        return str(self.known.get_branch_name(branch)) if self.known is not None else "results"

    def get_branch_commits(self, branch: str | None) -> list[str]:
        """Newest first. Missing commits are in every branch."""
        known = self.known.get_branch_commits(branch) if self.known is not None else ()
        return place_by_date(reversed(known), self.dates, self.missing)[::-1]

    def get_revisions(self, commits: Iterable[str]) -> dict[str, int]:
        """Commit → its place in the history of these commits."""
        wanted = set(commits)
        known = self.known.get_revisions(wanted) if self.known is not None else {}
        ordered = place_by_date(
            sorted(known.keys() - self.missing, key=known.__getitem__), self.dates, self.missing & wanted
        )
        return {commit: number for number, commit in enumerate(ordered)}


def _refuse(*_: object) -> None:
    raise HpmlError("a range of commits needs a repository, and there is none here; publish without a range")


def show_missing_commits(conf: Any) -> None:
    """Let asv publish also the results of merged commits, and of those that the repository lacks, which it names."""
    files = result_files(Path(conf.results_dir))
    try:
        repository = get_repo(conf)
        shown = {commit[:8] for branch in conf.branches for commit in repository.get_branch_commits(branch)}
        if all(path.name[:8] in shown for path in files):  # asv names each after its commit: none has to be read
            return
        dates = stored_dates(files)
        lacking = dates.keys() - repository.get_revisions(set(dates)).keys()
        branches = [repository.get_branch_name(branch) for branch in conf.branches]
        merged = set(ask_git(Path(conf.repo), "rev-list", *branches, "--").split())
        missing = lacking | {commit for commit in merged & dates.keys() if commit[:8] not in shown}
    except (UserError, ProcessError) as error:
        log.warning(one_line(f"commits are ordered by their dates, without a repository: {str(error).splitlines()[0]}"))
        repository, dates = None, stored_dates(files)
        lacking, missing, conf.branches = set(), dates.keys(), [None]
    if missing:
        if lacking:
            names = one_line(", ".join(sorted(commit[:8] for commit in lacking)[:5])) + ", …" * (len(lacking) > 5)
            log.warning(f"{len(lacking)} of {len(dates)} commits are not in the repository, shown by date: {names}")
        StoredHistory.known, StoredHistory.dates, StoredHistory.missing = repository, dates, frozenset(missing)
        conf.dvcs = DVCS
