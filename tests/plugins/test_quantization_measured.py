"""The benchmarks of the plugin `quantization`, measured in small; what is skipped and said."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from hpml_plugins import Bench, HpmlError, Node, Samples, find_gpu, load_data
from hpml_plugins.errors import CheckFailed, Skipped
from hpml_plugins.measure import SamplingPlan, meter, to_metrics
from hpml_plugins.node import needs
from hpml_plugins.plugins.quantization import (
    deploy,
    hpml_benchmarks,
    matmul,
    methods,
    networks,
    products,
    steps,
)
from hpml_plugins.plugins.quantization.deploy import lacks, size_of
from hpml_plugins.plugins.quantization.networks import Subject, enlarged
from hpml_plugins.plugins.quantization.products import cublaslt_product
from hpml_plugins.testing import Context, measure_point

BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}
# torch.ao says at every call that it will be gone one day.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that has learnt enough to be quantized, in a second."""
    monkeypatch.setattr(networks, "UPDATES", 100)
    monkeypatch.setattr(networks, "RATE", 1e-2)
    monkeypatch.setattr(steps, "BITS", (8, 4, 2))
    monkeypatch.setattr(deploy, "BUDGET", 0.05)
    monkeypatch.setattr(deploy, "BATCHES", dict.fromkeys(deploy.BATCHES, (1, 4)))


class Stopwatch(Bench):
    """A Bench for which one image takes 0.3 s, and each batch as many seconds as here."""

    seconds: ClassVar = {1: 0.3, 2: 0.4, 8: 0.5}

    def time(self, step: Callable[[], Any], **_: Any) -> Samples:
        return Samples.of([self.seconds[len(step())]], "s")


def test_later_rounds_time_the_smallest_batch_and_the_best(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(deploy.BATCHES, ("cpu", "eager"), (1, 2, 8))
    network = torch.nn.Identity()
    benches = [Stopwatch(node, {}, shared=tmp_path) for _ in range(2)]
    rounds = [
        deploy.time_batches(bench, network, torch.float32, (1, 2, 2), "eager")
        for bench in benches
    ]
    # By the time of one image, 8 would take 2.4 s, which is too long; by that of two they do not.
    assert [[each.batch for each in timed] for timed in rounds] == [[1, 2, 8], [1, 8]]


def simple_subject(**changes: Any) -> Subject:
    """A network that was not trained, and random images."""
    torch.manual_seed(0)
    images = torch.randn(40, 3, 8, 8)
    untrained = networks.simple_network((3, 8, 8), 10).eval().requires_grad_(False)
    return Subject(untrained, images, torch.zeros(40), images, (3, 8, 8), 10, **changes)


def test_accuracy_is_kept_by_integers_of_eight_bits_and_a_missing_class_is_said(
    quickly: None, node: Node
) -> None:
    params = {"data": "digits", "calibration": 8}
    bench = Bench(node, params, plan=SHORT)
    found = BENCHMARKS["quantization_steps"].measure(bench, **params)
    assert found["float_accuracy"] > 0.8
    assert found["loss"] == found["float_accuracy"] - found["integer_accuracy"]
    assert abs(found["loss"]) < 0.03
    (warning,) = bench.collected.warnings
    assert warning.startswith("the 8 calibration images show no ")
    assert "integer-only inference has floating-point tensors" in bench.collected.checks
    columns = bench.collected.series["accuracy"].columns
    # float32, and three widths, two granularities, two ranges, four steps
    assert len(columns["accuracy"]) == 1 + 3 * 2 * 2 * 4
    assert set(columns["step"]) == {"float", "weights", "activations", "biases", "integer"}
    layers = ["conv1", "conv2", "linear1", "linear2"]
    assert bench.collected.series["ranges"].columns["layer"] == [*layers, "input", *layers]
    # a byte of 0; behind a ReLU
    assert bench.collected.series["ranges"].numbers("low")[4:6] == [-2.0, 0.0]
    for name, wanted in (("weights", layers), ("activations", ["input", *layers])):
        histogram = bench.collected.series[name]
        assert list(dict.fromkeys(histogram.columns["layer"])) == wanted
        for column in ("float", "bits8", "bits4", "bits2"):
            assert sum(histogram.numbers(column)) == pytest.approx(len(wanted), rel=1e-4)


def test_wrong_integers_fail_the_point(
    quickly: None, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpml_plugins.plugins.quantization import integers

    def wrong(a: Any, b: Any) -> Any:
        return integers.exact_product(a, b) + 64

    monkeypatch.setattr(integers, "int8_product", wrong)
    params = {"data": "digits", "calibration": 64}
    with pytest.raises(
        CheckFailed, match=r"integer-only predictions differ|int8 products differ"
    ):
        BENCHMARKS["quantization_steps"].measure(Bench(node, params, plan=SHORT), **params)


@pytest.mark.parametrize("method", ["fx_static", "int8_static"])
def test_a_network_is_deployed_judged_and_timed(
    method: str, quickly: None, node: Node
) -> None:
    params = {"model": "simple", "data": "digits", "method": method, "runtime": "eager"}
    bench = Bench(node, params, plan=SHORT)
    found = BENCHMARKS["quantization_deploy_cpu"].measure(bench, **params)
    assert found["accuracy"] > 0.75
    assert found["agreement"] > 0.95
    assert 0 < found["error"] < 0.1
    assert bench.collected.series["batches"].columns["batch"] == [1.0, 4.0]
    assert found["throughput"].median == max(
        bench.collected.series["batches"].numbers("throughput")
    )
    left = [text for text in bench.collected.warnings if "left in floating point" in text]
    if method == "fx_static":
        assert left == []
        # of 13,706 parameters most have one byte instead of four: 16·10 + 32·145 + 64·129 + 10·65
        assert found["size"] < 2.5 * 13_706
    else:
        assert left == [
            "2 of 4 layers are left in floating point: conv1 (torchao quantizes linear layers), "
            "conv2 (torchao quantizes linear layers)"
        ]


STATIC = ("fx_static", "pt2e_static")


@pytest.mark.parametrize(
    "method", ["int8_weight_only", "int8_dynamic", "int8_static", "fx_dynamic", *STATIC]
)
def test_every_method_gives_nearly_the_same_logits(method: str, node: Node) -> None:
    subject = simple_subject()
    bench = Bench(node, {})
    deployed, _, _ = methods.deploy(bench, subject, method)
    with torch.no_grad():
        wanted, found = subject.network(subject.test), deployed(subject.test)
    assert 0 < float((found - wanted).norm() / wanted.norm()) < 0.03
    left = (
        bench.collected.series["left_in_float"].columns["layer"]
        if bench.collected.series
        else []
    )
    assert left == ([] if method in STATIC else ["conv1", "conv2"])
    # pt2e leaves the weights themselves to torch.compile's freezing.
    assert method == "pt2e_static" or size_of(deployed) < size_of(subject.network)


def test_of_resnet50_torchao_gets_the_pointwise_convolutions_without_stride() -> None:
    from torchvision.models import resnet50

    with torch.device("meta"):
        whole = resnet50(weights=None)
    pointwise = [
        name for name, module in whole.named_modules() if methods._is_pointwise(module)
    ]
    # two in each of 16 blocks and the first block's shortcut; the other three shortcuts have stride
    # 2
    assert len(pointwise) == 2 * 16 + 1
    assert "layer1.0.downsample.0" in pointwise
    assert "layer2.0.downsample.0" not in pointwise


def test_layers_that_cuda_cannot_multiply_are_named() -> None:
    subject = simple_subject()
    assert (
        methods._unfit(subject.network, "cuda", "int8_dynamic")["linear2"]
        == "64 → 10 is not in multiples of 8"
    )
    assert "linear1" not in methods._unfit(subject.network, "cuda", "float8_dynamic")
    assert "linear2" not in methods._unfit(subject.network, "cuda", "int8_weight_only")


def test_a_network_of_which_nothing_can_be_quantized_is_skipped(node: Node) -> None:
    bench = Bench(node, {})
    with pytest.raises(
        Skipped,
        match=r"int8_dynamic can quantize no layer of this network \(conv1: torchao quantizes",
    ):
        methods.report_left_in_float(
            bench, "int8_dynamic", ["conv1"], {"conv1": "torchao quantizes linear layers"}
        )


def test_an_unknown_method_names_the_known_ones(node: Node) -> None:
    params = {
        "model": "simple",
        "data": "digits",
        "method": "float8_dynamic",
        "runtime": "eager",
    }
    with pytest.raises(
        HpmlError,
        match="no method 'float8_dynamic' on cpu; use one of float32, bfloat16, int8_weight",
    ):
        BENCHMARKS["quantization_deploy_cpu"].measure(Bench(node, params), **params)


def test_methods_and_runtimes_that_do_not_go_together_say_so() -> None:
    assert (
        lacks("pt2e_static", "eager")
        == "pt2e leaves int8 kernels to torch.compile: use runtime=compile"
    )
    assert lacks("fx_static", "compile").endswith("use runtime=eager")
    assert lacks("int8_dynamic", "compile") == ""


def test_without_torchao_the_point_is_skipped_with_the_mend(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "is_importable", lambda module: module != "torchao")
    params = {
        "model": "simple",
        "data": "digits",
        "method": "int8_dynamic",
        "runtime": "eager",
    }
    record = measure_point(BENCHMARKS["quantization_deploy_cpu"], params, Context(node))
    assert (record.status, record.reason) == (
        "skipped",
        "needs module torchao (pip install torchao)",
    )


def test_images_of_one_channel_are_enlarged_to_three() -> None:
    images = load_data("digits").test.images[:2]
    found = enlarged(images)
    assert found.shape == (2, 3, 32, 32)
    assert torch.equal(found[:, 0], found[:, 2])


def timed_step(batch: int) -> deploy.Timed:
    return deploy.Timed(
        batch, Samples.of([1.0], "s"), Samples.of([1.0], "1/s"), lambda: None
    )


def test_energy_that_nobody_tells_is_a_warning_and_no_number(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(meter, "RAPL", tmp_path)
    bench = Bench(node, {})
    deploy.attach_energy(bench, timed_step(1))
    assert bench.collected.warnings == [
        f"energy is not known: no energy counter of the CPU in {tmp_path}"
    ]
    assert bench.collected.series == {}


def test_energy_is_the_counter_over_images(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 3 J in 2 s for 10 steps of 4 images, with the power of the idle device
    found = Samples.of([0.1], "J", gross=3 / 10, power=3 / 2, calls=10)
    bench = Bench(node, {})
    monkeypatch.setattr(bench, "energy", lambda step: found)
    deploy.attach_energy(bench, timed_step(4))
    columns = bench.collected.series["energy"].columns
    assert (columns["energy"], columns["power"], columns["images"]) == (
        [3 / 40],
        [1.5],
        [40.0],
    )


# Products


@pytest.mark.parametrize("dtype", ["float64", "float32", "tf32", "bfloat16", "int8", "fp8"])
def test_every_product_is_right_and_a_wrong_one_is_seen(dtype: str) -> None:
    tried = 0
    for name, product in products.ways(dtype, 64, "cpu", 0).items():
        if name == "by rows":
            continue  # a CPU has it in some versions of torch alone
        result = product.run()
        assert product.error(result) <= product.tolerance == products.TOLERANCE[dtype]
        result[-1, -1] += 50
        assert product.error(result) > product.tolerance
        tried += 1
    assert tried == 2


def test_tf32_is_on_while_it_is_multiplied_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    multiply = torch.mm

    def watched(*matrices: Any, **options: Any) -> Any:
        seen.append(torch.get_float32_matmul_precision())
        return multiply(*matrices, **options)

    monkeypatch.setattr(torch, "mm", watched)
    before = torch.get_float32_matmul_precision()
    for product in products.ways("tf32", 16, "cpu", 0).values():
        product.run()
    a = torch.ones(2, 2)
    products._multiply_float32("highest", a, a, out=torch.empty_like(a))
    assert seen == ["high", "high", "highest"]
    with pytest.raises(RuntimeError):
        products._multiply_float32("high", a, torch.ones(3, 3), out=a)
    assert torch.get_float32_matmul_precision() == before


def test_float64_is_drawn_with_all_its_bits() -> None:
    product = products.ways("float64", 32, "cpu", 0)["rows"]
    result = product.run()
    assert result.dtype == torch.float64
    (a, _), _ = product.run.args, product.truth  # type: ignore[attr-defined]
    assert not torch.equal(a, a.float().double())


def test_float64_is_held_against_the_peak_of_tensor_cores_where_there_are_some() -> None:
    hopper, volta = find_gpu("NVIDIA H100 80GB HBM3"), find_gpu("Tesla V100-SXM2-32GB")
    assert hopper and volta
    assert hopper.peak(matmul.peak_precision("float64", hopper)) == 67e12
    assert volta.peak(matmul.peak_precision("float64", volta)) == 7.8e12
    assert hopper.peak(matmul.peak_precision("tf32", hopper)) == 494.5e12
    assert matmul.peak_precision("float64", None) == "float64"


def test_int8_operands_use_their_range() -> None:
    assert products._to_int8(torch.tensor([[0.5, -2.0], [1.0, 0.0]])).tolist() == [
        [32, -127],
        [64, 0],
    ]


def test_cublaslt_takes_what_it_is_made_for_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = torch.ones(16, 16, dtype=torch.int8)
    with pytest.raises(ValueError, match="second by columns"):
        cublaslt_product(whole, whole, whole.int())
    with pytest.raises(
        ValueError, match=r"no product of torch\.int8 and torch\.int8 to torch\.float32"
    ):
        cublaslt_product(whole, whole.t(), whole.float())
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    with pytest.raises(RuntimeError, match="needs the package nvmath-python"):
        cublaslt_product(whole, whole.t(), whole.int())()


def test_an_unknown_product_names_the_known_ones() -> None:
    with pytest.raises(
        HpmlError,
        match="no product of 'int4'; use one of float32, bfloat16, int8, fp8, tf32, float64",
    ):
        products.ways("int4", 8, "cpu", 0)


def test_later_rounds_time_the_fastest_way_alone(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow() -> Any:
        time.sleep(2e-3)
        return sound["columns"].run()

    sound = products.ways("int8", 64, "cpu", 0)
    offered = {**sound, "columns": replace(sound["columns"], run=slow)}
    monkeypatch.setattr(products, "ways", lambda *_: offered)
    monkeypatch.setattr(matmul, "BUDGET", 0.05)
    rounds = [Bench(node, {}, plan=SHORT, shared=tmp_path) for _ in range(2)]
    for bench in rounds:
        matmul.measure(bench, dtype="int8", size=64)
    all_ways, fastest = (bench.collected.series["ways"].columns for bench in rounds)
    assert all_ways["way"] == ["columns", "rows"]
    assert fastest["way"] == ["rows"]


def test_a_product_is_measured_on_the_cpu(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "BUDGET", 0.05)
    params = {"dtype": "int8", "size": 256}
    bench = Bench(node, params, plan=SHORT)
    benchmark = BENCHMARKS["quantization_matmul_cpu"]
    found = to_metrics(benchmark, benchmark.measure(bench, **params), bench.collected.work)
    assert found["rate"].samples == pytest.approx(
        [2 * 256**3 / time for time in found["time"].samples]
    )
    assert bench.collected.series["ways"].columns["way"] == ["columns", "rows"]
    assert "share" not in bench.collected.series["ways"].columns


def test_a_way_that_is_refused_is_named_and_the_others_count(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError("cuBLAS says no\nand more")

    sound = products.ways("int8", 64, "cpu", 0)["columns"]
    offered = {"rows": products.Product(refuse, sound.truth, 0.0), "columns": sound}
    monkeypatch.setattr(products, "ways", lambda *_: offered)
    monkeypatch.setattr(matmul, "BUDGET", 0.05)
    bench = Bench(node, {}, plan=SHORT)
    matmul.measure(bench, dtype="int8", size=64)
    assert "rows cannot be done here: cuBLAS says no" in bench.collected.warnings
    assert bench.collected.series["ways"].columns["way"] == ["columns"]
    del offered["columns"]
    with pytest.raises(
        Skipped, match="nothing multiplies int8 here: rows cannot be done here"
    ):
        matmul.measure(bench, dtype="int8", size=64)
