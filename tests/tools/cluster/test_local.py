"""`hpml submit` without Slurm: the same command measures here."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cluster_site import Site
from toy_slurm import command_lines, wait_for

from hpml_plugins.node import detect_node, machine_name
from hpml_plugins.tools.cluster.submit import interrupt_on_signals, wait_here


def test_without_slurm_and_without_a_file_it_measures_here(site: Site) -> None:
    done = site.hpml("submit", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    machine = machine_name(detect_node())
    assert f"{machine}  machine {machine}, 1 commit, all benchmarks, profile full: in this terminal" in done.stdout
    assert f"{machine}: job " in done.stdout
    assert "[100.00%]" in done.stdout
    assert [record.status for record in site.records(machine)] == ["ok"] * 12
    (job,) = json.loads(site.hpml("jobs", "--json").stdout)
    assert (job["state"], job["attempts"], job["progress"]) == ("done", 1, 1.0)
    assert "0 commits: nothing to do" in site.hpml("submit", "--commits", "NEW").stdout


def test_without_a_target_it_says_what_it_would_measure_and_asks(site: Site) -> None:
    unasked = site.hpml("submit", "--profile", "full")
    assert unasked.returncode == 2
    assert "profile full: in this terminal, until it is done" in unasked.stdout
    assert unasked.stderr.endswith("name targets, or add --yes\n") and len(unasked.stderr.splitlines()) == 1

    terminal, stdin = pty.openpty()
    os.write(terminal, b"n\n")
    command = [sys.executable, "-m", "hpml_plugins", "submit"]
    asked = subprocess.run(command, cwd=site.project.path, stdin=stdin, capture_output=True, text=True, check=False)
    assert (asked.returncode, "Measure this? [y/N]" in asked.stdout) == (0, True), asked.stderr
    assert not (site.project.path / "cluster-jobs").exists()


def test_a_local_target_prepares_its_python_and_files_under_its_machine(site: Site) -> None:
    site.cluster(
        """
        version: 1
        targets:
          - name: desk
            machine: under-the-desk
            executor: local
            python: {setup: ["export HPML_PROFILE=full", "test -e asv.conf.json"]}
        """
    )
    done = site.hpml("submit", "--bench", "slow", "desk")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(site.records("under-the-desk")) == 12


def test_a_target_on_slurm_is_refused_where_there_is_none(site: Site) -> None:
    site.cluster("version: 1\ntargets:\n  - {name: h100, partition: h100}\n")
    site.env["PATH"] = "/usr/bin-without-slurm"
    done = site.hpml("submit", "--yes")
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("hpml: ") and "Traceback" not in done.stderr


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_a_local_job_that_is_cancelled_leaves_no_process(site: Site) -> None:
    site.cluster("version: 1\ntargets:\n  - {name: desk, executor: local}\n")
    command = [sys.executable, "-m", "hpml_plugins", "submit", "desk"]
    slow = {**os.environ, "TOY_SECONDS": "5"}  # that it is cancelled before it is done, however busy the machine
    with subprocess.Popen(  # as from a shell's background, where SIGINT is ignored
        command,
        cwd=site.project.path,
        env=slow,
        preexec_fn=ignore_interrupts,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        wait_for(lambda: site.records("desk"), "a record")
        (job,) = json.loads(site.hpml("jobs", "--json").stdout)
        assert (job["state"], job["attempts"]) == ("running", 1)
        assert "cancelled" in site.hpml("jobs", "desk", "--cancel").stdout
        assert run.wait(60) == 1
    wait_for(lambda: not [line for line in command_lines().values() if str(site.project.path) in line], "no process")
    done = site.hpml("jobs", "--json")
    (job,) = json.loads(done.stdout)
    assert (done.returncode, job["state"], job["reason"]) == (0, "cancelled", "interrupted; what was measured is kept")
    assert len(site.records("desk")) < 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_local_job_ends_with_the_command_that_started_it(tmp_path: Path, number: int) -> None:
    class Job:
        paths = SimpleNamespace(stdout=tmp_path / "log")
        cancelled, looked = False, 0

        def done(self) -> bool:
            self.looked += 1
            if self.looked == 1:
                os.kill(os.getpid(), number)
            return self.looked > 3

        def cancel(self, check: bool) -> None:
            self.cancelled = True

    job = Job()
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        interrupt_on_signals()
        with pytest.raises(KeyboardInterrupt):
            wait_here(tmp_path, job)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert job.cancelled and job.looked == 4  # it waited until the job had ended
