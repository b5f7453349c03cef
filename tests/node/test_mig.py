"""MIG devices as machines of their own, over a simulated NVML: no machine that tests has MIG."""

from __future__ import annotations

import ctypes
import inspect
import os
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pynvml
import pytest
from msgspec.structs import replace as with_facts

from hpml_plugins import Bench, Benchmark, Metric, Node, Requires, find_gpu
from hpml_plugins.asv.run import facets, prepare
from hpml_plugins.measure import Context, measure_point
from hpml_plugins.measure.gpu_monitor import _Sampler
from hpml_plugins.measure.telemetry import Telemetry
from hpml_plugins.model import Gpu
from hpml_plugins.node import detect_node, machine_name, pin_devices, read_gpus
from hpml_plugins.node.detect import visible
from hpml_plugins.node.nvml import open_cards
from hpml_plugins.suite.points import MACHINE_VARIABLE, SUITE_VARIABLE

A100 = "NVIDIA A100-SXM4-40GB"
GIB = 2**30


@dataclass
class Card:
    """A card or, with `board`, a MIG device of one. places: MIG devices; None is a place without
    one."""

    uuid: str
    name: str = A100
    memory: int = 40 * GIB
    mig: bool = False
    places: list[Card | None] = field(default_factory=list)
    board: Card | None = None
    #: Multiprocessors, slices of the GPU instance, slices of the compute instance.
    size: tuple[int, int, int] = (0, 0, 0)


def with_mig(uuid: str, *places: Card | None) -> Card:
    """A card with MIG, whose devices know it."""
    card = Card(uuid, mig=True)
    card.places = [place and replace(place, board=card, mig=True) for place in places]
    return card


def mig_device(
    uuid: str, memory: int = 5 * GIB, size: tuple[int, int, int] = (14, 1, 1)
) -> Card:
    return Card(uuid, f"{A100} MIG 1g.5gb", memory, size=size)


class Nvml(types.ModuleType):
    """What is asked of NVML, under pynvml's names and with its kinds of answers."""

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
    NVML_TEMPERATURE_GPU, NVML_VOLATILE_ECC = (
        pynvml.NVML_TEMPERATURE_GPU,
        pynvml.NVML_VOLATILE_ECC,
    )
    NVML_FEATURE_ENABLED = pynvml.NVML_FEATURE_ENABLED

    def __init__(self, cards: Sequence[Card]) -> None:
        super().__init__("pynvml")
        self.cards = cards

    def _refuse(self, code: int = pynvml.NVML_ERROR_NOT_SUPPORTED) -> None:
        raise pynvml.NVMLError(code)

    def nvmlInit(self) -> None: ...

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13000

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:
        known = [
            *self.cards,
            *(place for card in self.cards for place in card.places if place),
        ]
        return next(card for card in known if card.uuid == uuid)

    def nvmlDeviceGetName(self, handle: Card) -> str:
        return handle.name

    def nvmlDeviceGetUUID(self, handle: Card) -> str:
        return handle.uuid

    def nvmlDeviceGetMemoryInfo(self, handle: Card, version: object = None) -> Any:
        return types.SimpleNamespace(total=handle.memory, used=GIB)

    def nvmlDeviceIsMigDeviceHandle(self, device: Card) -> ctypes.c_uint:
        return ctypes.c_uint(device.board is not None)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, migDevice: Card) -> Card | None:
        return migDevice.board

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Card) -> int:
        if device.board:
            self._refuse()
        return 7 if device.mig else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Card, index: int) -> Card:
        if index >= len(device.places) or (found := device.places[index]) is None:
            self._refuse(pynvml.NVML_ERROR_NOT_FOUND)
        assert found
        return found

    def nvmlDeviceGetAttributes_v2(self, device: Card) -> Any:
        if device.board is None:
            self._refuse()
        multiprocessors, whole, part = device.size
        attributes = pynvml.c_nvmlDeviceAttributes()
        attributes.multiprocessorCount = multiprocessors
        attributes.gpuInstanceSliceCount = whole
        attributes.computeInstanceSliceCount = part
        attributes.memorySizeMB = device.memory >> 20
        return attributes

    def nvmlDeviceGetMigMode(self, device: Card) -> list[int]:
        self._whole(device)
        return [int(device.mig), int(device.mig)]

    def _whole(self, device: Card) -> None:
        if device.board:
            self._refuse()

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Card) -> int:
        self._whole(handle)
        return 400_000

    def nvmlDeviceGetPowerUsage(self, handle: Card) -> int:
        return 300_000  # of the whole card, also where a MIG device is asked

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Card) -> int:
        return 9_000_000

    def nvmlDeviceGetClockInfo(self, handle: Card, type: int) -> int:
        self._whole(handle)
        return 1410

    def nvmlDeviceGetMaxClockInfo(self, handle: Card, type: int) -> int:
        self._whole(handle)
        return 1410

    def nvmlDeviceGetCudaComputeCapability(self, handle: Card) -> tuple[int, int]:
        self._whole(handle)
        return (8, 0)

    def nvmlDeviceGetViolationStatus(self, device: Card, perfPolicyType: int) -> Any:
        self._whole(device)
        return types.SimpleNamespace(violationTime=500_000_000)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Card) -> int:
        self._whole(handle)
        return 4

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Card) -> list[Any]:
        return (
            [types.SimpleNamespace(pid=7, usedGpuMemory=GIB)]
            if handle.uuid == "MIG-b"
            else []
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put cards in place of those of this machine. choice: CUDA_VISIBLE_DEVICES."""

    def put(*cards: Card, choice: str | None = None) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", Nvml(cards))
        monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if choice is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", choice)

    return put


def test_the_simulation_has_the_names_and_arguments_of_pynvml() -> None:
    simulated = {name: each for name, each in vars(Nvml).items() if name.startswith("nvml")}
    assert len(simulated) > 20
    for name, function in simulated.items():
        ours = list(inspect.signature(function).parameters)[1:]
        theirs = list(inspect.signature(getattr(pynvml, name)).parameters)
        assert ours == theirs, name


def test_a_mig_device_is_a_machine_of_its_own(machine: Callable[..., None]) -> None:
    machine(
        with_mig("GPU-1", mig_device("MIG-a"), None, mig_device("MIG-b")), choice="MIG-b"
    )
    node = detect_node()
    (gpu,) = node.gpus
    assert gpu == Gpu(
        name=f"{A100} MIG 1g.5gb",
        memory=5 * GIB,
        uuid="MIG-b",
        power_limit=400.0,
        max_sm_clock=1.41e9,
        max_memory_clock=1.41e9,
        mig=True,
        capability="8.0",
        board="GPU-1",
        multiprocessors=14,
    )
    assert machine_name(node) == "a100-sxm4-40gb-mig-1g-5gb-x1"
    assert (node.host_gpus, node.gpu_problem) == (2, "")
    assert facets(node, machine_name(node), {})["gpu"] == f"{A100} MIG 1g.5gb"
    peaks = find_gpu(node.gpu)
    assert peaks
    assert peaks.bandwidth == 1555e9 / 8


def test_the_whole_card_keeps_its_name_and_facts(machine: Callable[..., None]) -> None:
    machine(Card("GPU-1"), Card("GPU-2"))
    node = detect_node()
    assert machine_name(node) == "a100-sxm4-40gb-x2"
    assert [(gpu.board, gpu.multiprocessors, gpu.mig) for gpu in node.gpus] == [
        ("", 0, False)
    ] * 2
    assert node.host_gpus == 2


def test_cards_of_one_name_with_other_memory_are_other_machines(
    machine: Callable[..., None],
) -> None:
    names = []
    for gib in (8, 12):
        machine(Card("GPU-1", "NVIDIA GeForce RTX 3060", gib * GIB - 2**28))
        names.append(machine_name(detect_node()))
    assert names == ["rtx-3060-8gb-x1", "rtx-3060-12gb-x1"]


def test_cuda_sees_one_mig_device_and_no_card_beside_it(
    machine: Callable[..., None],
) -> None:
    cards = (
        Card("GPU-0"),
        with_mig("GPU-1", mig_device("MIG-a"), mig_device("MIG-b")),
        Card("GPU-2"),
    )
    seen = {
        None: ["MIG-a"],
        "0,2": ["GPU-0", "GPU-2"],  # an index is a card's: the third is not a MIG device
        "0,1": ["MIG-a"],
        "1": ["MIG-a"],
        "GPU-1": ["MIG-a"],
        "MIG-b": ["MIG-b"],
        "MIG-b,MIG-a": ["MIG-b"],
        "MIG-b,GPU-0": ["MIG-b"],
        "": [],
        "MIG-c": [],
        "2,MIG-c,0": ["GPU-2"],
    }
    machine(*cards)
    found = read_gpus()
    for choice, uuids in seen.items():
        assert [gpu.uuid for gpu in visible(found.gpus, choice, found.slices)] == uuids, (
            choice
        )


def test_a_mig_device_is_found_by_the_name_that_older_drivers_give_it(
    machine: Callable[..., None],
) -> None:
    machine(
        with_mig("GPU-1", mig_device("MIG-GPU-1/7/0"), mig_device("MIG-GPU-1/8/0")),
        choice="MIG-GPU-1/8/0",
    )
    assert [gpu.uuid for gpu in detect_node().gpus] == ["MIG-GPU-1/8/0"]


@pytest.mark.parametrize(
    ("size", "memory", "name"),
    [
        ((14, 1, 1), 5, "MIG 1g.5gb"),
        ((42, 3, 3), 20, "MIG 3g.20gb"),
        ((14, 3, 1), 20, "MIG 1c.3g.20gb"),
    ],
)
def test_a_mig_device_without_a_name_is_named_by_its_slices(
    machine: Callable[..., None], size: tuple[int, int, int], memory: int, name: str
) -> None:
    nameless = replace(mig_device("MIG-a", size=size, memory=memory * GIB), name=A100)
    machine(with_mig("GPU-1", nameless))
    assert detect_node().gpu == f"{A100} {name}"


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        (None, "MIG is on for NVIDIA A100-SXM4-40GB, and no MIG device exists"),
        ("MIG-gone", "CUDA_VISIBLE_DEVICES=MIG-gone names no GPU that NVML lists"),
        ("", ""),
        ("-1", ""),
    ],
)
def test_why_cuda_has_no_device_is_said(
    machine: Callable[..., None], choice: str | None, problem: str
) -> None:
    machine(with_mig("GPU-1"), choice=choice)
    node = detect_node()
    assert node.gpus == ()
    assert node.gpu_problem.startswith(problem)
    assert bool(node.gpu_problem) == bool(problem)


def test_watching_a_mig_device_tells_no_power_of_the_whole_card(
    machine: Callable[..., None],
) -> None:
    machine(with_mig("GPU-1", mig_device("MIG-a"), mig_device("MIG-b")), choice="MIG-a")
    (gpu,) = detect_node().gpus
    (card,) = open_cards([gpu])
    row = card.row()
    assert (row["sm_clock"], row["throttle_reasons"], row["memory_used"]) == (
        1.41e9,
        4.0,
        GIB,
    )
    assert (row["power"], card.power(), card.energy()) == (None, None, None)
    assert card.throttled() == 1.0
    assert card.users() == []  # those of the other device are not on this one

    sampler = _Sampler([gpu])
    telemetry = Telemetry(1)
    sampler.measure(telemetry)
    reading = telemetry.read()
    assert reading
    assert (reading.throttled, reading.power, reading.energy) == (1.0, 0.0, 0.0)
    sampler.look()
    seen = sampler.finish()
    assert "power" not in seen.series["gpu0"].columns
    # the other MIG device, not the card beside it; what it does NVML does not tell
    assert seen.conditions == {"other_processes": 0.0, "other_gpus": 1.0}


def test_cuda_counts_the_devices_as_the_record_names_them(gpu_node: Node) -> None:
    ours: dict[str, str] = {}
    assert pin_devices(gpu_node, ours) == ""
    assert ours == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    theirs = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "CUDA_VISIBLE_DEVICES": "0"}
    assert "CUDA_DEVICE_ORDER=FASTEST_FIRST was replaced by PCI_BUS_ID" in pin_devices(
        gpu_node, theirs
    )
    assert theirs == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}


def test_cuda_is_told_which_mig_device_is_measured(gpu_node: Node) -> None:
    node = with_facts(
        gpu_node, gpus=(Gpu(f"{A100} MIG 1g.5gb", uuid="MIG-b", mig=True, board="GPU-1"),)
    )
    variables = {"CUDA_VISIBLE_DEVICES": "1"}
    pin_devices(node, variables)
    assert variables["CUDA_VISIBLE_DEVICES"] == "MIG-b"


def test_asv_run_hands_the_order_on_to_what_older_commits_measure(
    gpu_node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registry.yaml").write_text("version: 1\nplugins: []\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("hpml_plugins.asv.run.detect_node", lambda: gpu_node)
    for variable in (
        SUITE_VARIABLE,
        MACHINE_VARIABLE,
    ):  # set by `prepare`; restored after the test
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    prepare(
        types.SimpleNamespace(results_dir="results"), types.SimpleNamespace(), writes=False
    )
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def measure_order(bench: Bench, *, path: str) -> dict[str, float]:
    """What CUDA would read in the measuring process and in a rank of it."""

    def note(rank: Any) -> dict[str, float]:
        Path(path, f"rank{rank.index}").write_text(os.environ.get("CUDA_DEVICE_ORDER", ""))
        return {"time": 1.0}

    Path(path, "point").write_text(os.environ.get("CUDA_DEVICE_ORDER", ""))
    bench.ranks(note, 2, backend="gloo")
    return {"time": 1.0}


@pytest.mark.parametrize("order", [None, "FASTEST_FIRST"])
def test_points_and_ranks_count_the_devices_so(
    order: str | None, gpu_node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    if order:
        monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
    metrics = [Metric("time", "s", "lower")]
    benchmark = Benchmark(
        "order",
        measure_order,
        grid={"path": [str(tmp_path)]},
        metrics=metrics,
        requires=Requires(),
    )
    record = measure_point(
        benchmark, {"path": str(tmp_path)}, Context(gpu_node, watch=False)
    )
    assert record.status == "ok", record.reason
    written = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert written == dict.fromkeys(("point", "rank0", "rank1"), "PCI_BUS_ID")
    assert os.environ.get("CUDA_DEVICE_ORDER") == order
    assert any("FASTEST_FIRST was replaced" in text for text in record.warnings) == bool(
        order
    )
