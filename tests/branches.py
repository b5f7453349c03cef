"""Repositories with branches and results: which Records may stand for `main`, and which are of
commits beside it.

Two machines are equal on the line of main: FAST before the step, SLOW from it on. One of them, or
both, measured other commits too, with OTHER; none of these may be seen in an answer about main.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from records import a_record
from repositories import git

from hpml_plugins.store import append_record, record_file

DAY, FIRST = 86_400, 1_700_000_000
UNKNOWN = "f" * 40
SLOW, FAST, OTHER = 1.3, 1.0, 2.0
MACHINES = ("node-a", "node-b")
#: The commit of main before which its Records are FAST.
STEP = 4
NAME = "toy.track_time"
DECLARED = {
    NAME: {
        "name": NAME,
        "benchmark_name": NAME,
        "pretty_name": "toy · time",
        "type": "track",
        "unit": "seconds",
        "code": "",
        "benchmark": "toy",
        "metric": "time",
        "plugin": "p",
        "direction": "lower",
        "si_unit": "s",
        "version": "1",
        "param_names": [],
        "params": [],
        "timeout": 60.0,
    }
}


@dataclass
class Project:
    """A repository and its results. commits: name → hash.  beside: those whose Records may not
    stand for main."""

    folder: Path
    commits: dict[str, str] = field(default_factory=dict)
    beside: list[str] = field(default_factory=list)
    days: int = 0
    measured: int = 0

    @property
    def results(self) -> Path:
        """The folder of results."""
        return self.folder / "results"

    def git(self, *words: str, day: float | None = None) -> str:
        """What git says; a commit that it makes is dated by the day."""
        moment = FIRST + int((self.days if day is None else day) * DAY)
        return git(self.folder, *words, date=f"{moment} +0000")

    def commit(self, name: str) -> str:
        """One more commit on what is checked out, a day after the one before."""
        self.days += 1
        self.git("commit", "-q", "--allow-empty", "-m", name)
        self.commits[name] = self.git("rev-parse", "HEAD")
        return self.commits[name]

    def main(self, count: int = 8) -> None:
        """The commits of main, `main 0` and on, measured on both machines; the step is at STEP."""
        self.git("init", "-q", "-b", "main")
        for number in range(count):
            self.measure(self.commit(f"main {number}"), FAST if number < STEP else SLOW)

    def other(self, name: str, count: int = 5, start: str = "HEAD") -> None:
        """A branch of commits that one machine measured, and that may not stand for main."""
        self.git("checkout", "-q", "-b", name, start)
        for number in range(count):
            self.measure(self.commit(f"{name} {number}"), OTHER, MACHINES[1:], beside=True)

    def measure(
        self,
        commit: str,
        seconds: float,
        machines: tuple[str, ...] = MACHINES,
        *,
        beside: bool = False,
    ) -> None:
        """A Record of each machine, started after all commits were made."""
        self.beside += [commit] * beside
        for machine in machines:
            self.measured += 1
            number = self.measured
            record = a_record(
                metrics={"time": [seconds * k for k in (0.999, 1, 1.001)]},
                plugin="p",
                started=FIRST + (1000 + number) * DAY,
                duration=1.0,
                machine=machine,
                commit=commit,
                environment="node-py3",
                run=f"r{number}",
                node={"cpu": "CPU"},
                source={"sha256": "a" * 64, "package": commit},
            )
            append_record(record_file(self.results, machine, commit), record)


def unmerged(made: Project) -> None:
    made.main()
    made.other("topic", start=made.commits["main 2"])
    made.git("checkout", "-q", "main")


def merged_from_an_older_state(made: Project) -> None:
    made.main()
    made.other("topic", start=made.commits["main 2"])
    made.git("checkout", "-q", "main")
    made.git("merge", "-q", "--no-ff", "-m", "merge", "topic", day=made.days + 1)
    made.days += 1
    made.measure(made.git("rev-parse", "HEAD"), SLOW)


def octopus(made: Project) -> None:
    made.main()
    made.other("topic", count=1)
    made.other("another", count=1, start="main")
    made.git("checkout", "-q", "main")
    made.git("merge", "-q", "--no-ff", "-m", "merge", "topic", "another", day=made.days + 1)
    made.days += 1
    made.measure(made.git("rev-parse", "HEAD"), SLOW)


def another_branch_is_checked_out(made: Project) -> None:
    made.main()
    made.other("topic")


def detached(made: Project) -> None:
    unmerged(made)
    made.git("checkout", "-q", "--detach", "topic")


def a_tag_alone_has_it(made: Project) -> None:
    unmerged(made)
    made.git("tag", "v1", "topic")
    made.git("branch", "-q", "-D", "topic")


def rebased_and_gone(made: Project) -> None:
    unmerged(made)
    made.git("branch", "-q", "-D", "topic")


def dated_in_the_future(made: Project) -> None:
    made.main()
    made.days += 400
    made.other("topic")
    made.git("checkout", "-q", "main")


def uncommitted(made: Project) -> None:
    made.main()
    made.measure("", OTHER, MACHINES[1:], beside=True)


def unknown_to_the_repository(made: Project) -> None:
    made.main()
    made.measure(UNKNOWN, OTHER, MACHINES[1:], beside=True)


CASES: tuple[Callable[[Project], None], ...] = (
    unmerged,
    merged_from_an_older_state,
    octopus,
    another_branch_is_checked_out,
    detached,
    a_tag_alone_has_it,
    rebased_and_gone,
    dated_in_the_future,
    uncommitted,
    unknown_to_the_repository,
)
