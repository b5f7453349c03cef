"""How much GPUs of one node disturb one another: a probe on each alone, then on all at once."""

from __future__ import annotations

import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.model.record import Record, decode
from hpml_plugins.tools.cluster.job import prepare_asv

FILE = "interference.json"
Start = Callable[[int], "subprocess.Popen[bytes]"]


class Ratio(msgspec.Struct, frozen=True):
    """One metric of one point: the median with all at once over that alone, of each GPU. overlap: share, 0 to 1, of the
    longest of these points that all others ran beside it."""

    benchmark: str
    params: dict[str, str | int | float | bool]
    metric: str
    unit: str
    direction: str | None
    ratios: list[float]
    overlap: float

    def line(self) -> str:
        """In words."""
        point = " ".join([self.benchmark, *(f"{name}={value}" for name, value in self.params.items())])
        return (
            f"interference: {point} {self.metric} ({self.direction} is better): together / alone "
            f"{statistics.median(self.ratios):.4f}, of {len(self.ratios)} GPUs {min(self.ratios):.4f} to "
            f"{max(self.ratios):.4f}; {self.overlap:.0%} of the time beside one another"
        )


def probe_starter(probe: str, project: Path, environments: Sequence[Mapping[str, str]]) -> Start:
    """Starts `hpml run` of the probe's point with the environment of that number."""
    command = [sys.executable, "-m", "hpml_plugins", "run", *shlex.split(probe), "--json"]

    def start(index: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, cwd=project, env=dict(environments[index]), stdout=subprocess.PIPE, preexec_fn=prepare_asv
        )

    return start


def measure(start: Start, count: int) -> list[Ratio]:
    """Run the probe on each alone, one after the other, then on all at once. Raises HpmlError when one failed."""
    alone = [_read(start(index)) for index in range(count)]
    processes = [start(index) for index in range(count)]
    try:
        together = [_read(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return compare(alone, together)


def compare(alone: Sequence[Sequence[Record]], together: Sequence[Sequence[Record]]) -> list[Ratio]:
    """The ratio of each metric of each point, from the Records of each GPU."""
    found = []
    for place, first in enumerate(alone[0]):
        beside = [records[place] for records in together]
        for name, metric in first.metrics.items():
            single = [statistics.median(records[place].metrics[name].samples) for records in alone]
            shared = [statistics.median(record.metrics[name].samples) for record in beside]
            if not all(single):
                continue
            ratios = [many / one for one, many in zip(single, shared, strict=True)]
            found.append(
                Ratio(first.benchmark, first.params, name, metric.unit, metric.direction, ratios, overlap(beside))
            )
    return found


def overlap(records: Sequence[Record]) -> float:
    """The share of the longest of these points in which all of them ran, 0 to 1."""
    longest = max(record.duration for record in records)
    end = min(record.started + record.duration for record in records)
    return max(0.0, end - max(record.started for record in records)) / longest if longest else 0.0


def _read(process: subprocess.Popen[bytes]) -> list[Record]:
    output = process.communicate()[0]
    records = [decode(line) for line in output.splitlines() if line.startswith(b"{")]
    for record in records:
        if record.status != "ok":
            raise HpmlError(f"the probe's point {record.benchmark} {record.params} {record.status}: {record.reason}")
    if process.returncode or not records:
        raise HpmlError(f"the probe ended with status {process.returncode}")
    return records
