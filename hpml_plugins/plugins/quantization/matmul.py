"""The benchmarks `quantization_matmul_cuda` and `quantization_matmul_cpu`: the matrix products that
quantization is to speed up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples

if TYPE_CHECKING:
    from hpml_plugins import GpuType

#: Least compute capability; every CUDA device has the others.
NEEDS = {"tf32": (8, 0), "bfloat16": (8, 0), "int8": (7, 5), "fp8": (8, 9)}
BUDGET = 0.5


def measure(bench: Bench, *, dtype: str, size: int) -> dict[str, Any]:
    """Multiply two size × size matrices, hot. The metrics are those of the fastest variant; `rate`
    is 2 n³ over time.

    dtype: "tf32" multiplies float32 matrices, whose numbers the tensor cores round; "float32" does
    not round them. The series `ways` has all; they are timed in the point's first round, the
    fastest of them in the others. A way that is refused is named in a warning; the point is skipped
    when none is left, and fails when a result is wrong.
    """
    import torch

    from hpml_plugins.plugins.quantization.products import ways

    needs = NEEDS.get(dtype, (0, 0))
    if bench.device == "cuda" and (has := torch.cuda.get_device_capability()) < needs:
        bench.skip(
            f"{dtype} needs compute capability {needs[0]}.{needs[1]}, this card has"
            f" {has[0]}.{has[1]}"
        )
    times: dict[str, Samples] = {}
    products = ways(dtype, size, bench.device, bench.seed)

    def time(name: str) -> None:
        product = products[name]
        error = product.error(bench.result(product.run()))
        bench.check(
            error <= product.tolerance, f"{name}: the product differs from float64's by {error:.1e}"
        )
        times[name] = bench.time(product.run, budget=BUDGET, name=name)

    def find_fastest() -> str:
        refusal = ""
        for number, (name, product) in enumerate(products.items()):
            bench.progress(name, number / len(products))
            try:
                product.run()
            except (RuntimeError, NotImplementedError, ValueError) as error:
                refusal = f"{name} cannot be done here: {str(error).splitlines()[0][:200]}"
                bench.warn(refusal)
            else:
                time(name)
        if not times:
            bench.skip(f"nothing multiplies {dtype} here: {refusal}")
        return min(times, key=lambda name: times[name].median)

    fastest = bench.once("fastest", find_fastest)
    if fastest not in times:
        time(fastest)
    rates = [2 * size**3 / each for each in times.values()]
    columns: dict[str, list[Any]] = {
        "way": list(times),
        "rate": [rate.median for rate in rates],
        "highest": [max(rate.values) for rate in rates],
    }
    units = {"rate": "OP/s", "highest": "OP/s"}
    precision = peak_precision(dtype, bench.peaks)
    if peak := bench.peaks.peak(precision) if bench.peaks else None:
        columns["share"] = [rate / peak for rate in columns["rate"]]
        units["share"] = "1"
    elif bench.device == "cuda":
        bench.warn(f"unknown card {bench.node.gpus[0].name}: no published peak of {dtype}")
    bench.series("ways", columns, units)
    bench.work(flop=2 * size**3, dtype=precision)
    return {"time": times[fastest]}


def peak_precision(dtype: str, card: GpuType | None) -> str:
    """The published peak for products of this dtype, as for `GpuType.peak`.

    cuBLAS multiplies float64 on the tensor cores of cards that support it (A100, H100, H200), whose
    peak is twice the plain one.
    """
    return "float64_tensor" if dtype == "float64" and card and card.float64_tensor else dtype


MATMUL_CUDA = Benchmark(
    "quantization_matmul_cuda",
    measure,
    metrics=[
        Metric("time", "s", "lower", "of one product, by the fastest way"),
        Metric("rate", "OP/s", "higher", "2 n³ over time"),
    ],
    grid={
        "dtype": ("bfloat16", "int8", "fp8", "tf32", "float32", "float64"),
        "size": (1024, 2048, 4096, 8192, 16384),
    },
    requires=Requires(gpus=1, gpu_memory=20e9, modules=("torch",)),
    version="2",
    timeout=120,
    description=(
        "Square matrix products on a GPU, float64 to fp8 and int8: rate, and share of the published"
        " peak."
    ),
    terms={
        "dtype=tf32": "float32 matrices, rounded to TF32 by the tensor cores",
        "dtype=float32": "TF32 off",
    },
)
MATMUL_CPU = replace(
    MATMUL_CUDA,
    name="quantization_matmul_cpu",
    grid={"dtype": ("float32", "bfloat16", "int8", "fp8"), "size": (256, 512, 1024, 2048)},
    terms={},
    requires=Requires(modules=("torch",)),
    version="1",
    description="Square matrix products in float32, bfloat16, int8 and fp8 on the CPU.",
)
