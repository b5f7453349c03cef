"""Hardware counters of kernels, read by Nsight Compute while it runs a program."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hpml_plugins.errors import HpmlError

#: Units that vary even with `--print-units base`, in our units; counts (inst, byte, %) are
#: unchanged.
_UNITS = {
    "nsecond": 1e-9,
    "ns": 1e-9,
    "usecond": 1e-6,
    "us": 1e-6,
    "msecond": 1e-3,
    "ms": 1e-3,
}
_REFUSED = "ERR_NVGPUCTRPERM"


@dataclass
class Kernel:
    """One launch of a kernel. name: with its argument types.  counters: ncu's metric → value (s, B,
    or a count)."""

    name: str
    counters: dict[str, float] = field(default_factory=dict)


def count_kernels(
    command: Sequence[str],
    counters: Sequence[str],
    *,
    cold: bool = False,
    timeout: float | None = None,
) -> list[Kernel]:
    """Run a program under ncu and return its kernels between the profiler's start and stop, in the
    order launched.

    command: a program that brackets the measured part with `torch.cuda.profiler.start()` and
    `.stop()`, or equivalents. counters: ncu's names, such as `dram__bytes_read.sum`; unknown ones
    are left out.  cold: whether to empty the caches before each kernel. Clocks are not locked. Each
    kernel may be replayed several times, so the program's own times are meaningless. Raises
    HpmlError, with the last lines of ncu's output, if ncu is missing, may not read the counters, or
    measured nothing.
    """
    wanted = list(counters)
    while True:
        try:
            return _count(command, wanted, cold, timeout)
        except HpmlError as error:
            kept = [name for name in wanted if name.partition(".")[0] not in error.what]
            if not kept or len(kept) == len(wanted):
                raise
            wanted = kept


def _count(
    command: Sequence[str], counters: Sequence[str], cold: bool, timeout: float | None
) -> list[Kernel]:
    import subprocess  # not when plugins are listed

    ncu = [
        "ncu",
        "--csv",
        "--print-units",
        "base",
        "--profile-from-start",
        "off",
        "--clock-control",
        "none",
    ]
    ncu += [
        "--target-processes",
        "all",
        "--replay-mode",
        "kernel",
        "--cache-control",
        "all" if cold else "none",
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        command = [*ncu, "--metrics", ",".join(counters), *command]
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, timeout=timeout, check=False
        )
    except FileNotFoundError:
        raise HpmlError(
            "ncu is not on the PATH; install Nsight Compute, which comes with the CUDA toolkit"
        ) from None
    except subprocess.TimeoutExpired:
        raise HpmlError(f"ncu did not finish within {timeout:g} s") from None
    output = done.stdout + done.stderr
    if _REFUSED in output:
        raise HpmlError(
            "ncu may not read the GPU's counters; run as root, or modprobe nvidia"
            " NVreg_RestrictProfilingToAdminUsers=0"
        )
    kernels = parse(done.stdout.splitlines())
    if done.returncode or not kernels:
        last = [line for line in output.splitlines() if line.strip()][-2:]
        raise HpmlError(
            f"ncu measured nothing (status {done.returncode}): {' / '.join(last)}"
        )
    return kernels


def parse(lines: Iterable[str]) -> list[Kernel]:
    """The kernels of ncu's CSV, which is mixed with other output of ncu and of the program.

    Counters that the card lacks (`n/a`) are left out. Raises HpmlError for a table without ncu's
    columns.
    """
    import csv

    kernels: dict[str, Kernel] = {}
    rows = csv.DictReader(line for line in lines if line.startswith('"'))
    try:
        for row in rows:
            kernel = kernels.setdefault(row["ID"], Kernel(row["Kernel Name"]))
            text = row["Metric Value"].replace(",", "")
            if text and text != "n/a":
                count = float(text) * _UNITS.get(row["Metric Unit"], 1.0)
                if not math.isfinite(count):
                    raise ValueError(f"{row['Metric Name']} is {count}")
                kernel.counters[row["Metric Name"]] = count
    except (KeyError, ValueError, AttributeError, TypeError, csv.Error) as error:
        raise HpmlError(
            f"ncu's table is not as expected: {type(error).__name__}: {error}"
        ) from None
    return list(kernels.values())
