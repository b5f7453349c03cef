from __future__ import annotations

import ctypes
import json
import os
import re
from pathlib import Path

import pytest
from support import ROOT

from hpml_plugins import find_gpu
from hpml_plugins.asv.run import facets
from hpml_plugins.model import Gpu, Node
from hpml_plugins.model.node import FoundGpus
from hpml_plugins.node import detect, detect_node, machine_name, read_gpus
from hpml_plugins.node.detect import _cpu_numa, _cpu_quota, visible
from hpml_plugins.published import full_name


def test_this_machine_is_described_and_honest_about_gpus() -> None:
    node = detect_node()
    assert node.num_cpu >= 1
    assert node.ram > 2**28
    assert (node.gpu == "none") == (node.num_gpu == 0)


def test_machines_and_their_starts_are_told_apart_without_naming_them() -> None:
    node = detect_node()
    assert re.fullmatch("[0-9a-f]{10}", node.boot)
    assert node.boot == detect_node().boot
    assert node.boot not in Path("/proc/sys/kernel/random/boot_id").read_text().replace(
        "-", ""
    )
    assert node.virtual == ("hypervisor" in Path("/proc/cpuinfo").read_text())


def test_a_node_tells_which_part_of_its_host_it_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = min(os.sched_getaffinity(0))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {first})
    monkeypatch.setattr(
        "hpml_plugins.node.detect.read_gpus",
        lambda: FoundGpus((Gpu("a", uuid="GPU-1"), Gpu("b", uuid="GPU-2"))),
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    node = detect_node()
    assert (node.num_cpu, node.host_cpus) == (1, os.cpu_count())
    assert ([gpu.name for gpu in node.gpus], node.host_gpus) == (["b"], 2)


def test_a_control_group_may_limit_the_time_of_the_cpus(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    assert _cpu_quota(limit) == 0
    for text, cpus in (("max 100000\n", 0), ("250000 100000\n", 2.5), ("", 0)):
        limit.write_text(text)
        assert _cpu_quota(limit) == cpus


def test_the_numa_nodes_of_the_cpus_that_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("node0/cpu0", "node0/cpu1", "node0/cpumap", "node1/cpu2", "node10/cpu3"):
        (tmp_path / place).mkdir(parents=True)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {1, 3})
    assert _cpu_numa(tmp_path) == (0, 10)
    assert _cpu_numa(tmp_path / "none") == ()


def test_a_machine_without_driver_has_no_gpu_and_no_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    assert (read_gpus().gpus, read_gpus().problem) == ((), "")


@pytest.mark.parametrize(
    ("gpu", "count", "name"),
    [
        ("NVIDIA H200", 2, "h200-x2"),
        ("Tesla V100-SXM2-16GB", 1, "v100-sxm2-16gb-x1"),
        ("NVIDIA A100-SXM4-80GB", 8, "a100-sxm4-80gb-x8"),
        ("NVIDIA GeForce GTX 1080 Ti", 1, "gtx-1080-ti-x1"),
    ],
)
def test_a_gpu_machine_is_named_by_type_and_count(
    node: Node, gpu: str, count: int, name: str
) -> None:
    gpus = tuple(Gpu(name=gpu) for _ in range(count))
    assert machine_name(Node(node.os, node.arch, node.cpu, 2, 1.0, "3", gpus)) == name


def test_the_machines_that_have_results_keep_their_names(node: Node) -> None:
    checked = []
    for file in sorted((ROOT / "results").glob("*/machine.json")):
        facts = json.loads(file.read_text())
        if facts["gpu"] == "none":
            continue
        peaks = find_gpu(facts["gpu"])
        assert peaks
        name = full_name(facts["gpu"], peaks.memory)
        gpus = (Gpu(name=name, memory=peaks.memory),) * int(facts["num_gpu"])
        assert (
            machine_name(Node(node.os, node.arch, node.cpu, 2, 1.0, "3", gpus))
            == facts["machine"]
        )
        checked.append(facts["machine"])
    assert {"h100-80gb-hbm3-x1", "h200-x1", "h200-x2", "h200-x4"} <= set(checked)


@pytest.mark.parametrize(
    ("cpu", "name"),
    [
        ("AMD EPYC 9B14 96-Core Processor", "cpu-amd-epyc-9b14-x2"),
        (
            "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
            "cpu-intel-xeon-platinum-8481c-x2",
        ),
        ("", "cpu-unknown-x2"),
    ],
)
def test_a_machine_without_gpu_is_named_by_its_cpu(node: Node, cpu: str, name: str) -> None:
    assert machine_name(Node(node.os, node.arch, cpu, 2, 1.0, "3")) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("AMD EPYC", "AMD EPYC, family 25 model 1"),
        ("Intel(R) Xeon(R) Processor", "Intel(R) Xeon(R) Processor, family 25 model 1"),
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763 64-Core Processor"),
    ],
)
def test_a_cpu_whose_name_tells_no_generation_has_its_family_and_model(
    monkeypatch: pytest.MonkeyPatch, name: str, shown: str
) -> None:
    info = (
        f"vendor_id\t: X\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: {name}\nflags\t\t: fpu"
        " hypervisor\n\n"
    )
    monkeypatch.setattr(
        detect, "_read", lambda path: info * 2 if path == "/proc/cpuinfo" else ""
    )
    assert detect_node().cpu == shown


def test_a_cpu_without_a_family_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        detect, "_read", lambda path: "processor : 0\nmodel name : ARM thing\n"
    )
    assert detect_node().cpu == "ARM thing"


def test_cuda_visible_devices_chooses_as_cuda_does() -> None:
    gpus = (Gpu("a", uuid="GPU-aaa"), Gpu("b", uuid="GPU-bbb"), Gpu("c", uuid="GPU-ccc"))
    assert visible(gpus, None) == gpus
    assert [gpu.name for gpu in visible(gpus, "2,0")] == ["c", "a"]
    assert [gpu.name for gpu in visible(gpus, "GPU-bb")] == ["b"]
    assert [gpu.name for gpu in visible(gpus, "0,7,1")] == ["a"]
    assert visible(gpus, "") == ()
    assert visible(gpus, "-1") == ()


def test_facets_stay_as_first_recorded_while_the_gpus_are_the_same(gpu_node: Node) -> None:
    known = {
        "gpu": "NVIDIA H200",
        "num_gpu": "2",
        "ram": "31 GiB",
        "cpu": "another host",
        "version": 1,
    }
    assert facets(gpu_node, "h200-x2", known)["ram"] == "31 GiB"
    assert facets(gpu_node, "h200-x2", {**known, "num_gpu": "1"})["ram"] == "128 GiB"
    assert facets(gpu_node, "h200-x2", {}) == {
        "machine": "h200-x2",
        "os": "Linux",
        "arch": "x86_64",
        "cpu": "C",
        "num_cpu": "16",
        "ram": "128 GiB",
        "gpu": "NVIDIA H200",
        "num_gpu": "2",
    }
