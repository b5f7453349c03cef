"""A plugin that replaces Python's clocks when it is imported is measured by those that were there
before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import PATIENCE

from hpml_plugins.model.record import Record
from hpml_plugins.model.serialization import decode

PLUGIN = """
import time
{replacing}
from hpml_plugins import Benchmark, Metric, hookimpl

def measure(bench):
    return {{"time": bench.time(lambda: sum(range(20_000)), budget=0.05)}}

@hookimpl
def hpml_benchmarks():
    return [Benchmark("toy", measure, [Metric("time", "s", "lower")], rounds=2)]
"""
#: How clocks are replaced → the code.
WAYS = {
    "standing": "time.perf_counter = time.monotonic = time.time = lambda: 0.0",
    "fast": (
        "slow = time.perf_counter\n"
        "time.perf_counter = time.monotonic = time.time = lambda: slow() / 1000"
    ),
    "backwards": (
        "slow = time.perf_counter\ntime.perf_counter = time.monotonic = time.time = lambda: -slow()"
    ),
    "all of the module": (
        "for name in list(vars(time)):\n"
        "    if callable(getattr(time, name)) and name[0] != '_': setattr(time, name, lambda *a: 0)"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_replaced_clocks_change_nothing_of_a_measurement(way: str, tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(PLUGIN.format(replacing=WAYS[way]))
    (tmp_path / "registry.yaml").write_text(
        "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "hpml_plugins", "run", "toy", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    record: Record = decode(json.dumps(json.loads(done.stdout)).encode())
    assert (record.status, record.reason) == ("ok", "")
    # 20,000 additions take a tenth of a millisecond; a busy machine ten times as long
    assert 1e-5 < record.metrics["time"].value < 1e-1
    assert record.started > 1.6e9
    assert 0.05 < record.duration < 100
