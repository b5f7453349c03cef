"""The commits, benchmarks and GPU of each queue."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpml_plugins.errors import HpmlError
from hpml_plugins.model.node import Gpu
from hpml_plugins.run import MEASURED_NOTHING, NOT_WHOLE
from hpml_plugins.tools.cluster import side_by_side
from hpml_plugins.tools.cluster.job import AsvRun, RunRequest
from hpml_plugins.tools.cluster.jobs import JobState, read_file
from hpml_plugins.tools.cluster.side_by_side import (
    SideBySide,
    _Queue,
    gpus_side_by_side,
    share_queues,
)


def test_commits_are_shared_out_whole_where_there_are_enough_and_benchmarks_otherwise() -> (
    None
):
    assert share_queues(["c1", "c2", "c3"], ["GPU-a", "GPU-b"]) == [
        _Queue(0, "GPU-a", ("c1", "c3")),
        _Queue(1, "GPU-b", ("c2",)),
    ]
    assert share_queues(["c1"], ["GPU-a", "GPU-b"]) == [
        _Queue(0, "GPU-a", ("c1",), 0, 2),
        _Queue(1, "GPU-b", ("c1",), 1, 2),
    ]


def test_gpus_are_named_by_what_stays_the_same_and_must_be_of_one_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, other = Gpu("H200", 1, "GPU-a"), Gpu("H200", 1), Gpu("L4", 1, "GPU-c")
    node = SimpleNamespace(gpus=(first, second), slices=(), problem="")
    monkeypatch.setattr(side_by_side, "read_gpus", lambda: node)
    assert gpus_side_by_side({}) == ["GPU-a", "1"]
    assert gpus_side_by_side({"CUDA_VISIBLE_DEVICES": "1,0"}) == ["1", "GPU-a"]
    node.gpus = (first, other)
    with pytest.raises(HpmlError, match=r"2 types \(H200, L4\)"):
        gpus_side_by_side({})
    assert gpus_side_by_side({"CUDA_VISIBLE_DEVICES": "0"}) == ["GPU-a"]
    node.gpus = ()
    assert gpus_side_by_side({"CUDA_VISIBLE_DEVICES": "", "HPML_QUEUES": "0,1"}) == [
        "0",
        "1",
    ]
    with pytest.raises(HpmlError, match="no GPU"):
        gpus_side_by_side({"CUDA_VISIBLE_DEVICES": ""})


def test_each_mig_device_has_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    card, whole = Gpu("A100", uuid="GPU-a", mig=True), Gpu("A100", uuid="GPU-b", mig=False)
    slices = [
        Gpu("A100 MIG 1g.5gb", uuid=uuid, mig=True, board="GPU-a")
        for uuid in ("MIG-1", "MIG-2")
    ]
    found = SimpleNamespace(gpus=(card,), slices=tuple(slices), problem="")
    monkeypatch.setattr(side_by_side, "read_gpus", lambda: found)
    assert gpus_side_by_side({}) == ["MIG-1", "MIG-2"]
    assert gpus_side_by_side({"CUDA_VISIBLE_DEVICES": "MIG-2"}) == ["MIG-2"]
    found.gpus = (card, whole)
    with pytest.raises(HpmlError, match="GPUs of 2 types"):
        gpus_side_by_side({})


def test_a_queue_that_died_is_named_with_its_part_and_its_reason(tmp_path: Path) -> None:
    job = SideBySide(str(tmp_path), "h200-x1", RunRequest(str(tmp_path), str(tmp_path)))
    queues = share_queues(["c1"], ["GPU-a", "GPU-b"])
    (tmp_path / "queue-1.log").write_text("[ 10.00%] x\nhpml: no such profile\n")
    assert job._outcome(queues, [0, 2]) == (2, "")
    assert job._outcome(queues, [0, 1]) == (
        1,
        (
            "queue-1 (GPU GPU-b, part 2 of 2 of the benchmarks of 1 commit) ended with status 1: no"
            " such profile; its results and those of the other queues (1) are kept"
        ),
    )
    assert job._outcome(queues, [0, NOT_WHOLE]) == (NOT_WHOLE, "")
    assert job._outcome(queues, [2, NOT_WHOLE]) == (2, "")  # it failed, and needs a look
    # a shard may have no point that runs on the node, a job may not
    assert job._outcome(queues, [0, MEASURED_NOTHING]) == (0, "")
    status, reason = job._outcome(queues, [MEASURED_NOTHING] * 2)
    assert status == 1 and reason.count("measured nothing: ") == 2
    assert "was ended by SIGKILL" in job._outcome(queues, [-signal.SIGKILL, 0])[1]
    assert job._outcome(queues, [-signal.SIGTERM] * 2) == (-signal.SIGTERM, "")


@pytest.mark.parametrize(
    ("status", "phase", "reason"),
    [
        (0, "done", ""),
        (NOT_WHOLE, "done", "points that did not fit into the limit were left out; "),
        (2, "done", "some points failed; "),
        (MEASURED_NOTHING, "stopped", "asv run measured nothing; its log says why"),
        (1, "stopped", "asv run ended with status 1; its log says why"),
    ],
)
def test_a_job_whose_run_ended_as_planned_is_done(
    status: int, phase: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsvRun, "_run", lambda *_, **__: (status, ""))
    job = AsvRun(str(tmp_path), "m", RunRequest(str(tmp_path), str(tmp_path)))
    with nullcontext() if phase == "done" else pytest.raises(SystemExit):
        assert job() == status
    state = read_file(tmp_path, JobState)
    assert state and state.phase == phase and state.reason.startswith(reason)
    assert bool(state.reason) == bool(reason)
