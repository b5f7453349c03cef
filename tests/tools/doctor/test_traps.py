from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from support import ROOT

from hpml_plugins.model import Gpu, Node
from hpml_plugins.model.node import GpuHealth, GpuUser
from hpml_plugins.tools.doctor.diagnosis import (
    OPTIONAL,
    _TorchFacts,
    check_libraries,
    counters_refused,
    failed_library,
    machine_file,
    shared_memory,
    traps,
)

H200 = Gpu("NVIDIA H200", memory=141e9, capability="9.0")
TORCH = _TorchFacts("2.15.0", "13.2", ["sm_75", "sm_80", "sm_90", "sm_120"], peers=True)


def node(*gpus: Gpu, cuda: str = "13.2", driver: str = "580.1") -> Node:
    return Node("Linux 6", "x86_64", "C", 2, 1.0, "3.12", gpus or (H200,), driver, cuda)


def found(
    machine: Node,
    torch: _TorchFacts = TORCH,
    users: Any = (),
    shm: float = 2.0**33,
    health: Any = (),
    refused: bool = False,
) -> list[str]:
    findings = traps(machine, torch, list(users), shm, refused, health)
    return [f"{f.state} {f.subject}: {f.what} / {f.fix}" for f in findings]


def test_a_healthy_node_has_none() -> None:
    assert found(node()) == []


def test_a_node_without_gpu_has_none_of_these() -> None:
    assert (
        found(Node("Linux", "x", "C", 2, 1.0, "3"), _TorchFacts("2.15.0", ""), shm=1.0)
        == []
    )


def test_torch_without_cuda_on_a_node_with_a_gpu() -> None:
    (text,) = found(node(), _TorchFacts("2.15.0", ""))
    assert (
        text
        == "broken torch build: torch 2.15.0 is built without CUDA, and this node has NVIDIA"
        " H200 / "
        "install a torch built for CUDA 13.2 or older"
    )


def test_a_driver_older_than_the_runtime() -> None:
    (text,) = found(node(cuda="12.4", driver="550.54"))
    assert (
        "broken driver: driver 550.54 knows CUDA 12.4, torch 2.15.0 is built for CUDA 13.2"
        in text
    )
    assert "a torch built for CUDA 12" in text
    assert found(node(cuda="13.0")) == []  # minor version compatibility


@pytest.mark.parametrize(
    ("name", "capability", "fix"),
    [
        ("Tesla K80", "3.7", "a CUDA 11 build of torch"),
        ("Tesla P100-SXM2-16GB", "6.0", "cu126"),
        ("NVIDIA GeForce GTX 1080 Ti", "6.1", "cu126"),
        ("Tesla V100-SXM2-16GB", "7.0", "cu126"),
    ],
)
def test_a_card_too_old_for_the_build_names_one_that_has_it(
    name: str, capability: str, fix: str
) -> None:
    card = Gpu(name, capability=capability)
    (text,) = found(node(card, card))
    assert text.startswith(
        f"broken {name}: compute capability {capability}, and torch 2.15.0 (CUDA 13.2) has code"
        " for 7.5"
    )
    assert fix in text
    older = _TorchFacts(
        "2.14.0", "12.6", ["sm_37", "sm_50", "sm_60", "sm_70", "sm_90"], True
    )
    assert found(node(card), older) == []


def test_counters_for_root_only() -> None:
    (text,) = found(node(), refused=True)
    assert text.startswith("missing ncu permission: ")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in text


def test_gpus_that_do_not_reach_each_other() -> None:
    (text,) = found(node(H200, H200), _TorchFacts("2.15.0", "13.2", ["sm_90"], peers=False))
    assert text.startswith("warning peer access: ")


def test_a_small_shared_memory() -> None:
    (text,) = found(node(), shm=64 * 2.0**20)
    assert text.startswith("warning /dev/shm: 64 MiB")
    assert "--shm-size" in text


def test_mig() -> None:
    (text,) = found(
        node(Gpu("NVIDIA H200 MIG 1g.18gb", capability="9.0", mig=True, board="GPU-1"))
    )
    assert (
        "MIG is on: the MIG device NVIDIA H200 MIG 1g.18gb is measured, not the whole card"
        in text
    )


def test_somebody_else_on_the_card_is_named_with_memory_and_utilisation() -> None:
    (text,) = found(node(), users=[GpuUser("NVIDIA H200", 4711, 2.0**30, 0.97)])
    assert "process 4711 holds 1024 MiB of NVIDIA H200, 97% utilised" in text


def test_this_machines_facts_can_be_asked() -> None:
    ((finding, facts),) = check_libraries(["torch"])
    assert finding.state == "ok"
    torch = _TorchFacts(**facts)
    assert finding.what.startswith(torch.version)
    assert all(arch.startswith(("sm_", "compute_")) for arch in torch.archs)
    assert shared_memory() > 0
    assert counters_refused() in (True, False)


def test_root_is_never_refused_the_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    for user, refused in ((0, False), (1000, True)):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        monkeypatch.setattr(Path, "read_text", lambda path: "RmProfilingAdminOnly: 1\n")
        assert counters_refused() is refused


def test_an_optional_library_that_is_not_installed_is_missing_and_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = [finding for finding, _ in check_libraries(list(OPTIONAL))]
    assert {finding.state for finding in found} == {"missing"}
    assert {finding.subject: finding.fix for finding in found} == {
        name: f"pip install 'hpml-plugins[{extra}]'" for name, extra in OPTIONAL.items()
    }


def test_the_extras_bring_the_optional_libraries() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = {
        extra: {Requirement(text).name for text in project["optional-dependencies"][extra]}
        for extra in set(OPTIONAL.values())
    }
    assert all(name.replace(".", "-") in brought[extra] for name, extra in OPTIONAL.items())
    needed = {Requirement(text).name for text in project["dependencies"]}
    assert needed.isdisjoint(OPTIONAL)


def test_an_installed_library_that_does_not_import_is_broken() -> None:
    finding = failed_library("matplotlib", "ImportError: libfreetype")
    assert (finding.state, finding.fix) == ("broken", "pip install matplotlib")


def test_a_library_that_raises_or_crashes_is_a_finding_and_the_others_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("raises_here", "raise OSError('no such library')"),
        ("crashes_here", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"),
        ("works_here", "__version__ = '1.2'; print('hello')"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = [
        finding
        for finding, _ in check_libraries(["raises_here", "crashes_here", "works_here"])
    ]
    assert [(each.subject, each.state, each.what) for each in found] == [
        ("raises_here", "broken", "OSError: no such library"),
        ("crashes_here", "broken", "exit status -11"),
        ("works_here", "ok", "1.2"),
    ]


def test_failing_memory_is_reported_and_corrected_errors_are_not() -> None:
    assert found(node(), health=[GpuHealth("NVIDIA H200", corrected=9)]) == []
    (text,) = found(
        node(), health=[GpuHealth("NVIDIA H200", uncorrected=2, remap_pending=True)]
    )
    assert text.startswith(
        "warning GPU memory: the NVIDIA H200 had 2 errors that ECC could not correct since the"
        " driver was loaded, and rows wait to be replaced / nvidia-smi --gpu-reset"
    )
    (text,) = found(node(), health=[GpuHealth("NVIDIA H200", remap_failed=True)])
    assert text.startswith(
        "broken GPU memory: the NVIDIA H200 has a failing row of memory and none left"
    )


def test_a_machine_file_that_asv_cannot_read_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert machine_file(node(), tmp_path).state == "ok"
    (tmp_path / ".asv-machine.json").write_text("{")
    broken = machine_file(node(), tmp_path)
    assert (broken.state, broken.fix) == ("broken", "correct it, or move it away")
    assert ".asv-machine.json" in broken.what
