"""The published peaks: complete, found by the names that NVML gives, and right where arithmetic can
tell."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from records import a_record
from support import ROOT

from hpml_plugins import Bench, Node, find_gpu, gpu_types
from hpml_plugins.errors import DefinitionError
from hpml_plugins.model import Gpu
from hpml_plugins.published import PRECISIONS, GpuType, full_name, read_data

#: Names as NVML and torch give them: older drivers leave "NVIDIA" out, or say "Tesla".
REAL_NAMES = {
    "Tesla K80": "Tesla K80",
    "Tesla P100-SXM2-16GB": "P100 SXM2",
    "Tesla P100-PCIE-16GB": "P100 PCIe 16 GB",
    "Tesla V100-SXM2-16GB": "V100 SXM2 16 GB",
    "Tesla V100-SXM2-32GB": "V100 SXM2 32 GB",
    "Tesla V100-PCIE-16GB": "V100 PCIe 16 GB",
    "Tesla V100-PCIE-32GB": "V100 PCIe 32 GB",
    "Quadro RTX 8000": "Quadro RTX 8000",
    "Tesla T4": "T4",
    "GeForce GTX 1080 Ti": "GeForce GTX 1080 Ti",
    "NVIDIA GeForce GTX 1080 Ti": "GeForce GTX 1080 Ti",
    "A100-SXM4-40GB": "A100 SXM4 40 GB",
    "NVIDIA A100-SXM4-40GB": "A100 SXM4 40 GB",
    "NVIDIA A100-PCIE-40GB": "A100 PCIe 40 GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM4 80 GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80 GB",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA B200": "B200 HGX",
    "NVIDIA GH200 480GB": "GH200 96 GB",
    "GH200 120GB": "GH200 96 GB",
    "NVIDIA GH200 144G HBM3e": "GH200 144 GB",
    "NVIDIA GB200": "GB200",
    "NVIDIA B300 SXM6 AC": "B300 HGX",
    "NVIDIA A10": "A10",
    "NVIDIA GeForce RTX 4090": "GeForce RTX 4090",
    "NVIDIA GeForce RTX 5090": "GeForce RTX 5090",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000 Blackwell",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000 Blackwell",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI325X OAM": "MI325X",
    "NVIDIA GeForce RTX 3060 12GB": "GeForce RTX 3060 12 GB",
    "NVIDIA GeForce RTX 3060 8GB": "GeForce RTX 3060 8 GB",
}
#: Cards with other peaks than the one that their name resembles.
OTHER_CARDS = [
    "none",
    "",
    "NVIDIA H200 NVL",
    "NVIDIA H100 NVL",
    "NVIDIA A10G",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "NVIDIA GeForce RTX 3060",  # which of two
    "Tesla V100S-PCIE-32GB",
    "Tesla P100-PCIE-12GB",
    "NVIDIA L40",
    "NVIDIA L4 MIG 1g.5gb",
    "NVIDIA RTX 8000 Ada",
]


def named(name: str) -> GpuType:
    (gpu,) = [gpu for gpu in gpu_types() if gpu.name == name]
    return gpu


@pytest.mark.parametrize(("nvml", "name"), REAL_NAMES.items())
def test_a_card_finds_its_row_and_no_other(nvml: str, name: str) -> None:
    assert [gpu.name for gpu in gpu_types() if gpu.matches(nvml)] == [name]
    assert find_gpu(nvml) == named(name)


def test_every_row_is_found_by_some_real_name() -> None:
    assert {gpu.name for gpu in gpu_types()} == set(REAL_NAMES.values())


@pytest.mark.parametrize("nvml", OTHER_CARDS)
def test_an_unknown_card_is_unknown(nvml: str) -> None:
    assert find_gpu(nvml) is None


def test_every_row_has_every_key_a_source_and_units_that_can_be() -> None:
    rows = yaml.safe_load((ROOT / "hpml_plugins/data/gpus.yaml").read_text())
    fields = set(GpuType.__struct_fields__)
    assert [row["name"] for row in rows if set(row) != fields] == []
    for gpu in gpu_types():
        assert gpu.source
        assert gpu.unconfirmed <= fields
        assert all(getattr(gpu, field) for field in gpu.unconfirmed)
        assert all(
            1e11 < peak < 1e16 for precision in PRECISIONS if (peak := gpu.peak(precision))
        )
        assert 8e9 <= gpu.memory < 300e9
        assert 200e9 <= gpu.bandwidth < 10e12
        assert 50 < gpu.power <= 1400


@pytest.mark.parametrize(
    ("name", "precision", "clock", "fma_per_clock", "units", "peak"),
    [
        # clock × FMA per clock and unit × 2 FLOP × units
        (
            "H100 SXM",
            "bfloat16",
            1.83e9,
            512,
            528,
            989e12,
        ),  # 1.83e9 · 512 · 2 · 528 = 989.4e12
        ("H200 SXM", "float16", 1.83e9, 512, 528, 989e12),  # the same die
        ("H200 SXM", "tf32", 1.83e9, 256, 528, 494.5e12),  # half of it
        # 1.41e9 · 256 · 2 · 432 = 311.9e12
        ("A100 SXM4 80 GB", "float16", 1.41e9, 256, 432, 312e12),
        ("A100 SXM4 40 GB", "tf32", 1.41e9, 128, 432, 156e12),
        (
            "A100 SXM4 40 GB",
            "float32",
            1.41e9,
            1,
            6912,
            19.5e12,
        ),  # 6912 CUDA cores: 19.49e12
        (
            "V100 SXM2 16 GB",
            "float16",
            1.53e9,
            64,
            640,
            125e12,
        ),  # 1.53e9 · 64 · 2 · 640 = 125.3e12
        (
            "V100 SXM2 32 GB",
            "float32",
            1.53e9,
            1,
            5120,
            15.7e12,
        ),  # 5120 CUDA cores: 15.67e12
        (
            "A10",
            "bfloat16",
            1.695e9,
            128,
            288,
            125e12,
        ),  # 1.695e9 · 128 · 2 · 288 = 125.0e12
        (
            "GeForce RTX 4090",
            "float32",
            2.52e9,
            1,
            16384,
            82.6e12,
        ),  # 16384 CUDA cores: 82.58e12
        (
            "GeForce RTX 5090",
            "float32",
            2.407e9,
            1,
            21760,
            104.8e12,
        ),  # 21760 CUDA cores: 104.75e12
        ("MI300X", "bfloat16", 2.1e9, 256, 1216, 1307.4e12),  # 1216 matrix cores: 1307.4e12
        ("T4", "float16", 1.59e9, 64, 320, 65e12),  # 1.59e9 · 64 · 2 · 320 = 65.1e12
        # 1.77e9 · 64 · 2 · 576 = 130.5e12
        ("Quadro RTX 8000", "float16", 1.77e9, 64, 576, 130.5e12),
        # one of two: 2496 CUDA cores with boost, 4.368e12
        ("Tesla K80", "float32", 0.875e9, 1, 2496, 4.37e12),
    ],
)
def test_a_peak_is_its_clock_times_its_units(
    name: str, precision: str, clock: float, fma_per_clock: int, units: int, peak: float
) -> None:
    assert (
        named(name).peak(precision)
        == peak
        == pytest.approx(clock * fma_per_clock * 2 * units, rel=0.005)
    )


def test_the_rows_of_the_h200_and_of_half_a_k80() -> None:
    h200, k80 = named("H200 SXM"), named("Tesla K80")
    assert (h200.memory, h200.bandwidth, h200.nvlink, h200.power) == (
        141e9,
        4.8e12,
        900e9,
        700,
    )
    assert (2 * k80.float64, 2 * k80.float32, 2 * k80.memory, 2 * k80.bandwidth) == (
        2.91e12,
        8.74e12,
        24e9,
        480e9,
    )  # type: ignore[operator]
    assert "half of the board" in k80.note


def test_the_b200_has_less_float64_and_float32_than_the_gb200() -> None:
    b200, gb200 = named("B200 HGX"), named("GB200")
    assert (b200.float64, b200.float32, gb200.float64, gb200.float32) == (
        37e12,
        75e12,
        40e12,
        80e12,
    )
    assert b200.unconfirmed == {"float64_tensor", "tf32", "bandwidth"}


def test_the_type_of_a_name_with_two_memories_is_picked_by_the_memory() -> None:
    found = [find_gpu("NVIDIA GeForce RTX 3060", gib * 2**30) for gib in (8, 12)]
    assert found == [named("GeForce RTX 3060 8 GB"), named("GeForce RTX 3060 12 GB")]


@pytest.mark.parametrize(
    ("card", "profile", "compute", "memory"),
    [
        ("NVIDIA A100-SXM4-40GB", "1g.5gb", 14 / 108, 1 / 8),
        ("NVIDIA A100-SXM4-40GB", "1g.5gb+me", 14 / 108, 1 / 8),
        ("NVIDIA A100-SXM4-80GB", "7g.80gb", 98 / 108, 1),
        ("NVIDIA A100-SXM4-80GB", "1g.20gb", 14 / 108, 2 / 8),
        (
            "NVIDIA A100-SXM4-80GB",
            "1c.3g.40gb",
            1 / 7,
            4 / 8,
        ),  # the memory is shared with two more
        ("NVIDIA H100 80GB HBM3", "3g.40gb", 60 / 132, 4 / 8),
        ("NVIDIA H100 80GB HBM3", "7g.80gb", 1, 1),
        ("NVIDIA H200", "1g.18gb", 16 / 132, 1 / 8),
        (
            "NVIDIA H200",
            "3g.71gb",
            3 / 7,
            4 / 8,
        ),  # its multiprocessors are not listed: by slices
        ("NVIDIA B200", "2g.45gb", 2 / 7, 2 / 8),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "1g.24gb", 1 / 4, 1 / 4),
    ],
)
def test_a_mig_device_has_its_share_of_the_peaks(
    card: str, profile: str, compute: float, memory: float
) -> None:
    whole, device = find_gpu(card), find_gpu(f"{card} MIG {profile}")
    assert whole
    assert device
    assert device.name == f"{whole.name} MIG {profile}"
    for precision in PRECISIONS:
        peak = whole.peak(precision)
        assert device.peak(precision) == (peak and pytest.approx(peak * compute))
    assert device.bandwidth == pytest.approx(whole.bandwidth * memory)
    assert device.memory == pytest.approx(whole.memory * memory)
    assert device.nvlink is None
    assert "Multi-Instance GPU User Guide" in device.source or "MIG: up to" in device.source
    assert device.matches(f"{card} MIG {profile}")
    assert not whole.matches(f"{card} MIG {profile}")


def test_the_data_of_mig_are_of_known_types_and_no_larger_than_the_card() -> None:
    variants = yaml.safe_load((ROOT / "hpml_plugins/data/gpu_variants.yaml").read_text())
    names = [name for cut in variants["slices"] for name in cut["types"]]
    assert len(set(names)) == len(names)
    assert set(names) <= {gpu.name for gpu in gpu_types()}
    for cut in variants["slices"]:
        assert cut["source"]
        for profile, multiprocessors in cut["profiles"].items():
            assert int(profile[0]) <= cut["compute"], profile
            assert multiprocessors <= cut["multiprocessors"], profile


@pytest.mark.parametrize(
    ("name", "gib", "full"),
    [
        ("NVIDIA GeForce RTX 3060", 12, "NVIDIA GeForce RTX 3060 12GB"),
        ("NVIDIA GeForce RTX 3060", 7.99, "NVIDIA GeForce RTX 3060 8GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 16, "NVIDIA GeForce RTX 4060 Ti 16GB"),
        ("NVIDIA GeForce RTX 3060 12GB", 12, "NVIDIA GeForce RTX 3060 12GB"),
        ("NVIDIA GeForce RTX 3060", 0, "NVIDIA GeForce RTX 3060"),  # not known: not guessed
        ("NVIDIA GeForce RTX 3060 Ti", 8, "NVIDIA GeForce RTX 3060 Ti"),
        ("NVIDIA H200", 140.4, "NVIDIA H200"),
        ("NVIDIA H100 80GB HBM3", 79.6, "NVIDIA H100 80GB HBM3"),
        ("NVIDIA A100-SXM4-40GB", 39.6, "NVIDIA A100-SXM4-40GB"),
    ],
)
def test_cards_of_one_name_are_told_apart_by_their_memory(
    name: str, gib: float, full: str
) -> None:
    assert full_name(name, gib * 2**30) == full


def test_names_that_stand_for_several_sizes_have_a_source_and_are_not_those_of_one_type() -> (
    None
):
    memories = yaml.safe_load((ROOT / "hpml_plugins/data/gpu_variants.yaml").read_text())[
        "memories"
    ]
    for each in memories:
        assert each["source"]
        assert len(set(each["sizes"])) > 1
    assert [name for name in REAL_NAMES if full_name(name, 1.0) != name] == []


def test_a_peak_is_asked_for_in_torchs_words_too() -> None:
    import torch

    h200 = named("H200 SXM")
    assert h200.peak(torch.float16) == h200.peak("half") == h200.peak("float16") == 989e12
    assert h200.peak(torch.float8_e4m3fn) == h200.peak("fp8") == 1979e12
    assert (h200.peak("float64"), h200.peak("float64_tensor")) == (34e12, 67e12)
    assert named("V100 SXM2 16 GB").peak(torch.bfloat16) is None
    assert h200.peak("complex64") is h200.peak("memory") is None


def test_the_bench_knows_the_peaks_of_its_node(node: Node, gpu_node: Node) -> None:
    def bench(*cards: str) -> Bench:
        gpus = tuple(Gpu(name=card) for card in cards)
        return Bench(
            Node(os="", arch="", cpu="", num_cpu=1, ram=0, python="3", gpus=gpus),
            {},
            gpus=1,
        )

    assert (
        Bench(gpu_node, {}, gpus=2).peaks == Bench(gpu_node, {}).peaks == named("H200 SXM")
    )
    assert Bench(node, {}).peaks is None
    assert bench("Quantum 9").peaks is None
    assert bench("NVIDIA L4", "NVIDIA H200").peaks == named(
        "L4"
    )  # the point uses the first
    assert Bench(bench("NVIDIA L4", "NVIDIA H200").node, {}, gpus=2).peaks is None


def test_a_fault_in_the_data_names_the_file_and_the_place() -> None:
    with pytest.raises(
        DefinitionError, match=r"data/gpus.yaml: Expected `int`, got `str` - at `\$\[0\]..."
    ):
        read_data("gpus.yaml", list[dict[str, int]])


def test_importing_the_public_names_reads_no_file_and_no_yaml() -> None:
    heavy = {"yaml", "torch", "numpy", "numba"}
    code = f"import sys, hpml_plugins; print(*{heavy} & set(sys.modules))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


@pytest.mark.parametrize(
    ("gpus", "names", "of_type"),
    [
        ([], [], "none"),
        ([{"name": "A"}, {"name": "A"}], ["A", "A"], "A"),
        ([{"name": "B"}, {"uuid": "1"}, 7], ["B", "unknown"], "B + unknown"),
        ("damaged", [], "none"),
    ],
)
def test_a_record_names_its_cards_whatever_it_tells_of_them(
    gpus: object, names: list[str], of_type: str
) -> None:
    record = a_record(node={"gpus": gpus})
    assert (record.gpu_names, record.gpu_type) == (names, of_type)
