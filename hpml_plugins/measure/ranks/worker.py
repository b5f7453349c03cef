"""The process that a rank lives in: it takes its place, runs the function, and leaves a report however that ends."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from hpml_plugins.errors import CheckFailed, HpmlError, Skipped, UsageError, describe
from hpml_plugins.isolation.parent_death import end_with_parent
from hpml_plugins.measure.compile_workers import end_compilers
from hpml_plugins.measure.out_of_memory import out_of_gpu_memory
from hpml_plugins.measure.ranks.group import Report, Team
from hpml_plugins.measure.ranks.rank import Rank

#: How long a rank that failed waits before it ends, s. Its death makes others fail in their collectives: the one who
#: was first is to be seen first.
LAST_WORDS = 0.3


class Listener(Protocol):
    """Who is told of progress: text and share."""

    def send(self, obj: Any, /) -> None:
        """Take it."""


def live(
    index: int,
    team: Team,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    progress: Listener,
    local: int | None = None,
) -> None:
    """What the launcher starts: run the function in its place and leave a report. Raises for a failed one.

    local: the place among the ranks of this node, where there are several nodes.
    """
    end_with_parent(team.parent if team.parent and team.nodes == 1 else None)
    faulthandler.enable(2)
    _listen_for_where(team.stack_of(index))
    if team.nodes == 1:
        os.environ.update(_variables(index, team))
    os.environ.update(team.environment)
    rank = Rank(index, team, (lambda text, share: progress.send((text, share))) if index == 0 else None, local)
    try:
        with rank.connected():
            report = Report("ok", value=function(rank, *args))
            _leave(report, rank)
        end_compilers()
    except BaseException as error:
        report = _report_of(error)
        _leave(report, rank)
        time.sleep(LAST_WORDS)
        raise


def _variables(index: int, team: Team) -> dict[str, str]:
    """What torch's launcher sets, for libraries that look there."""
    places = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": team.count, "LOCAL_WORLD_SIZE": team.count}
    told = {name: str(value) for name, value in places.items()} | {"MASTER_ADDR": "127.0.0.1"}
    # All ranks are on this machine: its name may not resolve, its loopback is always there.
    if "GLOO_SOCKET_IFNAME" not in os.environ and Path("/sys/class/net/lo").exists():
        told["GLOO_SOCKET_IFNAME"] = "lo"
    return told


def _listen_for_where(path: Path) -> None:
    partial = path.with_suffix(".partial")
    file = partial.open("w")  # stays open: the handler writes to its descriptor
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)
    partial.rename(path)  # there only when the signal would not kill


def _report_of(error: BaseException) -> Report:
    if isinstance(error, Skipped):
        return Report("skipped", error.what)
    if isinstance(error, CheckFailed):
        return Report("wrong", error.what)
    if isinstance(error, HpmlError):
        return Report("failed", error.what)
    traceback.print_exception(error)
    if isinstance(error, SystemExit):
        return Report("failed", f"exited: {error.code}")
    return Report("failed", out_of_gpu_memory(error) or describe(error))


def _leave(report: Report, rank: Rank) -> None:
    report.at = time.monotonic()
    report.checks, report.warnings, report.attached = rank.checks, rank.warnings, rank.attached
    path = rank._team.report_of(rank.index)
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(pickle.dumps(report))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(f"what the function of the ranks returned does not pickle: {describe(error)}") from error
    partial.rename(path)
