"""From targets and commits to jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpml_plugins.tools.cluster.commits import History, measured
from hpml_plugins.tools.cluster.schema import Target


@dataclass(frozen=True)
class Order:
    """What every target is asked for. project: its folder, which the nodes see.  commits: see `History.wanted`.

    keep: what is measured already is not measured again.
    """

    project: Path
    results: Path
    commits: str = ""
    profile: str = ""
    bench: tuple[str, ...] = ()
    keep: bool = False


@dataclass(frozen=True)
class Planned:
    """One job: a target and the commits it measures. No commits: there is nothing left to do there."""

    target: Target
    commits: tuple[str, ...]


def plan(targets: Iterable[Target], order: Order, history: History) -> list[Planned]:
    """A job for each target, with the commits that its own machine needs."""
    return [
        Planned(target, tuple(history.wanted(order.commits, measured(order.results, target.machine_name))))
        for target in targets
    ]
