"""A kernel's own duration from Nsight Compute: the truth that event timing is held against."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Iterable

from hpml_plugins import HpmlError

METRIC = "gpu__time_duration.sum"
_UNITS = {
    "nsecond": 1e-9,
    "ns": 1e-9,
    "usecond": 1e-6,
    "us": 1e-6,
    "msecond": 1e-3,
    "ms": 1e-3,
    "second": 1.0,
    "s": 1.0,
}


def durations(case: str, *, cold: bool) -> list[float]:
    """Seconds of each kernel of a case, in the order launched.

    cold: ncu empties the caches before each kernel; else it leaves them. The clocks are left alone. Raises HpmlError
    with ncu's last words when it cannot read the counters.
    """
    command = ["ncu", "--csv", "--profile-from-start", "off", "--clock-control", "none", "--metrics", METRIC]
    command += ["--cache-control", "all" if cold else "none", "--replay-mode", "kernel"]
    program = [sys.executable, "-m", "hpml_plugins.plugins.harness.kernels", case]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([*command, *program], capture_output=True, text=True, env=env, check=False)
    found = parse(done.stdout.splitlines())
    if done.returncode or not found:
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-2:]
        raise HpmlError(f"ncu measured nothing (status {done.returncode}): {' / '.join(last)}")
    return found


def parse(lines: Iterable[str]) -> list[float]:
    """Seconds from ncu's CSV, which stands between lines of its own and of the program."""
    table = [line for line in lines if line.startswith('"')]
    rows = csv.DictReader(table)
    return [
        float(row["Metric Value"].replace(",", "")) * _UNITS[row["Metric Unit"]]
        for row in rows
        if row["Metric Name"] == METRIC
    ]
