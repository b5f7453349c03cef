"""The benchmarks `quantization_matmul_cuda` and `quantization_matmul_cpu`: the products that quantization is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples

if TYPE_CHECKING:
    from hpml_plugins.plugins.quantization.products import Product

CUDA_DTYPES = ("bfloat16", "int8", "fp8")
CPU_DTYPES = ("float32", "bfloat16", "int8", "fp8")
#: Least compute capability.
NEEDS = {"bfloat16": (8, 0), "int8": (7, 5), "fp8": (8, 9)}
BUDGET = 0.5


def measure(bench: Bench, *, dtype: str, size: int) -> dict[str, Any]:
    """Multiply two size × size matrices, hot. The metrics are of the fastest way; the series `ways` has all.

    All ways are timed in the point's first round, the fastest of them in the others. A way that is refused is named in
    a warning; the point is skipped when none is left, and fails when a result is wrong.
    """
    import torch

    from hpml_plugins.plugins.quantization.products import ways

    if bench.device == "cuda" and (has := torch.cuda.get_device_capability()) < NEEDS[dtype]:
        bench.skip(
            f"{dtype} needs compute capability {'.'.join(map(str, NEEDS[dtype]))}, this card has {has[0]}.{has[1]}"
        )
    times: dict[str, Samples] = {}
    products = ways(dtype, size, bench.device, bench.seed)

    def find_fastest() -> str:
        for number, (name, product) in enumerate(products.items()):
            bench.progress(name, number / len(products))
            try:
                product.run()
            except (RuntimeError, NotImplementedError, ValueError) as error:
                bench.warn(f"{name} cannot be done here: {str(error).splitlines()[0][:200]}")
                continue
            times[name] = _time(bench, name, product)
        if not times:
            bench.skip(f"nothing multiplies {dtype} here: {bench.warnings[-1]}")
        return min(times, key=lambda name: times[name].median)

    fastest = bench.once("fastest", find_fastest)
    if fastest not in times:
        times[fastest] = _time(bench, fastest, products[fastest])
    rates = {name: 2 * size**3 / time for name, time in times.items()}
    peak = bench.peaks.peak(dtype) if bench.peaks else None
    medians = [rate.median for rate in rates.values()]
    highest = [max(rate.values) for rate in rates.values()]
    columns: dict[str, list[Any]] = {"way": list(rates), "rate": medians, "highest": highest}
    if peak:
        columns["share"] = [median / peak for median in medians]
    elif bench.device == "cuda":
        bench.warn(f"unknown card {bench.node.gpus[0].name}: no published peak of {dtype}")
    bench.series("ways", columns, {"rate": "OP/s", "highest": "OP/s", **({"share": "1"} if peak else {})})
    return {"time": times[fastest], "rate": rates[fastest]}


def _time(bench: Bench, name: str, product: Product) -> Samples:
    off = product.error(bench.result(product.run()))
    bench.check(off <= product.tolerance, f"{name}: the product differs from float64's by {off:.1e}")
    return bench.time(product.run, budget=BUDGET, name=name)


METRICS = (
    Metric("time", "s", "lower", "of one product, by the fastest way"),
    Metric("rate", "OP/s", "higher", "2 n³ over time"),
)
MATMUL_CUDA = Benchmark(
    "quantization_matmul_cuda",
    measure,
    METRICS,
    grid={"dtype": CUDA_DTYPES, "size": (1024, 2048, 4096, 8192, 16384)},
    requires=Requires(gpus=1, gpu_memory=20e9, modules=("torch",)),
    version="2",
    timeout=120,
    description="Square matrix products in bfloat16, int8 and fp8 on a GPU: rate, and share of the published peak.",
)
MATMUL_CPU = Benchmark(
    "quantization_matmul_cpu",
    measure,
    METRICS,
    grid={"dtype": CPU_DTYPES, "size": (256, 512, 1024, 2048)},
    requires=Requires(modules=("torch",)),
    version="1",
    timeout=120,
    description="Square matrix products in float32, bfloat16, int8 and fp8 on the CPU.",
)
