"""The benchmarks: one all-reduce, or another collective, of one size on so many ranks."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Rank, Requires, Samples
from hpml_plugins.plugins.allreduce.choice import logging_to, read_choice
from hpml_plugins.plugins.allreduce.formulas import algorithm_bandwidth, bus_bandwidth, bus_factor, size_in_bytes

#: Two buffers, and what CUDA, NCCL and the check need beside them.
BESIDE_BUFFERS = 4 * 2**30
PLACES = ("in", "out")


def measure_allreduce_nccl(bench: Bench, *, size: str, ranks: int, place: str) -> Mapping[str, Samples]:
    """All-reduce (float32, sum) of `size` on `ranks` GPUs of this node over NCCL; place: "in" or "out"."""
    if place not in PLACES:
        raise HpmlError(f"allreduce_nccl has no place {place!r}; use one of {', '.join(PLACES)}")
    return _measure(bench, "all_reduce", size, ranks, backend="nccl", in_place=place == "in")


def measure_allreduce_gloo(bench: Bench, *, size: str, ranks: int) -> Mapping[str, Samples]:
    """All-reduce (float32, sum) of `size`, in place, on `ranks` processes of this node's CPU over gloo."""
    return _measure(bench, "all_reduce", size, ranks, backend="gloo", in_place=True)


def measure_collectives_nccl(bench: Bench, *, collective: str, size: str, ranks: int) -> Mapping[str, Samples]:
    """Another collective over NCCL, as torch.distributed does it: a broadcast in place, the others out of place."""
    return _measure(bench, collective, size, ranks, backend="nccl", in_place=collective == "broadcast")


def measure_collectives_gloo(bench: Bench, *, collective: str, size: str, ranks: int) -> Mapping[str, Samples]:
    """The same over gloo."""
    return _measure(bench, collective, size, ranks, backend="gloo", in_place=collective == "broadcast")


def measure_allreduce_nodes_gloo(bench: Bench, *, size: str, nodes: int) -> Mapping[str, Samples]:
    """All-reduce (float32, sum) of `size`, in place, over gloo between so many nodes, one process on each."""
    _skip_too_few(bench, nodes)
    return _measure(bench, "all_reduce", size, nodes, backend="gloo", in_place=True, nodes=nodes)


def measure_allreduce_nodes_nccl(bench: Bench, *, size: str, nodes: int, gpus: int) -> Mapping[str, Samples]:
    """All-reduce (float32, sum) of `size`, in place, over NCCL between so many nodes, with so many GPUs of each."""
    _skip_too_few(bench, nodes)
    return _measure(bench, "all_reduce", size, nodes * gpus, backend="nccl", in_place=True, nodes=nodes)


def _skip_too_few(bench: Bench, nodes: int) -> None:
    if bench.nodes < nodes:
        bench.skip(f"needs {nodes} nodes of a Slurm job, this run has {bench.nodes} (cluster.yaml: nodes: {nodes})")


def on_rank(rank: Rank, collective: str, nbytes: int, in_place: bool) -> tuple[Samples, str]:
    """Check and time the collective on one rank; samples of one call's time, and NCCL's version."""
    from hpml_plugins.plugins.allreduce.buffers import Buffers
    from hpml_plugins.plugins.allreduce.steps import step_of

    buffers = Buffers(rank, collective, nbytes, in_place=in_place)
    step = step_of(rank, buffers)

    def check() -> None:
        buffers.fill()
        rank.barrier()
        step()
        rank.barrier()
        wrong = buffers.wrong()
        rank.bench.check(
            not wrong, f"{collective} differs from its float64 reference" + f" in {wrong} elements" * bool(wrong)
        )

    rank.bench.progress("checking", 0.1)
    check()
    rank.bench.progress("timing", 0.3)
    time = rank.time(step)
    check()
    return time, _nccl_version() if rank.backend == "nccl" else ""


def _measure(
    bench: Bench, collective: str, size: str, ranks: int, *, backend: Any, in_place: bool, nodes: int = 1
) -> dict[str, Samples]:
    nbytes = size_in_bytes(size)
    bus_factor(collective, ranks)  # refuses what has none, before anything is started
    buffers = 1 if in_place else 2
    if backend == "nccl":
        smallest = min((gpu.memory for gpu in bench.node.gpus), default=0)
        if smallest < (needed := buffers * nbytes + BESIDE_BUFFERS):
            bench.skip(f"needs {needed / 2**30:.1f} GiB of GPU memory, the card has {smallest / 2**30:.1f}")
    with tempfile.TemporaryDirectory(prefix="hpml-nccl-") as folder:
        logged = backend == "nccl" and nodes == 1  # other nodes do not see the folder
        time, nccl = bench.ranks(
            on_rank,
            ranks,
            collective,
            nbytes,
            in_place,
            backend=backend,
            environment=logging_to(folder) if logged else {},
            nodes=nodes,
        )[0]  # fmt: skip
        about: dict[str, str | float] = {"place": "in" if in_place else "out"}
        if backend == "nccl":
            chosen = read_choice(folder, collective)
            about |= {"nccl": nccl, **chosen}
            if logged and not chosen:
                bench.warn("NCCL did not tell its algorithm and protocol")
    time = replace(time, info={**time.info, **about})
    return {
        "time": time,
        "algorithm_bandwidth": algorithm_bandwidth(nbytes, time),
        "bus_bandwidth": bus_bandwidth(collective, nbytes, time, ranks),
    }


def _nccl_version() -> str:
    from torch.cuda import nccl

    return ".".join(str(part) for part in nccl.version())


METRICS = (
    Metric("time", "s", "lower", "of one call, the mean over ranks"),
    Metric("algorithm_bandwidth", "B/s", "higher", "size / time"),
    Metric("bus_bandwidth", "B/s", "higher", "algorithm bandwidth times the share of the size that crosses a link"),
)
OTHERS = ("all_gather", "reduce_scatter", "broadcast")
NCCL = Requires(gpus="ranks", modules=("torch",))
GLOO = Requires(modules=("torch",))

ALLREDUCE_NCCL = Benchmark(
    "allreduce_nccl",
    measure_allreduce_nccl,
    metrics=METRICS,
    grid={
        "size": ("1KiB", "32KiB", "1MiB", "16MiB", "128MiB", "1GiB", "4GiB", "8GiB"),
        "ranks": (2, 4, 8),
        "place": PLACES,
    },
    requires=NCCL,
    version="1",
    timeout=120,
    description="All-reduce of float32 over NCCL on the GPUs of one node, by nccl-tests' definitions.",
)
ALLREDUCE_GLOO = Benchmark(
    "allreduce_gloo",
    measure_allreduce_gloo,
    metrics=METRICS,
    grid={"size": ("1KiB", "32KiB", "1MiB", "16MiB", "128MiB"), "ranks": (2, 4)},
    requires=GLOO,
    version="1",
    timeout=120,
    description="All-reduce of float32 over gloo between processes on the CPU of one node.",
)
COLLECTIVES_NCCL = Benchmark(
    "collectives_nccl",
    measure_collectives_nccl,
    metrics=METRICS,
    grid={"collective": OTHERS, "size": ("1MiB", "128MiB", "1GiB"), "ranks": (2, 4, 8)},
    requires=NCCL,
    version="1",
    timeout=120,
    description="All-gather, reduce-scatter and broadcast of float32 over NCCL on the GPUs of one node.",
)
COLLECTIVES_GLOO = Benchmark(
    "collectives_gloo",
    measure_collectives_gloo,
    metrics=METRICS,
    grid={"collective": OTHERS, "size": ("16MiB",), "ranks": (2, 4)},
    requires=GLOO,
    version="1",
    timeout=120,
    description="All-gather, reduce-scatter and broadcast of float32 over gloo between processes on one CPU.",
)
ALLREDUCE_NODES_GLOO = Benchmark(
    "allreduce_nodes_gloo",
    measure_allreduce_nodes_gloo,
    metrics=METRICS,
    grid={"size": ("1KiB", "1MiB", "128MiB"), "nodes": (2, 4)},
    requires=GLOO,
    version="1",
    timeout=180,
    description="All-reduce of float32 over gloo between nodes of a Slurm job, one process on each.",
)
ALLREDUCE_NODES_NCCL = Benchmark(
    "allreduce_nodes_nccl",
    measure_allreduce_nodes_nccl,
    metrics=METRICS,
    grid={"size": ("1KiB", "1MiB", "128MiB", "1GiB", "8GiB"), "nodes": (2, 4), "gpus": (1, 8)},
    requires=Requires(gpus="gpus", modules=("torch",)),
    version="1",
    timeout=180,
    description="All-reduce of float32 over NCCL between the GPUs of several nodes of a Slurm job.",
)
