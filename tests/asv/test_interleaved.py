"""`asv run --interleave-rounds` comes to each commit once for each round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asv_project import Project

from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import join_rounds
from hpml_plugins.model.serialization import decode

#: Two points with three rounds, one of which fails in each, and one with one round.
PLUGIN = """
    from hpml_plugins import Benchmark, Metric, hookimpl

    def measure(bench, *, number):
        if number == 2:
            raise ValueError("always")
        return {"square": number ** 2}

    def once(bench):
        return {"square": 9}

    METRICS = [Metric("square", "1", "lower")]

    @hookimpl
    def hpml_benchmarks():
        return [
            Benchmark("often", measure, METRICS, grid={"number": [1, 2]}, rounds=3),
            Benchmark("once", once, METRICS, rounds=1),
        ]
"""


@pytest.fixture(scope="module")
def project(make_project: Callable[[str], Project]) -> Project:
    project = make_project("version: 1\nplugins:\n  - {name: own, path: own.py}\n")
    project.write("own.py", PLUGIN)
    project.commit("own")
    project.write("README.md", "changed")
    project.commit("changed")
    return project


def rounds_of(project: Project) -> list[Record]:
    """All rounds of all commits in the order of time."""
    files = project.path.glob("results/*/records/*.jsonl")
    found = [decode(line) for file in files for line in file.read_bytes().splitlines()]
    return sorted(found, key=lambda each: each.started)


def test_the_rounds_of_two_commits_are_interleaved(project: Project) -> None:
    done = project.asv("run", "--interleave-rounds", "HEAD~2..HEAD")
    assert done.returncode == 2, done.stdout + done.stderr  # a point fails by design
    rounds = rounds_of(project)
    succeeded = [
        each for each in rounds if each.benchmark == "often" and each.status == "ok"
    ]
    first, second = dict.fromkeys(each.commit for each in succeeded)
    # asv goes back and forth
    assert [each.commit for each in succeeded] == [
        first,
        second,
        second,
        first,
        first,
        second,
    ]
    for commit in (first, second):
        joined = join_rounds([each for each in rounds if each.commit == commit])
        outcomes = [(each.benchmark, each.status, each.measured_rounds) for each in joined]
        assert sorted(outcomes) == [
            ("often", "failed", 1),
            ("often", "ok", 3),
            ("once", "ok", 1),
        ]
        assert all(each.is_complete for each in joined)


def test_a_limit_is_refused(project: Project) -> None:
    done = project.asv("run", "--interleave-rounds", HPML_LIMIT="1min")
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert line.endswith("omit it, or HPML_LIMIT=1 min")
