"""A power limit is set while a block runs and restored whatever happens; a simulated NVML keeps it
in a file."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import wait_for

from hpml_plugins import Bench
from hpml_plugins.errors import Skipped
from hpml_plugins.measure import gpu_monitor
from hpml_plugins.measure.gpu_monitor import GpuMonitor, _Sampler
from hpml_plugins.measure.telemetry import Telemetry
from hpml_plugins.model import Gpu, Node

CARD = Gpu(name="NVIDIA H200", uuid="GPU-1", memory=141e9)
NVML = """
import os, pathlib
limit = pathlib.Path(os.environ["LIMIT_FILE"])
def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid): return uuid
def nvmlDeviceGetPowerManagementLimit(handle): return int(limit.read_text())
def nvmlDeviceSetPowerManagementLimit(handle, milliwatts):
    if milliwatts < 200_000:
        raise RuntimeError("Invalid Argument")
    limit.write_text(str(milliwatts))
"""


class QuietSampler(_Sampler):
    """Watches no card: only the limit matters here. users: of others on the card."""

    users = 0.0

    def __init__(self, gpus: Any) -> None:
        super().__init__([])
        self.seen.conditions["other_processes"] = self.users

    def measure(self, telemetry: Telemetry) -> None:
        telemetry.write(0, gpu_monitor.Reading(time.monotonic(), 0.0))


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the card's limit, mW."""
    tmp_path.joinpath("pynvml.py").write_text(NVML)
    file = tmp_path / "limit"
    file.write_text("700000")
    monkeypatch.setenv("LIMIT_FILE", str(file))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path.cwd()}")
    monkeypatch.setattr(gpu_monitor, "_Sampler", QuietSampler)
    return file


@pytest.fixture
def monitor(limit: Path) -> Iterator[GpuMonitor]:
    """What watches the card of a point."""
    with GpuMonitor([CARD]) as made:
        wait_for(lambda: made.telemetry.read() is not None, "a reading")
        yield made


def bench(monitor: GpuMonitor, node: Node) -> Bench:
    return Bench(node, {}, gpus=1, telemetry=monitor.telemetry)


def test_the_limit_holds_while_the_block_runs(
    monitor: GpuMonitor, limit: Path, gpu_node: Node
) -> None:
    with bench(monitor, gpu_node).power_limit(400):
        assert limit.read_text() == "400000"
    assert limit.read_text() == "700000"
    with bench(monitor, gpu_node).power_limit(0):  # leaves it alone
        assert limit.read_text() == "700000"
    with pytest.raises(ZeroDivisionError), bench(monitor, gpu_node).power_limit(300):
        assert limit.read_text() == "300000"
        1 / 0  # noqa: B018
    assert limit.read_text() == "700000"


def test_a_point_that_ends_while_the_limit_holds_has_it_restored(
    monitor: GpuMonitor, limit: Path, gpu_node: Node
) -> None:
    monitor.telemetry.wanted_limits[0] = (
        400.0  # of a measuring process that was killed meanwhile
    )
    wait_for(lambda: limit.read_text() == "400000", "the limit")
    monitor.finish()
    assert limit.read_text() == "700000"


def test_killing_the_watching_process_outright_restores_the_limit(
    monitor: GpuMonitor, limit: Path
) -> None:
    monitor.telemetry.wanted_limits[0] = 400.0
    wait_for(lambda: limit.read_text() == "400000", "the limit")
    os.kill(monitor._process.pid, signal.SIGKILL)  # type: ignore[union-attr,arg-type]
    wait_for(lambda: limit.read_text() == "700000", "the limit")


def test_a_refused_limit_skips_the_point_and_changes_nothing(
    monitor: GpuMonitor, limit: Path, gpu_node: Node
) -> None:
    with (
        pytest.raises(Skipped, match="was not set to 100 W: it needs root"),
        bench(monitor, gpu_node).power_limit(100),
    ):
        raise AssertionError("measured under another limit than asked for")
    assert limit.read_text() == "700000"


def test_the_limit_of_a_card_that_others_use_is_left_alone(
    limit: Path, gpu_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QuietSampler, "users", 1.0)
    with GpuMonitor([CARD]) as monitor:
        wait_for(lambda: monitor.telemetry.read() is not None, "a reading")
        with (
            pytest.raises(Skipped, match="another process uses the GPU"),
            bench(monitor, gpu_node).power_limit(400),
        ):
            raise AssertionError("measured under another limit than asked for")
    assert limit.read_text() == "700000"


def test_without_a_watched_gpu_no_limit_is_set(node: Node) -> None:
    with pytest.raises(Skipped, match="not monitored"), Bench(node, {}).power_limit(400):
        raise AssertionError("measured under another limit than asked for")
