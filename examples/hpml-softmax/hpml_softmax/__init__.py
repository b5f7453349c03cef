"""Softmax of each row of a float32 matrix, by torch and by a Triton kernel."""

from hpml_plugins import (
    Axis,
    Benchmark,
    Figure,
    Metric,
    Requires,
    Table,
    hookimpl,
    line_chart,
)

ROWS = 2048


def bytes_moved(rows, cols):
    """Each element is read once and written once, 4 B each: what a fused softmax cannot do
    without."""
    return 2 * 4 * rows * cols


def triton_has_a_gpu(node, point):
    """Why this point cannot be measured on that node, or ""."""
    return (
        "Triton compiles for GPUs, this node has none"
        if point["by"] == "triton" and not node.gpus
        else ""
    )


def measure(bench, *, by, cols):
    import torch

    torch.manual_seed(bench.seed)
    x = torch.randn(ROWS, cols, device=bench.device)
    if by == "triton":
        from hpml_softmax.kernel import softmax
    else:

        def softmax(x):
            return torch.softmax(x, dim=1)

    y = bench.result(softmax(x))
    bench.check(
        torch.allclose(y.double(), torch.softmax(x.double(), dim=1), atol=1e-6),
        "softmax differs from float64",
    )
    time = bench.time(lambda: softmax(x))
    return {"time": time, "bandwidth": bytes_moved(ROWS, cols) / time}


SOFTMAX = Benchmark(
    "softmax",
    measure,
    metrics=[
        Metric("time", "s", "lower"),
        Metric("bandwidth", "B/s", "higher", "read once, written once"),
    ],
    grid={"by": ["torch", "triton"], "cols": [256, 1024, 4096]},
    requires=Requires(
        gpus=1, cpu_fallback=True, modules=("torch", "triton"), also=(triton_has_a_gpu,)
    ),
    version="1",
    description=f"Softmax of each of {ROWS} rows, float32.",
)


def bandwidth(records):
    """The bandwidth of reading and writing the matrix once: how close a softmax comes to
    copying."""
    return Table.of_records(records, "time", "bandwidth")


COLUMNS = Axis("cols", "columns", log=True, base=2)
CHART = line_chart(
    COLUMNS, Axis("bandwidth", "bandwidth", "B/s", zero=True), ("machine", "by")
)


@hookimpl
def hpml_benchmarks():
    return [SOFTMAX]


@hookimpl
def hpml_figures():
    return [
        Figure(
            "bandwidth", "Bandwidth by number of columns", ("softmax",), bandwidth, CHART
        )
    ]
