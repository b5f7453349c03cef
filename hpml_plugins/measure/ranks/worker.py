"""The process of a rank: it joins the group, runs the function, and always leaves a result.

The caller defines what the function gets (`bench.Rank`), by passing a factory for ranks.

Run as a module it is a rank started by mpirun or srun: `python -m hpml_plugins.measure.ranks.worker
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

#: s that a failed rank waits before it ends. Its end makes others fail in their collectives; the
#: wait ensures that the first failure is seen first.
LAST_WORDS = 0.3
#: Variables in which a launcher gives the rank of a process: Open MPI; MPICH and its
#: derivatives; torch.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK")


#: Creates a rank from its index, its group, its index on its node, and where it reports
#: progress.
MakeRank = Callable[[int, RankGroup, int, Progress], Member]
#: What every rank gets: the group, the factory for ranks, the function and its arguments.
Order = tuple[RankGroup, MakeRank, Callable[..., Any], tuple[Any, ...]]


def run_rank(index: int, local: int, order: Order | bytes) -> None:
    """Run the function as this rank and leave a result. A failed rank ends this process.

    local: the index among the ranks of this node.
    """
    group, make_rank, function, args = (
        pickle.loads(order) if isinstance(order, bytes) else order
    )
    end_with_parent(group.parent or None)
    faulthandler.enable(2)
    # stays open: the stack is written to its descriptor
    stack = group.file("stack", index).open("w")
    write_stack_before(group.end - clocks.wall_clock(), stack.fileno())
    if not group.parent:  # a killed mpirun or srun does not end its ranks
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
        # The others wait in their collectives; MPI's finalisation, which Python would call, would
        # wait for them.
        os._exit(1)


def _variables(index: int, group: RankGroup) -> dict[str, str]:
    """The variables that torch's launcher sets, for libraries that read them."""
    places = {
        "RANK": index,
        "LOCAL_RANK": index,
        "WORLD_SIZE": group.count,
        "LOCAL_WORLD_SIZE": group.count,
    }
    variables = {name: str(value) for name, value in places.items()} | {
        "MASTER_ADDR": "127.0.0.1"
    }
    # All ranks are on this machine: its name may not resolve, but the loopback is always
    # available.
    if "GLOO_SOCKET_IFNAME" not in os.environ and Path("/sys/class/net/lo").exists():
        variables["GLOO_SOCKET_IFNAME"] = "lo"
    return variables


def _error(index: int, error: BaseException) -> HpmlError:
    """The error that the point raises for this one."""
    if isinstance(error, Skipped):
        return Skipped(error.what)
    if isinstance(error, CheckFailed):
        return CheckFailed(f"rank {index}: {error.what}")
    return HpmlError(f"rank {index}: {describe_failure(error)}")


def main(folder: str) -> None:
    """Read the order, join as the rank assigned by the launcher, and run."""
    os.environ.pop("PYTHONSAFEPATH", None)  # only meant for this process
    variable = next(name for name in _RANKS if name in os.environ)
    local = os.environ["LOCAL_RANK" if variable == "RANK" else variable]
    run_rank(
        int(os.environ[variable]), int(local), Path(folder, "rank0.order").read_bytes()
    )


if __name__ == "__main__":
    main(sys.argv[1])
