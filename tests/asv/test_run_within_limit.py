"""`HPML_LIMIT=… asv run` measures whole points, names what did not fit, and ends with a status of
its own."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from asv_project import SQUARES, Project, of_eight_points
from support import PATIENCE

from hpml_plugins import Node
from hpml_plugins.asv.driver import showing_progress
from hpml_plugins.asv.run import Prepared
from hpml_plugins.host import make_host
from hpml_plugins.model.record import Record
from hpml_plugins.registry import read_registry
from hpml_plugins.report.progress import RunReport
from hpml_plugins.run import MEASURED_NOTHING
from hpml_plugins.store import read_file
from hpml_plugins.suite.points import last_progress, leave_progress, make_suite


@pytest.fixture(scope="module")
def project(make_project: Callable[[str], Project]) -> Project:
    """A project whose commit is built, without results."""
    return of_eight_points(make_project)


def last_line(done: CompletedProcess[str]) -> str:
    return [line for line in done.stdout.splitlines() if line][-1]


def records(project: Project) -> list[Record]:
    return [
        each
        for path in project.path.glob("results/*/records/*.jsonl")
        for each in read_file(path)
    ]


def test_what_does_not_fit_is_left_out_by_name_and_measured_by_the_next_run(
    project: Project,
) -> None:
    done = project.asv("run", HPML_LIMIT="1s")  # building the commit alone takes longer
    assert done.returncode == MEASURED_NOTHING, done.stdout + done.stderr
    assert (
        "Left out 8 points that did not fit into the limit of 1 s: slow number=1, slow number=2"
        in done.stdout
    )
    nothing = "Measured nothing: 8 points did not fit into the limit of 1 s"
    assert last_line(done) == nothing
    assert records(project) == []

    done = project.asv("run", "--skip-existing", HPML_LIMIT="10min")
    assert "Left out" not in done.stdout
    found = records(project)
    assert len(found) == len(SQUARES) and all(each.is_complete for each in found)

    done = project.asv("run", "--skip-existing", HPML_LIMIT="30s")
    assert "Left out" not in done.stdout and "Measuring" not in done.stderr
    assert done.returncode == 2  # one of them failed
    assert last_line(done) == f"Measured nothing new: {len(found)} points of an earlier run"
    assert len(records(project)) == len(found)


def test_a_round_that_outlasts_the_limit_is_ended_and_nothing_is_stored_of_it(
    project: Project,
) -> None:
    before = len(records(project))
    done = project.asv("run", "--bench", "square", HPML_LIMIT="12s", SLOW_SECONDS="250")
    assert done.returncode == MEASURED_NOTHING, done.stdout + done.stderr
    said = "limit of 12 s: slow number=1 (ended at: asleep 25%), slow number=2, "
    assert "Left out 8 points that did not fit into the " + said in done.stdout
    assert len(records(project)) == before


def test_progress_is_read_once_and_a_point_goes_on_where_it_cannot_be_written(
    tmp_path: Path, node: Node
) -> None:
    (tmp_path / "registry.yaml").write_text("version: 1\nplugins: []\n")
    host = make_host(read_registry(tmp_path / "registry.yaml"))
    suite = make_suite(host, node, "m", tmp_path)
    leave_progress(suite, "epoch 1", None)
    leave_progress(suite, "epoch 2", 0.5)
    assert last_progress(suite) == ("epoch 2", 0.5)
    assert last_progress(suite) == ("", None)
    (tmp_path / "file").touch()
    nowhere = make_suite(host, node, "m", tmp_path / "file")
    leave_progress(nowhere, "epoch 3", None)
    assert last_progress(nowhere) == ("", None)


def test_while_a_point_is_measured_its_progress_is_shown(
    tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpml_plugins.asv.driver.LOOK_EVERY", 0.001)
    (tmp_path / "registry.yaml").write_text("version: 1\nplugins: []\n")
    host = make_host(read_registry(tmp_path / "registry.yaml"))
    suite = make_suite(host, node, "m", tmp_path)
    shown: queue.Queue[tuple[str, float | None]] = queue.Queue()
    report = RunReport()
    report.progress = lambda *reached: shown.put(reached)  # type: ignore[method-assign]
    with showing_progress(Prepared(tmp_path, host, suite, report)):
        assert shown.get(timeout=PATIENCE) == (
            "",
            None,
        )  # reported nothing: it is shown too
        leave_progress(suite, "epoch 1", 0.5)
        while shown.get(timeout=PATIENCE) != ("epoch 1", 0.5):
            pass
    while not shown.empty():
        shown.get()
    leave_progress(suite, "epoch 2", None)
    assert shown.empty()
    assert last_progress(suite) == ("epoch 2", None)


def test_a_limit_that_is_no_time_ends_the_command_in_one_line(project: Project) -> None:
    done = project.asv("run", HPML_LIMIT="soon")
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert "HPML_LIMIT is 'soon', not a duration; write 9min, 540s or 1.5h" in line
