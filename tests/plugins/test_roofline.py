"""The plugin `roofline`: formulas by hand, counters to FLOP, what happens without ncu, models and
kernels on CPU."""

from __future__ import annotations

import itertools
import os
import re
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pluggy
import pytest
from support import in_new_process

from hpml_plugins import Bench, HpmlError, Node, Samples, hookspecs
from hpml_plugins.errors import Skipped
from hpml_plugins.measure import SamplingPlan, to_metrics
from hpml_plugins.model import Gpu
from hpml_plugins.plugins import roofline
from hpml_plugins.plugins.roofline import counting, formulas
from hpml_plugins.plugins.roofline.roof import COPY, MATMUL, best
from hpml_plugins.plugins.roofline.roofline import KERNEL, MODEL, POWER

SHORT = SamplingPlan(budget=0.05, warm_up=0.01, fewest=3)
SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def bench(node: Node, gpus: int = 0, **params: Any) -> Bench:
    return Bench(node, params, gpus=gpus, plan=SHORT)


def test_the_hooks_offer_five_benchmarks_and_their_figures() -> None:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(roofline)
    (offered,) = manager.hook.hpml_benchmarks()
    names = ["roofline_model", "roofline_kernel", "roof_copy", "roof_matmul", "roof_power"]
    assert [item.name for item in offered] == names
    (figures,) = manager.hook.hpml_figures()
    names = [
        "roofline",
        "types",
        "roofs",
        "points",
        "flop",
        "cards",
        "kernels",
        "tensor_cores",
    ]
    assert [figure.name for figure in figures] == names


def test_importing_roofline_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.roofline;print(*{'torch', 'torchvision', 'matplotlib',"
        " 'numpy', 'triton', 'yaml'} & set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


def test_the_ridge_points_of_v100_and_a100_are_those_of_the_seed() -> None:
    # 15.7e12 / 900e9 = 17.444…; 19.5e12 / 1555e9 = 12.540…
    assert formulas.ridge_point(15.7e12, 900e9) == pytest.approx(17.44, abs=0.005)
    assert formulas.ridge_point(19.5e12, 1555e9) == pytest.approx(12.54, abs=0.005)


def test_the_roof_rises_to_the_ridge_and_is_flat_behind_it() -> None:
    # 4 FLOP/B · 1555e9 B/s = 6.22e12; at 12.54 the peak is reached.
    assert formulas.attainable(4, 19.5e12, 1555e9) == pytest.approx(6.22e12)
    assert formulas.attainable(100, 19.5e12, 1555e9) == 19.5e12
    # Half of 6.22e12 at that intensity is a share of one half.
    assert formulas.share_of_roof(3.11e12, 4, 19.5e12, 1555e9) == pytest.approx(0.5)
    assert formulas.share_of_roof(0, 0, 19.5e12, 1555e9) is None


def test_a_product_of_matrices_has_two_flop_a_multiply_add() -> None:
    assert formulas.matmul_flop(2048) == 17_179_869_184  # 2 · 2048³


@pytest.mark.slow
@in_new_process
def test_a_resnet_has_the_flop_that_torch_counts() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from torchvision.models import get_model

    for model, step in itertools.product(("resnet18", "resnet50"), ("forward", "train")):
        with torch.device("meta"):
            network, images = (
                get_model(model).train(step == "train"),
                torch.empty(2, 3, 224, 224),
            )
            with (
                FlopCounterMode(display=False) as counter,
                torch.set_grad_enabled(step == "train"),
            ):
                found = network(images)
                if step == "train":
                    found.sum().backward()
        assert formulas.resnet_flop(model, step, 2) == counter.get_total_flops()
        assert formulas.resnet_flop("vgg16", step, 2) is None


def test_counters_become_flop_with_fma_twice_and_packed_halves_four_times() -> None:
    kernels = [
        {
            SASS.format("ffma"): 2048.0**3,
            SASS.format("fmul"): 5.0,
            counting.READ: 100.0,
            counting.WRITTEN: 20.0,
        },
        {
            SASS.format("hfma"): 10.0,
            SASS.format("hadd"): 3.0,
            SASS.format("dfma"): 7.0,
            "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 1000.0,
            counting.READ: 1.0,
            counting.WRITTEN: 2.0,
        },
    ]
    counts = counting.add_up(kernels)
    # first: 2 · 8,589,934,592 + 5; second: 4 · 10 + 2 · 3 + 2 · 7 + 1000 = 1060, of which 60
    # outside tensor cores
    assert counts.flop_of_kernels == [17_179_869_189, 1060]
    assert (counts.flop, counts.flop_outside_tensor_cores) == (
        17_179_870_249,
        17_179_869_249,
    )
    assert (counts.nbytes, list(counts.bytes_of_kernels)) == (123.0, [120.0, 3.0])
    assert counts.sees_tensor_cores
    assert counts.operations["ffma"] == 8_589_934_592


def test_what_a_card_does_not_tell_is_not_taken_for_zero() -> None:
    counts = counting.add_up([{SASS.format("ffma"): 1.0}])
    assert counts.nbytes is None
    assert not counts.sees_tensor_cores


def test_packed_float32_is_asked_for_where_there_is_some() -> None:
    packed = SASS.format("ffma2")
    assert packed in counting.counters("10.0")
    assert packed not in counting.counters("9.0")
    assert packed not in counting.counters("")
    assert len(set(counting.counters("9.0"))) == len(counting.counters("9.0")) == 9 + 4 + 2


def test_a_model_has_the_tensor_cores_of_its_precision_counted() -> None:
    every, own = set(counting.counters("9.0")), set(counting.counters("9.0", "bfloat16"))
    assert own < every
    assert {name for name in own if "tensor" in name} == {
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
    }
    assert every - own == {
        name for name in every if "tensor" in name and "bf16" not in name
    }


def test_half_precision_has_one_counter_from_hopper_on() -> None:
    def asked(capability: str) -> set[str]:
        return {
            name for name in counting.counters(capability, "float16") if "tensor" in name
        }

    assert asked("9.0") == asked("10.0") == {"sm__ops_path_tensor_src_fp16.sum"}
    assert asked("8.0") == {
        f"sm__ops_path_tensor_src_fp16_dst_{kind}.sum" for kind in ("fp16", "fp32")
    }


@pytest.mark.parametrize(
    ("dtype", "device", "capability", "reason"),
    [
        (
            "bfloat16",
            "cuda",
            "7.0",
            "bfloat16 needs compute capability 8.0, this card has 7.0",
        ),
        ("tf32", "cuda", "7.5", "tf32 needs compute capability 8.0, this card has 7.5"),
        ("tf32", "cuda", "9.0", ""),
        ("bfloat16", "cuda", "", ""),
        ("bfloat16", "cpu", "", "bfloat16 is measured on GPUs only"),
        ("float32", "cpu", "", ""),
    ],
)
def test_a_precision_that_the_node_lacks_has_its_reason(
    dtype: str, device: str, capability: str, reason: str
) -> None:
    node = Node(
        "",
        "",
        "",
        1,
        0,
        "3",
        gpus=(Gpu("", capability=capability),) if device == "cuda" else (),
    )
    with pytest.raises(Skipped, match=re.escape(reason)) if reason else nullcontext():
        formulas.require_precision(bench(node, gpus=len(node.gpus)), dtype)


def test_a_point_of_a_precision_that_the_card_lacks_is_skipped(node: Node) -> None:
    old = Node("", "", "", 1, 0, "3", gpus=(Gpu("Tesla V100-SXM2-16GB", capability="7.0"),))
    for measured, point in (
        (MODEL, {"model": "resnet18", "step": "train", "batch": 2}),
        (MATMUL, {}),
    ):
        with pytest.raises(
            Skipped, match=r"needs compute capability 8\.0, this card has 7\.0"
        ):
            measured.measure(bench(old, gpus=1), dtype="bfloat16", **point)
    with pytest.raises(Skipped, match="for a GPU's counters"):
        KERNEL.measure(bench(node), kernel="fma_float16")
    with pytest.raises(Skipped, match="more than half of this node's memory"):
        COPY.measure(bench(node), mebibytes=4097)  # twice that is more than half of 16 GiB


def test_unknown_names_are_told_the_known_ones(node: Node) -> None:
    with pytest.raises(
        HpmlError, match="no classifier 'resnet81'; did you mean 'resnet18'"
    ):
        MODEL.measure(bench(node), model="resnet81", step="train", dtype="float32", batch=1)
    with pytest.raises(HpmlError, match="no step 'backward'; use one of forward, train"):
        MODEL.measure(
            bench(node), model="resnet18", step="backward", dtype="float32", batch=1
        )
    with pytest.raises(HpmlError, match="no precision 'float8'"):
        MODEL.measure(bench(node), model="resnet18", step="train", dtype="float8", batch=1)
    for name in ("gather", "matmul_float32", "matmul_int4_64", "matmul_64", "fma_float32"):
        with pytest.raises(HpmlError, match=f"no kernel '{name}'; use scale, triad"):
            KERNEL.measure(bench(node), kernel=name)
    assert formulas.parse("matmul_tf32_8192") == ("matmul", "tf32", 8192)


def test_every_kernel_and_precision_of_the_grids_is_known() -> None:
    assert all(formulas.parse(str(kernel)) for kernel in KERNEL.grid["kernel"])
    assert {*MODEL.grid["dtype"], *MATMUL.grid["dtype"]} <= set(formulas.LEAST_CAPABILITY)


def test_resnet18_on_the_cpu_is_estimated_and_says_so(node: Node) -> None:
    used = bench(node)
    values = MODEL.measure(used, model="resnet18", step="forward", dtype="float32", batch=2)
    # torchvision gives ResNet18 1.814 G multiply-adds an image: 2 images · 2 · 1.814e9 = 7.256e9
    # FLOP.
    assert values["flop"].median == pytest.approx(7.256e9, rel=1e-3)
    # At least the weights (11,689,512 · 4 B) and the images (2 · 3 · 224² · 4 B) must be read.
    assert values["bytes"].median > 46_758_048 + 1_204_224
    assert values["intensity"].median == values["flop"].median / values["bytes"].median
    assert values["rate"].median == pytest.approx(
        values["flop"].median / values["time"].median
    )
    assert {
        values[name].info["source"] for name in ("flop", "bytes", "rate", "intensity")
    } == {"estimate"}
    assert used.collected.warnings[0] == "FLOP and bytes are estimated, not counted: no GPU"
    assert set(values) == {metric.name for metric in MODEL.metrics}


def test_a_training_step_has_about_three_times_the_flop_and_lowers_the_loss(
    node: Node,
) -> None:
    used = bench(node)
    values = MODEL.measure(used, model="resnet18", step="train", dtype="float32", batch=2)
    # Backward is two products for each of forward's, but for the first layer, whose images need no
    # gradient: 3 · 7.256e9 − 2 images · 2 · 64 · 112² · 3 · 7² = 2.1296e10
    first_layer = 2 * 2 * 64 * 112**2 * 3 * 7**2
    assert values["flop"].median == pytest.approx(3 * 7.256e9 - first_layer, rel=1e-3)
    assert any("a step lowers the loss" in check for check in used.collected.checks)


def test_estimated_bytes_are_inputs_and_results_and_no_views() -> None:
    import torch

    from hpml_plugins.plugins.roofline.steps import estimate

    a, b, bias = torch.ones(30, 20), torch.ones(20, 10), torch.ones(10)

    def run() -> Any:
        product = (
            a @ b
        )  # reads 600 + 200, writes 300 numbers; 2 · 30 · 20 · 10 = 12,000 FLOP
        product += bias  # reads 300 + 10, writes 300
        return product.t()[:7]  # views move nothing

    assert estimate(run) == (12_000, 4 * (600 + 200 + 300 + 300 + 10 + 300))


def test_kernels_agree_with_float64_and_have_the_formulas_work() -> None:
    from hpml_plugins.plugins.roofline.steps import kernel_step

    # of 4096 · 16 elements: FLOP and bytes an element
    for name, flop, nbytes in (
        ("scale", 1, 8),
        ("triad", 2, 12),
        ("relu", 0, 8),
        ("softmax", 5, 8),
    ):
        built = kernel_step(name, "cpu", seed=1, elements=2**16)
        built.run()
        assert built.error() < 1e-6
        assert built.estimate() == (flop * 2**16, nbytes * 2**16)
    built = kernel_step("matmul_float32_64", "cpu", seed=1)
    built.run()
    assert built.error() < 1e-6
    # 2 · 64³ and 3 · 64² · 4 B
    assert built.estimate() == (524_288, 49_152)


def test_a_wrong_result_is_seen() -> None:
    from hpml_plugins.plugins.roofline.steps import kernel_step

    built = kernel_step("matmul_float32_64", "cpu", seed=1)
    built.run()
    for cell in built.run.__closure__ or ():
        if cell.cell_contents.shape == (64, 64):
            # factors and product: the product should now be four times, and is twice
            cell.cell_contents.mul_(2)
    assert built.error() > 0.4


def test_a_kernel_on_the_cpu_takes_the_formulas_and_says_so(node: Node) -> None:
    used = bench(node)
    values = KERNEL.measure(used, kernel="matmul_float32_128")
    assert (values["flop"].median, values["flop_excess"], values["bytes_ratio"]) == (
        2 * 128**3,
        0,
        1,
    )
    assert values["flop"].info["source"] == "estimate"
    assert "estimated, not counted: no GPU" in used.collected.warnings[0]


def test_the_roof_is_measured_on_a_cpu(node: Node) -> None:
    used = bench(node)
    copied = to_metrics(COPY, COPY.measure(used, mebibytes=8), used.collected.work)
    # medians of few samples need not agree
    moved = [2 * 8 * 2**20 / seconds for seconds in copied["time"].samples]
    assert copied["bandwidth"].samples == pytest.approx(moved)
    assert copied["best"].samples == [max(copied["bandwidth"].samples)]


def test_the_best_sample_keeps_its_unit() -> None:
    assert best(1e9 / Samples.of([2.0, 1.0, 4.0], "s")).values == (1e9,)
    assert best(Samples.of([2.0], "B/s")).unit == "B/s"


def test_the_best_size_of_matmul_is_kept(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpml_plugins.plugins.roofline.roof.SIZES", {"cpu": (16, 256)})
    used = bench(node)
    values = MATMUL.measure(used, dtype="float32")
    sizes, rates = (
        used.collected.series["sizes"].columns[name] for name in ("size", "rate")
    )
    assert sizes == [16, 256]
    metrics = to_metrics(MATMUL, values, used.collected.work)
    work = used.collected.work["time"]
    seconds = values["time"]
    # The median of rates is not the rate of the median time where their number is even.
    assert metrics["rate"].samples == pytest.approx([work.flop / t for t in seconds.values])
    assert (values["size"], work.flop / seconds.median) == (
        sizes[rates.index(max(rates))],
        pytest.approx(max(rates)),
    )
    assert values["best"].median >= metrics["rate"].value
    assert (work.flop, work.dtype, work.roof) == (2 * values["size"] ** 3, "float32", True)


def test_no_power_limit_is_set_unless_an_operator_asks_for_one(gpu_node: Node) -> None:
    assert POWER.grid["watts"] == [0]
    with pytest.raises(Skipped, match="no power limit is set"):
        Bench(gpu_node, {}, gpus=1).power_limit(400).__enter__()


def test_later_rounds_time_the_best_size_of_matmul_alone(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpml_plugins.plugins.roofline.roof.SIZES", {"cpu": (16, 256)})
    rounds = [Bench(node, {}, plan=SHORT, shared=tmp_path) for _ in range(2)]
    first, second = (MATMUL.measure(each, dtype="float32") for each in rounds)
    assert first["size"] == second["size"]
    assert [each.collected.series["sizes"].columns["size"] for each in rounds] == [
        [16, 256],
        [first["size"]],
    ]


def test_later_rounds_do_not_count_again(
    gpu_node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ncu(
        tmp_path,
        f"VALUES = {{{counting.READ!r}: '8', {counting.WRITTEN!r}: '2'}}\n{COUNTING}",
        monkeypatch,
    )
    rounds = [Bench(gpu_node, {}, gpus=1, shared=tmp_path / "point") for _ in range(2)]
    first = counting.count(rounds[0], "kernel", ["scale", "cuda", 0])
    (tmp_path / "ncu").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert first is not None
    assert first.nbytes == 10
    assert (
        counting.count(rounds[1], "kernel", ["scale", "cuda", 0]),
        rounds[1].collected.warnings,
    ) == (first, [])


def ncu(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program `ncu` that prints what the real one would: there is no GPU where tests run."""
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


COUNTING = """
asked = sys.argv[sys.argv.index("--metrics") + 1].split(",")
print('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
for name in asked:
    print(f'"0","gemm","{name}","inst","{VALUES.get(name, "n/a")}"')
"""


def test_counts_and_their_source_come_from_ncu(
    gpu_node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        SASS.format("ffma"): "8,589,934,592",
        "sm__ops_path_tensor_src_tf32_dst_fp32.sum": "0",
        counting.READ: "33554432",
        counting.WRITTEN: "16777216",
    }
    ncu(tmp_path, f"VALUES = {values}\n{COUNTING}", monkeypatch)
    used = bench(gpu_node, gpus=1)
    counts = counting.count(used, "kernel", ["matmul_float32_2048", "cuda", 0])
    done = counting.settle(used, counts, lambda: pytest.fail("estimated"))
    assert (done.flop, done.nbytes, done.flop_source, done.bytes_source) == (
        2 * 2048**3,
        50_331_648,
        "ncu",
        "ncu",
    )
    assert used.collected.series["operations"].columns["ffma"] == [2048**3]
    assert used.collected.warnings == []


def test_a_counter_that_ncu_refuses_by_name_is_left_out(
    gpu_node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = "sm__ops_path_tensor_src_fp64.sum"
    script = f"""
if {refused!r} in sys.argv[sys.argv.index("--metrics") + 1]:
    sys.exit("==ERROR== Failed to find metric {refused}")
VALUES = {{"{SASS.format("fadd")}": 3, "sm__ops_path_tensor_src_fp16_dst_fp32.sum": 4}}
{COUNTING}
"""
    ncu(tmp_path, script, monkeypatch)
    counts = counting.count(bench(gpu_node, gpus=1), "kernel", ["scale", "cuda", 0])
    assert counts is not None
    assert counts.flop == 3 + 4


@pytest.mark.parametrize(
    ("script", "warning"),
    [
        (
            "print('==ERROR== ERR_NVGPUCTRPERM - no permission'); sys.exit(1)",
            "ncu may not read the GPU's counters",
        ),
        ("sys.exit('no kernel was launched')", "no kernel was launched"),
    ],
)
def test_without_permission_the_estimate_is_taken_and_the_reason_is_said(
    script: str,
    warning: str,
    gpu_node: Node,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ncu(tmp_path, script, monkeypatch)
    used = bench(gpu_node, gpus=1)
    done = counting.settle(
        used, counting.count(used, "kernel", ["scale", "cuda", 0]), lambda: (10.0, 5.0)
    )
    assert (done.flop, done.nbytes, done.flop_source, done.bytes_source) == (
        10.0,
        5.0,
        "estimate",
        "estimate",
    )
    (said,) = used.collected.warnings
    assert said.startswith("FLOP and bytes are estimated, not counted: ")
    assert warning in said


def test_flop_are_estimated_where_tensor_cores_cannot_be_seen_and_bytes_still_counted(
    gpu_node: Node,
) -> None:
    used = bench(gpu_node, gpus=1)
    counts = counting.add_up(
        [{SASS.format("ffma"): 1.0, counting.READ: 60.0, counting.WRITTEN: 4.0}]
    )
    done = counting.settle(used, counts, lambda: (1280.0, 999.0))
    assert (done.flop, done.nbytes, done.flop_source, done.bytes_source) == (
        1280.0,
        64.0,
        "estimate",
        "ncu",
    )
    values = counting.metrics(done, Samples.of([2.0], "s"))
    # 1280 FLOP / 64 B = 20 FLOP/B; 1280 / 2 s = 640 FLOP/s
    assert (values["intensity"].median, values["rate"].median) == (20.0, 640.0)
    assert values["intensity"].info["source"] == "ncu and estimate"
    assert "tensor cores" in used.collected.warnings[0]
