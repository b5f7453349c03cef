"""The process that a rank lives in: it takes its place, runs the function, and leaves a result
however that ends.

What the function is handed is the author's business (`bench.Rank`): who starts the ranks says how
it is made.

As a module it is a rank that mpirun or srun started: `python -m hpml_plugins.measure.ranks.worker
FOLDER`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpml_plugins import clocks
from hpml_plugins.errors import CheckFailed, HpmlError, Skipped
from hpml_plugins.isolation import end_with_parent, write_stack_before
from hpml_plugins.measure.libraries import describe_failure, end_compilers
from hpml_plugins.measure.ranks.group import Member, RankGroup, RankResult
from hpml_plugins.measure.session import Progress
from hpml_plugins.model.data_source import use_sources
from hpml_plugins.store import atomic_write

#: How long a rank that failed waits before it ends, s. Its death makes others fail in their
#: collectives: the one who was first is to be seen first.
LAST_WORDS = 0.3
#: Where a launcher says which rank a process is: Open MPI; MPICH and its kin; torch's.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK")


#: Makes a rank: of its index, its group, its place among the ranks of its node, and where it
#: reports progress.
MakeRank = Callable[[int, RankGroup, int, Progress], Member]
#: What every rank gets: the group, how a rank is made, the function and its arguments.
Order = tuple[RankGroup, MakeRank, Callable[..., Any], tuple[Any, ...]]


def run_rank(index: int, local: int, order: Order | bytes) -> None:
    """Run the function in its place and leave a result. A rank that failed ends this process.

    local: the place among the ranks of this node.
    """
    group, make_rank, function, args = (
        pickle.loads(order) if isinstance(order, bytes) else order
    )
    end_with_parent(group.parent or None)
    faulthandler.enable(2)
    # stays open: the stack is written to its descriptor
    stack = group.file("stack", index).open("w")
    write_stack_before(group.end - clocks.wall_clock(), stack.fileno())
    if not group.parent:  # mpirun or srun killed outright takes nobody with it
        faulthandler.dump_traceback_later(
            max(1.0, group.end - clocks.wall_clock() + 60), exit=True
        )
    if group.nodes == 1:
        os.environ.update(_variables(index, group))
    os.environ.update(group.environment)

    def report(text: str, share: float | None) -> None:
        if index == 0:
            atomic_write(
                group.file("progress"), json.dumps((text, share)).encode(), durable=False
            )

    rank = make_rank(index, group, local, report)
    try:
        with use_sources(group.sources), rank.connected():
            value = function(rank, *args)
            group.leave(index, RankResult(value, collected=rank.bench.collected))
        end_compilers()
    except BaseException as error:
        group.leave(index, RankResult(error=_error(index, error)))
        clocks.sleep(LAST_WORDS)
        sys.stdout.flush()
        sys.stderr.flush()
        # The others wait in their collectives: MPI's own end, which Python would call, would wait
        # for them.
        os._exit(1)


def _variables(index: int, group: RankGroup) -> dict[str, str]:
    """What torch's launcher sets, for libraries that look there."""
    places = {
        "RANK": index,
        "LOCAL_RANK": index,
        "WORLD_SIZE": group.count,
        "LOCAL_WORLD_SIZE": group.count,
    }
    variables = {name: str(value) for name, value in places.items()} | {
        "MASTER_ADDR": "127.0.0.1"
    }
    # All ranks are on this machine: its name may not resolve, its loopback is always there.
    if "GLOO_SOCKET_IFNAME" not in os.environ and Path("/sys/class/net/lo").exists():
        variables["GLOO_SOCKET_IFNAME"] = "lo"
    return variables


def _error(index: int, error: BaseException) -> HpmlError:
    """What the point raises for it."""
    if isinstance(error, Skipped):
        return Skipped(error.what)
    if isinstance(error, CheckFailed):
        return CheckFailed(f"rank {index}: {error.what}")
    return HpmlError(f"rank {index}: {describe_failure(error)}")


def main(folder: str) -> None:
    """Read the order, take the place that the launcher gave, run."""
    os.environ.pop("PYTHONSAFEPATH", None)  # was for this process alone
    variable = next(name for name in _RANKS if name in os.environ)
    local = os.environ["LOCAL_RANK" if variable == "RANK" else variable]
    run_rank(
        int(os.environ[variable]), int(local), Path(folder, "rank0.order").read_bytes()
    )


if __name__ == "__main__":
    main(sys.argv[1])
