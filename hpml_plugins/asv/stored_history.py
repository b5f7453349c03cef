"""The lines of branches for `asv publish`, the same as on our pages: including commits that the
repository lacks.

asv only knows the first parents of a branch, without merged commits and those that the repository
lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from asv.console import log
from asv.repo import Repo, get_repo
from asv.util import ProcessError, UserError

from hpml_plugins.asv.configuration import NO_REPOSITORY
from hpml_plugins.errors import HpmlError
from hpml_plugins.store.history import (
    CommitOrder,
    Standing,
    commit_order,
    name_some,
    order_by_date,
    place_by_date,
    result_files,
    stored_dates,
)
from hpml_plugins.terminal import one_line

DVCS = "hpml"
#: Methods that need a repository.
_ASKED = (
    "get_hashes_from_range",
    "get_range_spec",
    "get_new_range_spec",
    "get_hash_from_name",
    "get_hash_from_parent",
    "get_name_from_hash",
)


class StoredHistory(Repo):  # type: ignore[misc]  # asv is not typed
    """A repository, or none, and the commits that asv leaves out. asv finds it by `dvcs`.

    known: asv's repository; None if there is none.  dates: of every commit with results, ms since
    1970.  order: the lines of the branches, in the order of `conf.branches`.
    """

    dvcs = DVCS
    known: Any = None
    dates: ClassVar[Mapping[str, int]] = {}
    order: CommitOrder = CommitOrder.of({})

    def __init__(self, *_: object) -> None:
        for name in _ASKED:  # asv's Repo defines them all, and raises
            setattr(
                self, name, getattr(self.known, name) if self.known is not None else _refuse
            )

    @classmethod
    def url_match(cls, url: str) -> bool:
        """Always false: it is selected by name."""
        return False

    def pull(self) -> None:
        """Pull the repository."""
        if self.known is not None:
            self.known.pull()

    def get_tags(self) -> dict[str, str]:
        """The repository's tags."""
        return dict(self.known.get_tags()) if self.known is not None else {}

    def get_date(self, commit: str) -> int:
        """The stored date of a commit, else the repository's, ms since 1970."""
        return (
            self.dates[commit] if commit in self.dates else int(self.known.get_date(commit))
        )

    def get_date_from_name(self, name: str) -> int:
        """The date of a commit given by a git name."""
        if name in self.dates:
            return self.dates[name]
        return int(self.known.get_date_from_name(name))

    def get_branch_name(self, branch: str | None = None) -> str:
        """The repository's name of the branch; "results" without a repository."""
        return (
            str(self.known.get_branch_name(branch)) if self.known is not None else "results"
        )

    def get_branch_commits(self, branch: str | None) -> list[str]:
        """The line of a branch, newest first. Commits that the repository lacks are on every
        line."""
        name = self.get_branch_name(branch)
        order = self.order
        line = name if name in order.lines else order.branch
        placed = [each for each in order if order.standing(each, line) > Standing.UNPLACED]
        return placed[::-1]

    def get_revisions(self, commits: Iterable[str]) -> dict[str, int]:
        """Commit → its place in the history of these commits; commits outside all lines are placed
        by date."""
        wanted = set(commits)
        others = {commit: self.get_date(commit) for commit in wanted - self.order.keys()}
        placed = [commit for commit in self.order if commit in wanted]
        dates = others | {commit: self.get_date(commit) for commit in placed}
        ordered = place_by_date(placed, dates, others)
        return {commit: number for number, commit in enumerate(ordered)}


def commit_dates(repo: Any, order: CommitOrder) -> dict[str, float]:
    """The date of each commit of an order as asv's pages show it, ms since 1970.

    repo: asv's, which starts a process of git for each commit whose date it is asked.
    """
    known = {} if isinstance(repo, StoredHistory) else order.authored
    dates = {}
    for commit in order:
        date = known[commit] if commit in known else repo.get_date(commit)
        dates[commit] = float(date)
    return dates


def _refuse(*_: object) -> None:
    raise HpmlError(
        "a range of commits needs a repository, and there is none here; publish without a range"
    )


def find_order(conf: Any, repository: Any) -> CommitOrder:
    """The lines of the branches in asv's configuration.

    repository: asv's; None if the configuration has none. Raises UserError for a version control
    system other than git.
    """
    results = Path(conf.results_dir)
    if repository is None:
        return order_by_date(stored_dates(result_files(results)))
    if repository.dvcs != "git":
        raise UserError(f"hpml-plugins supports git, not {repository.dvcs}")
    names = list(
        dict.fromkeys(str(repository.get_branch_name(branch)) for branch in conf.branches)
    )
    local = Path(conf.repo)  # asv keeps a mirror of a remote repository
    return commit_order(local if local.is_dir() else Path(conf.project), results, names)


def show_missing_commits(conf: Any) -> CommitOrder:
    """Make asv publish the complete lines: with merged commits, and those that the repository
    lacks, which are listed. Returns the lines.

    Also reports which commits with results are on no line.
    """
    files = result_files(Path(conf.results_dir))
    repository = None
    try:
        repository = get_repo(conf)
        order = find_order(conf, repository)
        shown = _shown_by_asv(repository, conf.branches)
        if all(path.name[:8] in shown for path in files):
            return order  # asv names each file after its commit, so no file has to be read
    except (UserError, ProcessError) as error:
        why = "" if conf.repo == NO_REPOSITORY else f": {str(error).splitlines()[0]}"
        log.warning(
            one_line(f"commits are ordered by their dates, without a repository{why}")
        )
        repository = None
        conf.branches = [None]
        order = order_by_date(stored_dates(files))
    for problem in order.problems:
        log.warning(one_line(problem))
    dates = stored_dates(files)
    if order.by_date and repository is not None:
        names = one_line(name_some(order.by_date))
        log.warning(
            f"{len(order.by_date)} of {len(dates)} commits are not in the repository, shown by"
            f" date: {names}"
        )
    if outside := dates.keys() - order.keys():
        names = name_some(outside)
        branches = " and ".join(order.lines)
        log.warning(
            one_line(
                f"{len(outside)} of {len(dates)} commits are not on the line of {branches}, left"
                f" out: {names}"
            )
        )
    StoredHistory.known = repository
    StoredHistory.dates = dates
    StoredHistory.order = order
    conf.dvcs = DVCS
    return order


def _shown_by_asv(repository: Any, branches: Iterable[str | None]) -> set[str]:
    """The abbreviated hashes of the commits of these branches as asv sees them; empty if a branch
    is only at the remote."""
    try:
        return {
            commit[:8]
            for branch in branches
            for commit in repository.get_branch_commits(branch)
        }
    except (UserError, ProcessError):
        return set()
