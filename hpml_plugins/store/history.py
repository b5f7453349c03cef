"""The lines of branches: the commits of each branch in order, and the position of other commits
relative to them.

The line of a branch is its first-parent history, plus those commits of a merged branch that were up
to date with it: of any two commits of a line, one is an ancestor of the other. If the branch was
merged into another one and then moved to that merge, as git's message shows (`Merge branch 'main'
into topic`), it had been at the second parent. Results of other commits that git knows, from
branches not merged or merged from an older state, are on no line: ancestry decides, not dates.

A repository lacks commits of results if it was cloned without a branch, if a branch was squashed or
rebased after it was measured, and if results come from another repository. Such commits are placed
by their dates. If git knows every ancestor of a branch, they cannot be among them, so they count
only if there is nothing of the line itself.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hpml_plugins.git import ask_git, find_commit, tell_git
from hpml_plugins.model.formatting import counted
from hpml_plugins.store.asv_results import is_result_file
from hpml_plugins.store.files import machine_folders, read_object_or_empty

#: The most commits that a text lists by name.
MOST_NAMED = 5


class Standing(enum.IntEnum):
    """The position of a commit relative to the line of a branch. A Record with a higher standing
    takes precedence."""

    #: The repository has it but the line does not: its Records say nothing about the branch.
    OUTSIDE = 0
    #: No commit, or one without known ancestry and date: on no line.
    UNPLACED = 1
    #: On the line only by its date, because the repository lacks it.
    BY_DATE = 2
    #: On the line.
    OWN = 3


@dataclass(frozen=True, eq=False)
class CommitOrder(Mapping[str, int]):
    """The positions of all commits on lines: commit → place, oldest first; the newest has the
    highest.

    lines: branch → the commits of its line; "" for commits of no repository. Tables and pages show
    the first.  by_date: the commits that the
    repository lacks.  complete: whether git knows all ancestors of the branches; false in a shallow
    clone, where missing commits count as much as the others.  known: all commits of the repository.
    problems: messages about branches that it lacks.  authored: when commits of the repository were
    written, as asv dates them, ms since 1970.
    """

    places: Mapping[str, int]
    lines: Mapping[str, frozenset[str]]
    by_date: Collection[str] = frozenset()
    complete: bool = True
    known: Collection[str] = field(default=frozenset(), repr=False)
    problems: Sequence[str] = ()
    authored: Mapping[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, places: Mapping[str, int]) -> CommitOrder:
        """The order itself, or a single line with these commits."""
        if isinstance(places, CommitOrder):
            return places
        return cls(places, {"": frozenset(places)})

    def __getitem__(self, commit: str) -> int:
        return self.places[commit]

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def branch(self) -> str:
        """The branch that tables and pages show."""
        return next(iter(self.lines))

    def standing(self, commit: str, branch: str = "") -> Standing:
        """The standing of a commit relative to the line of a branch; "" is the first. Raises
        KeyError for a branch without one."""
        if commit in self.lines[branch or self.branch]:
            return Standing.OWN
        if commit in self.by_date:
            return Standing.BY_DATE if self.complete else Standing.OWN
        return Standing.OUTSIDE if commit in self.known else Standing.UNPLACED

    def within(self, commits: Collection[str]) -> CommitOrder:
        """The order limited to some commits; the others are unplaced, as if neither ancestry nor
        date were known."""
        wanted = frozenset(commits)
        placed = self.places.keys() - wanted
        return CommitOrder(
            {commit: place for commit, place in self.places.items() if commit in wanted},
            {branch: line & wanted for branch, line in self.lines.items()},
            frozenset(self.by_date) & wanted,
            self.complete,
            frozenset(self.known) - placed,
            self.problems,
            self.authored,
        )

    def outside(self, commits: Iterable[str]) -> Counter[str]:
        """The commits outside the first line, given one per Record, with their counts."""
        return Counter(
            commit for commit in commits if self.standing(commit) is Standing.OUTSIDE
        )


def describe_outside(outside: Mapping[str, int], branch: str) -> str:
    """Describe what is left out of an answer about a branch; "" if nothing is.  outside: commit →
    Records."""
    if not outside:
        return ""
    verb = "are" if len(outside) > 1 else "is"
    return (
        f"left out: {_count(outside)} that {verb} not on the line of {branch}"
        f" ({name_some(outside)})"
    )


def describe_by_date(by_date: Mapping[str, int]) -> str:
    """Describe what is placed only by its date; "" if nothing is.  by_date: commit → Records."""
    if not by_date:
        return ""
    return f"placed by date: {_count(by_date)} that the repository lacks ({name_some(by_date)})"


def _count(commits: Mapping[str, int]) -> str:
    return (
        f"{counted(sum(commits.values()), 'Record')} of {counted(len(commits), 'commit')}"
    )


def name_some(commits: Collection[str]) -> str:
    """The abbreviated hashes of at most MOST_NAMED of these commits."""
    names = sorted(commit[:8] for commit in commits)
    more = ["…"] if len(names) > MOST_NAMED else []
    return ", ".join(names[:MOST_NAMED] + more)


def commit_order(
    repository: Path, results: Path, branches: Sequence[str] = ()
) -> CommitOrder:
    """The lines of these branches, with the commits of results that the repository lacks.

    branches: names, the most important first; if empty, the current checkout. A branch that the
    repository lacks is taken from the remote `origin`; if that lacks it too, the current checkout
    is used, and `problems` says so. Without a repository, dates order all commits.
    """
    graph = read_graph(repository)
    if not graph.parents:
        return order_by_date(stored_dates(result_files(results)))
    lines: dict[str, frozenset[str]] = {}
    problems = []
    for branch in dict.fromkeys(branches or ("HEAD",)):
        tip = find_tip(repository, branch)
        name = (
            branch if branch != "HEAD" else ask_git(repository, "branch", "--show-current")
        )
        lines[branch] = frozenset(graph.line(tip.commit, name))
        if tip.problem:
            problems.append(tip.problem)
    stored = stored_dates(result_files(results, known=graph.dates))
    dates = {**stored, **graph.dates}
    by_date = frozenset(stored.keys() - graph.dates.keys())
    own = frozenset[str]().union(*lines.values())
    ordered = [commit for commit in graph.parents if commit in own]
    shallow = ask_git(repository, "rev-parse", "--is-shallow-repository") == "true"
    return CommitOrder(
        places={
            commit: at for at, commit in enumerate(place_by_date(ordered, dates, by_date))
        },
        lines=lines,
        by_date=by_date,
        complete=not shallow,
        known=frozenset(graph.parents),
        problems=problems,
        authored=graph.authored,
    )


def order_by_date(dates: Mapping[str, int]) -> CommitOrder:
    """The order without a repository.  dates: of all commits, ms since 1970."""
    places = {commit: place for place, commit in enumerate(place_by_date((), dates, dates))}
    return CommitOrder(places, {"": frozenset()}, frozenset(dates), complete=False)


#: git's default message for a merge of the local branch, or of the remote branch of that name.
#: Merges from a URL are excluded: they may be from another person's repository.
_MERGED = re.compile(
    r"Merge (?:remote-tracking )?branch '(?:origin/)?([^']+)'(?: into \S+)?"
)


@dataclass(frozen=True)
class _Graph:
    """The commits of a repository. parents: commit → its parents, ordered so that parents precede
    children.  dates: ms since 1970.  authored: dates of writing, which a rebase does not change.
    merged: for merges of two, the merged branch, if git's message names it."""

    parents: Mapping[str, Sequence[str]]
    dates: Mapping[str, int]
    authored: Mapping[str, int]
    merged: Mapping[str, str]

    def line(self, tip: str, branch: str) -> set[str]:
        """The commits of the line of a branch that ends with a commit; empty if that is "" or
        unknown.

        These are the commits that the branch itself was at (`_sides`) and, if a merge brought in
        commits built on the previous commit, those too: the line passes through them one by one, as
        in a fast-forward.
        """
        at = {commit: number for number, commit in enumerate(self.parents)}
        found = set(self._back_from(tip, branch))
        merges = [commit for commit in found if len(self.parents[commit]) == 2]
        while merges:
            before, other = self._sides(merges.pop(), branch)
            between = []
            for commit in self._back_from(other, branch):
                if at[commit] <= at.get(before, -1):  # parents precede their children
                    break
                between.append(commit)
            if between and self._sides(between[-1], branch)[:1] == (before,):
                merges += [commit for commit in between if len(self.parents[commit]) == 2]
                found.update(between)
        return found

    def _back_from(self, tip: str, branch: str) -> Iterator[str]:
        """The commits that the branch was at up to a commit, newest first."""
        while tip in self.parents:
            yield tip
            tip = next(iter(self._sides(tip, branch)), "")

    def _sides(self, commit: str, branch: str) -> Sequence[str]:
        """The parents of a commit, first the one that the branch was at: the second parent if the
        branch was merged into another one and then moved to the merge."""
        parents = self.parents[commit]
        return parents[::-1] if self.merged.get(commit) == branch else parents


def read_graph(repository: Path) -> _Graph:
    """All commits of all branches and tags, oldest first; empty without a repository.

    Raises UsageError for a repository that git cannot read.
    """
    parents: dict[str, tuple[str, ...]] = {}
    dates: dict[str, int] = {}
    authored: dict[str, int] = {}
    merged: dict[str, str] = {}
    graph = _Graph(parents, dates, authored, merged)
    if not ask_git(repository, "rev-parse", "--git-dir"):
        return graph
    words = ("log", "--all", "--date-order", "--reverse", "--format=%H %ct %at %P%x00%s")
    for line in filter(None, tell_git(repository, *words).split("\n")):
        hashes, _, subject = line.partition("\0")
        commit, committed, written, *before = hashes.split()
        parents[commit] = tuple(before)
        dates[commit] = int(committed) * 1000
        authored[commit] = int(written) * 1000
        if len(before) == 2 and (message := _MERGED.fullmatch(subject)):
            merged[commit] = message[1]
    return graph


class _Tip(NamedTuple):
    """The newest commit of a branch.  name: the name by which git found it.  problem: a message
    about the substitute for a missing branch."""

    commit: str
    name: str
    problem: str = ""


def find_tip(repository: Path, branch: str) -> _Tip:
    """Find the newest commit of a branch: in the repository, else at the remote `origin`, else the
    current checkout."""
    for name in (branch, f"origin/{branch}"):
        if commit := find_commit(repository, name):
            return _Tip(commit, name)
    problem = f"the repository has no branch {branch!r}; using the current checkout instead"
    return _Tip(find_commit(repository, "HEAD"), "HEAD", problem)


def result_files(results: Path, known: Iterable[str] = ()) -> list[Path]:
    """asv's result files, which are named after their commits, except those of known commits."""
    shown = {commit[:8] for commit in known}
    files = [
        path
        for folder in machine_folders(results)
        for path in sorted(folder.glob("*-*.json"))
    ]
    return [path for path in files if path.name[:8] not in shown]


def stored_dates(files: Iterable[Path]) -> dict[str, int]:
    """Commit → its date in asv's result files, ms since 1970. Damaged files are reported by the
    code that reads the rest."""
    dates: dict[str, int] = {}
    for path in files:
        found = read_object_or_empty(path)
        if is_result_file(found) and isinstance(found.get("date"), int):
            dates.setdefault(found["commit_hash"], found["date"])
    return dates


def place_by_date(
    ordered: Iterable[str], dates: Mapping[str, int], missing: Iterable[str]
) -> list[str]:
    """Insert each missing commit before the first commit with a later date. ordered, the result:
    oldest first."""
    waiting = sorted(missing, key=lambda commit: (dates[commit], commit), reverse=True)
    found: list[str] = []
    for commit in ordered:
        while waiting and commit in dates and dates[waiting[-1]] < dates[commit]:
            found.append(waiting.pop())
        found.append(commit)
    return found + waiting[::-1]
