"""Jobs on a real Slurm: munge, a controller and two nodes, all on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any

import pytest
import toy_slurm
from cluster_site import Site
from support import assert_nothing_lost, wait_for

POINTS = list(range(12))


def jobs(site: Site) -> dict[str, dict[str, Any]]:
    done = site.hpml("jobs", "--json")
    assert done.returncode in (0, 1), done.stderr
    return {row["target"]: row for row in json.loads(done.stdout)}


def submit(site: Site, *args: str) -> None:
    done = site.hpml("submit", "--yes", *args)
    assert done.returncode == 0, done.stderr


def wait_for_state(site: Site, target: str, *states: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def reached() -> bool:
        time.sleep(1)  # each look starts a process, which slows what it waits for
        found.update(jobs(site)[target])
        return found["state"] in states

    wait_for(
        reached, f"{target} to be {states}", lambda: logs(site) + str(found), patience=3600
    )
    return found


def wait_for_records(site: Site, machine: str, count: int) -> None:
    wait_for(
        lambda: len(site.records(machine)) >= count,
        f"{count} records",
        lambda: logs(site),
    )


def logs(site: Site) -> str:
    files = site.project.path.glob("cluster-jobs/*/*log*")
    return "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in files)


def numbers(site: Site, machine: str) -> list[int]:
    return sorted(
        int(record.params["number"])
        for record in site.records(machine)
        if record.status == "ok"
    )


def test_two_nodes_measure_at_once_under_their_machines_names(slurm_site: Site) -> None:
    submit(slurm_site)
    wait_for_records(slurm_site, "first", 1)
    wait_for_records(slurm_site, "two", 1)
    for target, machine, node in (("first", "first", "n1"), ("second", "two", "n2")):
        found = wait_for_state(slurm_site, target, "done", "failed", "lost")
        assert (found["state"], found["reason"], found["node"]) == ("done", "", node), logs(
            slurm_site
        )
        assert found["attempts"] == 1
        # The state is written by the job, the progress read from its log, which may be a moment
        # behind.
        wait_for(
            lambda target=target: jobs(slurm_site)[target]["progress"] == 1.0,
            "all of the progress",
        )
        assert numbers(slurm_site, machine) == POINTS
        (file,) = slurm_site.project.path.glob(f"results/{machine}/*-node-*.json")
        stored = json.loads(file.read_text())
        assert (
            stored["params"]["machine"],
            stored["results"]["slow.track_square"][0][11],
        ) == (
            machine,
            121.0,
        )
    starts = [
        {record.started for record in slurm_site.records(machine)}
        for machine in ("first", "two")
    ]
    assert max(map(min, starts)) < min(map(max, starts))  # they did overlap

    done = slurm_site.hpml("submit", "--yes", "--commits", "NEW")
    assert "first  machine first, 0 commits: nothing to do" in done.stdout
    assert "100%" in slurm_site.hpml("jobs", "first", "--tail", "3").stdout


@pytest.mark.slow
def test_a_cancelled_job_is_shown_as_such_and_another_goes_on_where_it_stopped(
    slurm_site: Site,
) -> None:
    submit(slurm_site, "first", "--bench", "slow")
    wait_for_records(slurm_site, "first", 1)
    job = jobs(slurm_site)["first"]
    assert (job["state"], job["node"]) == ("running", "n1")
    assert slurm_site.hpml("jobs", "first", "--cancel").returncode == 0
    found = wait_for_state(slurm_site, "first", "cancelled")
    assert found["reason"] == "Slurm says CANCELLED"
    assert slurm_site.hpml("jobs").returncode == 0
    kept = slurm_site.records("first")
    submit(slurm_site, "first", "--skip-existing")

    def is_complete() -> bool:
        records = slurm_site.records("first")
        return numbers(slurm_site, "first") == POINTS and all(
            record.is_complete for record in records
        )

    wait_for(is_complete, "the rest", lambda: logs(slurm_site))
    assert_nothing_lost(kept, slurm_site.records("first"))


def test_slurms_refusal_is_shown_and_the_other_targets_are_submitted(
    slurm_site: Site,
) -> None:
    slurm_site.cluster(
        """
        version: 1
        targets:
          - {name: wrong, partition: nowhere}
          - {name: broken, partition: b, python: {setup: ["false"]}}
        """
    )
    done = slurm_site.hpml("submit", "--yes")
    assert done.returncode == 1
    assert (
        "target 'wrong' was refused" in done.stderr and "invalid partition" in done.stderr
    )
    found = wait_for_state(slurm_site, "broken", "failed")
    assert "it never started asv; see its log" in found["reason"]
    assert jobs(slurm_site)["wrong"]["state"] == "failed"
    (log,) = slurm_site.project.path.glob("cluster-jobs/*-broken/*log.out")
    assert "hpml: failed: false" in log.read_text()


@pytest.mark.slow
def test_a_preempted_job_is_started_again_and_goes_on_where_it_stopped(
    slurm_site: Site, slurm: toy_slurm.Slurm
) -> None:
    submit(slurm_site, "first")
    wait_for_records(slurm_site, "first", 2)
    urgent = ["sbatch", "-p", "urgent", "-o", "/dev/null", "--wrap", "sleep 2"]
    subprocess.run(urgent, env={**os.environ, **slurm.env}, check=True, capture_output=True)
    wait_for(
        lambda: jobs(slurm_site)["first"]["state"] == "pending", "preemption", slurm.log
    )
    kept = len(slurm_site.records("first"))
    found = wait_for_state(slurm_site, "first", "done", "failed", "lost")
    assert (found["state"], found["attempts"]) == ("done", 2), logs(slurm_site)
    assert 2 <= kept < 12
    assert numbers(slurm_site, "first") == POINTS


@pytest.mark.slow
def test_a_requeued_job_goes_on_where_it_stopped(
    slurm_site: Site, slurm: toy_slurm.Slurm
) -> None:
    submit(slurm_site, "second")
    wait_for_records(slurm_site, "two", 2)
    slurm.ask("scontrol", "requeue", jobs(slurm_site)["second"]["id"])
    found = wait_for_state(slurm_site, "second", "done", "failed", "lost")
    assert (found["state"], found["attempts"]) == ("done", 2), logs(slurm_site)
    assert numbers(slurm_site, "two") == POINTS


@pytest.mark.slow
def test_a_job_whose_time_is_nearly_up_stops_by_itself_and_goes_on_later(
    slurm_site: Site,
) -> None:
    # Of 3 minutes, the warning 60 s before the end comes after 120 s, or, as Slurm looks once a
    # minute, after 60 s. 12 points take 12 · 12 = 144 s, so one start is not enough.
    source = (slurm_site.project.path / "slow.py").read_text()
    assert '"0.3"' in source
    slurm_site.project.write("slow.py", source.replace('"0.3"', '"12"'))
    slurm_site.project.commit("slower")
    slurm_site.cluster(
        "version: 1\ntargets:\n  - {name: first, partition: a, hours: 0.05, warning: 60}\n"
    )
    submit(slurm_site)
    found = wait_for_state(slurm_site, "first", "done", "failed", "lost")
    assert found["state"] == "done", logs(slurm_site)
    assert found["attempts"] >= 2
    assert numbers(slurm_site, "first") == POINTS


@pytest.mark.slow
def test_a_node_that_dies_and_comes_back_finishes_its_job(
    slurm_site: Site, slurm: toy_slurm.Slurm
) -> None:
    submit(slurm_site, "second")
    wait_for_records(slurm_site, "two", 2)
    slurm.kill_node("n2")
    kept = len(slurm_site.records("two"))
    wait_for(
        lambda: "down" in slurm.ask("sinfo", "-h", "-p", "b", "-o", "%t"),
        "n2 to be down",
        slurm.log,
    )
    assert jobs(slurm_site)["second"]["state"] == "pending"
    slurm.start_node("n2")
    found = wait_for_state(slurm_site, "second", "done", "failed", "lost")
    assert found["state"] == "done", logs(slurm_site)
    assert (
        found["attempts"] >= 2
    )  # Slurm may start it once more while the node comes and goes
    assert 2 <= kept < 12
    assert numbers(slurm_site, "two") == POINTS
