"""A queue for each GPU, in real processes: without a GPU, HPML_QUEUES names the devices of the
queues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_site import Site
from killing import command_lines
from support import PATIENCE, wait_for

PLUGIN = """
    import os
    import time
    from hpml_plugins import Benchmark, Metric, hookimpl

    def measure(bench, *, number):
        time.sleep(float(os.environ.get("TOY_SECONDS", "0.1")))
        return {"gpu": float(os.environ["CUDA_VISIBLE_DEVICES"]), "square": number ** 2}

    @hookimpl
    def hpml_benchmarks():
        metrics = [Metric("gpu", "1", "lower"), Metric("square", "1", "lower")]
        return [Benchmark(f"b{size}", measure, metrics, grid={"number": list(range(size))}) for size in (1, 2, 3)]
"""  # noqa: E501
REGISTRY = """
version: 1
plugins:
  - {name: toys, path: toys.py, profiles: {few: {b3: {number: [0]}}}}
"""
pytestmark = pytest.mark.slow

CLUSTER = """
version: 1
targets:
  - {name: toy-x1, executor: local, side_by_side: true}
"""


@pytest.fixture
def pair(site: Site) -> Site:
    """A site whose only target has two queues."""
    site.project.write("registry.yaml", REGISTRY)
    site.project.write("toys.py", PLUGIN)
    site.project.commit("toys")
    site.cluster(CLUSTER)
    site.env["HPML_QUEUES"] = "1,2"
    return site


def values(site: Site) -> dict[tuple[str, int], float]:
    """(benchmark, number) → the GPU that measured it, of all Records."""
    return {
        (record.benchmark, int(record.params["number"])): record.metrics["gpu"].samples[0]
        for record in site.records("toy-x1")
        if record.status == "ok"
    }


def stored(site: Site) -> list[Path]:
    return sorted(site.project.path.glob("results/toy-x1/*-node-*.json"))


#: 3 points → the first queue; 2 and 1 → the second
WANTED = {
    ("b3", 0): 1.0,
    ("b3", 1): 1.0,
    ("b3", 2): 1.0,
    ("b2", 0): 2.0,
    ("b2", 1): 2.0,
    ("b1", 0): 2.0,
}


def test_two_queues_measure_a_part_each_and_their_results_are_one(pair: Site) -> None:
    done = pair.hpml("submit", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert values(pair) == WANTED
    assert len(pair.records("toy-x1")) == 6
    (file,) = stored(pair)
    results = json.loads(file.read_text())["results"]
    assert results["b3.track_square"][0] == [0.0, 1.0, 4.0]
    assert results["b2.track_gpu"][0] == [2.0, 2.0]
    (job,) = pair.project.path.glob("cluster-jobs/*")
    assert not list(job.glob("queue-*/"))
    (listed,) = json.loads(pair.hpml("jobs", "--json").stdout)
    assert (listed["state"], listed["progress"]) == ("done", 1.0)

    # a run of a few points leaves the others as they were
    assert pair.hpml("submit", "--yes", "--profile", "few", "--bench", "b3").returncode == 0
    assert json.loads(file.read_text())["results"]["b3.track_square"][0] == [0.0, 1.0, 4.0]
    assert len(pair.records("toy-x1")) == 7


def test_a_queue_that_dies_costs_its_own_part_only_and_is_named(pair: Site) -> None:
    command = [sys.executable, "-m", "hpml_plugins", "submit", "--yes"]
    env = {**os.environ, **pair.env, "TOY_SECONDS": "2", "HOME": str(pair.project.home)}
    with subprocess.Popen(
        command,
        cwd=pair.project.path,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        wait_for(
            lambda: list(pair.project.path.glob("cluster-jobs/*/queue-1/toy-x1/records/*")),
            "its first record",
        )
        for pid, line in command_lines(pair.project.path / "cluster-jobs").items():
            if "queue-1-commits" in line:
                os.kill(pid, signal.SIGKILL)
        assert run.wait(PATIENCE) == 1
        assert run.stderr
        said = run.stderr.read()
    assert (
        "queue-1 (GPU 2, part 2 of 2 of the benchmarks of 1 commit) was ended by SIGKILL"
        in said
    )
    kept = values(pair)
    assert {key: gpu for key, gpu in kept.items() if gpu == 1} == {
        key: gpu for key, gpu in WANTED.items() if gpu == 1
    }
    assert 1 <= sum(gpu == 2 for gpu in kept.values()) < 3  # what the dead one had measured

    done = pair.hpml("submit", "--yes", "--skip-existing")
    assert done.returncode == 0, done.stdout + done.stderr
    assert values(pair) == WANTED
    assert len(pair.records("toy-x1")) == 6  # nothing was measured twice


def test_with_as_many_commits_as_queues_each_takes_whole_commits(pair: Site) -> None:
    pair.project.commit("cluster.yaml")
    done = pair.hpml("submit", "--yes", "--commits", "HEAD~2..HEAD", "--bench", "b2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "queue-0: GPU 1, 1 commit," in done.stdout
    assert len(stored(pair)) == 2
