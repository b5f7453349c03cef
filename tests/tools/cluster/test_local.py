"""`hpml submit` without Slurm: the same command measures here."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_site import Site
from killing import wait_until_gone
from support import PATIENCE, wait_for

from hpml_plugins.node import detect_node, machine_name
from hpml_plugins.tools.cluster.submit import wait_here


@pytest.mark.slow
def test_without_slurm_and_without_a_file_it_measures_here(site: Site) -> None:
    done = site.hpml("submit", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    machine = machine_name(detect_node())
    assert (
        f"{machine}  machine {machine}, 1 commit, all benchmarks, profile full: in this terminal"
        in done.stdout
    )
    assert f"{machine}: job " in done.stdout
    assert "Measured 12 points of 1 benchmark" in done.stdout
    assert [record.status for record in site.records(machine)] == ["ok"] * 12
    (job,) = json.loads(site.hpml("jobs", "--json").stdout)
    assert (job["state"], job["attempts"], job["progress"]) == ("done", 1, 1.0)
    assert "0 commits: nothing to do" in site.hpml("submit", "--commits", "NEW").stdout


def test_without_a_target_it_says_what_it_would_measure_and_asks(site: Site) -> None:
    unasked = site.hpml("submit", "--profile", "full")
    assert unasked.returncode == 2
    assert "profile full: in this terminal, until it is done" in unasked.stdout
    assert (
        unasked.stderr.endswith("name targets, or add --yes\n")
        and len(unasked.stderr.splitlines()) == 1
    )

    terminal, stdin = pty.openpty()
    os.write(terminal, b"n\n")
    command = [sys.executable, "-m", "hpml_plugins", "submit"]
    asked = subprocess.run(
        command,
        cwd=site.project.path,
        stdin=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (asked.returncode, "Measure this? [y/N]" in asked.stdout) == (0, True), (
        asked.stderr
    )
    assert not (site.project.path / "cluster-jobs").exists()


@pytest.mark.slow
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


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit(128 + signal.SIGTERM)])
def test_what_ends_a_submission_cancels_its_job_and_waits_for_its_end(
    tmp_path: Path, end: BaseException
) -> None:
    class Job:
        cancelled, looked = False, 0

        def done(self) -> bool:
            self.looked += 1
            if self.looked == 1:
                raise end
            return self.looked > 3

        def cancel(self, check: bool) -> None:
            self.cancelled = True

    job = Job()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        wait_here(tmp_path, job)
    assert job.cancelled and job.looked == 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_submission_that_is_ended_with_its_group_leaves_no_process_and_no_traceback(
    site: Site, number: signal.Signals
) -> None:
    site.cluster("version: 1\ntargets:\n  - {name: desk, executor: local}\n")
    slow = {**os.environ, "TOY_SECONDS": "5"}
    command = [sys.executable, "-m", "hpml_plugins", "submit", "desk"]
    with subprocess.Popen(
        command,
        cwd=site.project.path,
        env=slow,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        wait_for(
            lambda: any(site.project.path.glob("results/desk/.lock")),
            "a run that has locked its machine",
        )
        os.killpg(run.pid, number)
        output, _ = run.communicate(timeout=PATIENCE)
        assert run.returncode == 128 + number and "Traceback" not in output
    wait_until_gone(site.project.path)


def test_a_local_job_that_is_cancelled_leaves_no_process(site: Site) -> None:
    site.cluster("version: 1\ntargets:\n  - {name: desk, executor: local}\n")
    command = [sys.executable, "-m", "hpml_plugins", "submit", "desk"]
    # that it is cancelled before it is done, however busy the machine
    slow = {**os.environ, "TOY_SECONDS": "5"}
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
        assert run.wait(PATIENCE) == 1
    wait_until_gone(site.project.path)
    done = site.hpml("jobs", "--json")
    (job,) = json.loads(done.stdout)
    assert (done.returncode, job["state"], job["reason"]) == (
        0,
        "cancelled",
        "interrupted; measured points are kept",
    )
    assert len(site.records("desk")) < 12
