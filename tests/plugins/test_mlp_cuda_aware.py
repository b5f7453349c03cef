"""Whether MPI takes GPU memory is asked of the library's own program, once for all points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpml_plugins import Node
from hpml_plugins.model.node import Gpu
from hpml_plugins.node import unmet
from hpml_plugins.plugins.mlp.cuda_aware import why_no_gpu_memory
from hpml_plugins.plugins.mlp.phases import PHASES

NODE = Node(
    os="Linux",
    arch="x86_64",
    cpu="c",
    num_cpu=8,
    ram=1e12,
    python="3.12.0",
    gpus=(Gpu("G", 8e10),) * 8,
)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that counts how often the program of this node, which tells "false", was started."""
    count = tmp_path / "count"
    program = tmp_path / "ompi_info"
    program.write_text(
        f"#!/bin/sh\necho x >>{count}\necho"
        " mca:mpi:base:param:mpi_built_with_cuda_support:value:false\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    why_no_gpu_memory.cache_clear()
    yield count
    why_no_gpu_memory.cache_clear()


def reasons(way: str) -> list[str]:
    points = [params for params in PHASES.points() if params["way"] == way]
    found = [unmet(PHASES, params, NODE) for params in points]
    return [reason for each in found for reason in each if "MPI" in reason]


def test_all_points_of_a_node_without_it_are_skipped_by_one_question(asked: Path) -> None:
    found = reasons("cuda_mpi")
    assert len(found) == sum(params["way"] == "cuda_mpi" for params in PHASES.points())
    assert set(found) == {
        "this node's Open MPI was built without support of CUDA: it does not take GPU memory"
    }
    assert asked.read_text() == "x\n"


def test_other_ways_ask_nothing(asked: Path) -> None:
    assert reasons("nccl") == reasons("mpi") == []
    assert not asked.exists()
