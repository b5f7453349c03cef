"""What other processes do on the CPUs: CPU times of a /proc that says what is to be found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpml_plugins.node import CpuWatch, describe_load

TICK = os.sysconf("SC_CLK_TCK")


class Proc:
    """A /proc of two CPUs whose times advance when told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now, self.busy, self.processes = (
            folder,
            100.0,
            [50.0, 50.0, 50.0],
            {7: 1.0, 8: 1.0},
        )
        monkeypatch.setattr(
            "os.sched_getaffinity", lambda pid: {0, 1}
        )  # the third CPU is not ours
        monkeypatch.setattr("hpml_plugins.clocks.monotonic", lambda: self.now)
        # own: 0.2 CPUs, with children
        monkeypatch.setattr("resource.getrusage", lambda who: (self.now / 10, 0.0))
        monkeypatch.setattr("os.getloadavg", lambda: (10.0, 1.0, 1.0))
        self.write()

    def write(self) -> None:
        lines = [
            f"cpu{n} {s * TICK:.0f} 0 0 99999 0 0 0 0 0 0\n"
            for n, s in enumerate(self.busy)
        ]
        (self.folder / "stat").write_text("cpu 1 2 3\n" + "".join(lines) + "btime 1\n")
        for pid, seconds in self.processes.items():
            (self.folder / str(pid)).mkdir(exist_ok=True)
            (self.folder / str(pid) / "comm").write_text(f"program {pid}\n")
            # the name may hold blanks and brackets
            (self.folder / str(pid) / "stat").write_text(
                f"{pid} (a) b) R {' '.join(['0'] * 10)} {seconds * TICK:.0f} 0 0 0\n"
            )

    def advance(self, seconds: float, *cpus: float, **processes: float) -> None:
        self.now += seconds
        self.busy = [
            old + seconds * share for old, share in zip(self.busy, cpus, strict=True)
        ]
        for name, share in processes.items():
            self.processes[int(name[1:])] += seconds * share
        self.write()


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proc:
    return Proc(tmp_path, monkeypatch)


def test_what_others_use_is_all_cpu_time_on_usable_cpus_but_this_process_s_own(
    proc: Proc,
) -> None:
    watch = CpuWatch(proc.folder)
    proc.advance(10, 1.0, 0.8, 1.0, p7=0.9, p8=0.01)
    assert watch.conditions() == {"other_cpus": pytest.approx(1.6), "other_users": 0.0}
    assert watch.largest(3) == ["program 7 (process 7): 90% of a CPU"]
    assert describe_load(watch) == "load 10 on 2 CPUs: other processes use 1.6 of them"


def test_processes_of_other_users_are_counted_by_user(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: owner + 1)
    watch = CpuWatch(proc.folder)
    proc.advance(10, 1.0, 1.0, 0.0, p7=0.5, p8=0.5)
    assert watch.conditions()["other_users"] == 1.0


def test_an_idle_machine_and_one_that_does_not_report_are_no_busy_ones(proc: Proc) -> None:
    watch = CpuWatch(proc.folder)
    proc.advance(10, 0.4, 0.1, 1.0)
    assert watch.conditions()["other_cpus"] == pytest.approx(0.3)
    assert describe_load(watch) == ""
    silent = CpuWatch(proc.folder)
    proc.advance(10, 0.0, 0.0, 1.0)  # a container that shows no CPU times
    assert silent.conditions() == {}
    assert describe_load(silent) == ""
