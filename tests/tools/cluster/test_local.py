"""`hpml submit` without Slurm: the same command measures here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_site import Site
from toy_slurm import command_lines, wait_for

from hpml_plugins.node import detect_node, machine_name
from hpml_plugins.tools.cluster.submit import wait_here


def test_without_slurm_and_without_a_file_it_measures_here(site: Site) -> None:
    done = site.hpml("submit")
    assert done.returncode == 0, done.stdout + done.stderr
    machine = machine_name(detect_node())
    assert f"{machine}  machine {machine}, 1 commit: job " in done.stdout
    assert "[100.00%]" in done.stdout
    assert [record.status for record in site.records(machine)] == ["ok"] * 12
    (job,) = json.loads(site.hpml("jobs", "--json").stdout)
    assert (job["state"], job["attempts"], job["progress"]) == ("done", 1, 1.0)
    assert "0 commits: nothing to do" in site.hpml("submit", "--commits", "NEW").stdout


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
    done = site.hpml("submit", "--bench", "slow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(site.records("under-the-desk")) == 12


def test_a_target_on_slurm_is_refused_where_there_is_none(site: Site) -> None:
    site.cluster("version: 1\ntargets:\n  - {name: h100, partition: h100}\n")
    site.env["PATH"] = "/usr/bin-without-slurm"
    done = site.hpml("submit")
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("hpml: ") and "Traceback" not in done.stderr


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_what_ends_a_submission_cancels_its_job(tmp_path: Path) -> None:
    cancelled = []

    class Job:
        def done(self) -> bool:
            raise SystemExit(128 + signal.SIGTERM)  # as the command's handler of SIGTERM does

        def cancel(self, check: bool) -> None:
            cancelled.append(check)

    with pytest.raises(SystemExit):
        wait_here(tmp_path, Job())
    assert cancelled == [False]


def test_a_submission_that_is_terminated_with_its_group_leaves_no_process(site: Site) -> None:
    site.cluster("version: 1\ntargets:\n  - {name: desk, executor: local}\n")
    slow = {**os.environ, "TOY_SECONDS": "5"}
    command = [sys.executable, "-m", "hpml_plugins", "submit"]
    with subprocess.Popen(
        command, cwd=site.project.path, env=slow, stdout=subprocess.DEVNULL, start_new_session=True
    ) as run:
        wait_for(lambda: any(site.project.path.glob("results/desk/.lock")), "a run that has locked its machine")
        os.killpg(run.pid, signal.SIGTERM)
        assert run.wait(30) == 128 + signal.SIGTERM
    wait_for(lambda: not [line for line in command_lines().values() if str(site.project.path) in line], "no process")


def test_a_local_job_that_is_cancelled_leaves_no_process(site: Site) -> None:
    site.cluster("version: 1\ntargets:\n  - {name: desk, executor: local}\n")
    command = [sys.executable, "-m", "hpml_plugins", "submit"]
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
    done = site.hpml("jobs")
    assert done.returncode == 1
    assert "failed" in done.stdout or "lost" in done.stdout
    assert len(site.records("desk")) < 12
