"""The process that a rank lives in: it takes its place, runs the function, and leaves a result however that ends.

As a module it is a rank that mpirun or srun started: `python -m hpml_plugins.measure.ranks.worker FOLDER`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from hpml_plugins.errors import CheckFailed, HpmlError, RankFailed, Skipped, describe
from hpml_plugins.isolation import end_with_parent
from hpml_plugins.measure.libraries import end_compilers, out_of_gpu_memory
from hpml_plugins.measure.ranks.group import Group, RankResult, replace_file
from hpml_plugins.measure.ranks.rank import Rank

#: How long a rank that failed waits before it ends, s. Its death makes others fail in their collectives: the one who
#: was first is to be seen first.
LAST_WORDS = 0.3
#: Where a launcher says which rank a process is: Open MPI; MPICH and its kin; torch's.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK")


def run_rank(index: int, local: int, group: Group, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Run the function in its place and leave a result. A rank that failed ends this process.

    local: the place among the ranks of this node.
    """
    end_with_parent(group.parent or None)
    faulthandler.enable(2)
    if group.nodes == 1:
        stack = group.stack_file(index).open("w")  # stays open: the handler writes to its descriptor
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=False)
        replace_file(group.pid_file(index), f"{os.getpid()} {psutil.Process().create_time()}".encode())
        os.environ.update(_variables(index, group))
    os.environ.update(group.environment)

    def report(text: str, share: float | None) -> None:
        if index == 0 and group.nodes == 1:
            replace_file(group.progress_file, json.dumps((text, share)).encode())

    rank = Rank(index, group, local, report)
    try:
        with rank.connected():
            _leave(RankResult(function(rank, *args)), rank, group)
        end_compilers()
    except BaseException as error:
        _leave(RankResult(error=_error(index, error)), rank, group)
        time.sleep(LAST_WORDS)
        sys.stdout.flush()
        sys.stderr.flush()
        # The others wait in their collectives: MPI's own end, which Python would call, would wait for them.
        os._exit(1)


def _variables(index: int, group: Group) -> dict[str, str]:
    """What torch's launcher sets, for libraries that look there."""
    places = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": group.count, "LOCAL_WORLD_SIZE": group.count}
    variables = {name: str(value) for name, value in places.items()} | {"MASTER_ADDR": "127.0.0.1"}
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
    if isinstance(error, HpmlError):
        return RankFailed(f"rank {index}: {error.what}")
    traceback.print_exception(error)
    if isinstance(error, SystemExit):
        return RankFailed(f"rank {index}: exited: {error.code}")
    return RankFailed(f"rank {index}: {out_of_gpu_memory(error) or describe(error)}")


def _leave(result: RankResult, rank: Rank, group: Group) -> None:
    result.checks, result.warnings, result.attached = rank.checks, rank.warnings, rank.attached
    try:
        content = pickle.dumps(result)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise HpmlError(f"what the function of the ranks returned does not pickle: {describe(error)}") from error
    replace_file(group.result_file(rank.index), content)


def main(folder: str) -> None:
    """Read the order, take the place that the launcher gave, run."""
    index = int(next(os.environ[name] for name in _RANKS if name in os.environ))
    group, function, args = pickle.loads(Path(folder, "order.pickle").read_bytes())
    signal.alarm(int(group.timeout) + 60)  # mpirun or srun killed outright takes nobody with it
    local = int(os.environ["LOCAL_RANK"]) if group.nodes > 1 else index
    run_rank(index, local, group, function, args)


if __name__ == "__main__":
    main(sys.argv[1])
