"""The benchmarks: an all-reduce or another collective, over message sizes and numbers of ranks."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Rank, Requires, Samples
from hpml_plugins.plugins.allreduce.nccl_log import logging_to, read_choice
from hpml_plugins.workloads import bus_factor

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
PLACES = ("in", "out")
_POWERS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3}
#: GPU memory for CUDA, NCCL and the check, in addition to the buffers, B.
OVERHEAD = 4 * 2**30


def size_in_bytes(size: str) -> int:
    """`"16MiB"` as 16 777 216 B. Raises HpmlError for other texts."""
    found = re.fullmatch(r"([1-9]\d*) ?(B|KiB|MiB|GiB)", size)
    if not found:
        raise HpmlError(f"size {size!r} is not a number with B, KiB, MiB or GiB, such as '16MiB'")
    return int(found[1]) << 10 * _POWERS[found[2]]


def measure(
    bench: Bench,
    *,
    size: str,
    ranks: int = 0,
    nodes: int = 1,
    gpus: int = 1,
    collective: str = "all_reduce",
    place: str = "in",
) -> Mapping[str, Samples]:
    """A collective on `ranks` GPUs or processes of this node, or on `nodes` nodes with `gpus` GPUs
    or one process each.

    place: where the result is, "in" or "out"; an all-gather and a reduce-scatter are out of place,
    as in torch.distributed.
    """
    if place not in PLACES:
        raise HpmlError(f"{collective} has no place {place!r}; use one of {', '.join(PLACES)}")
    if bench.nodes < nodes:
        bench.skip(
            f"needs {nodes} nodes of a Slurm job, this run has {bench.nodes} (cluster.yaml: nodes:"
            f" {nodes})"
        )
    ranks = ranks or nodes * gpus
    in_place = place == "in" and collective in ("all_reduce", "broadcast")
    nbytes = size_in_bytes(size)
    factor = bus_factor(collective, ranks)  # refuses one without, before any start
    if bench.gpus:
        needed = (1 if in_place else 2) * nbytes + OVERHEAD
        smallest = min(gpu.memory for gpu in bench.node.gpus)
        if smallest < needed:
            bench.skip(
                f"needs {needed / 2**30:.1f} GiB of GPU memory, the card has {smallest / 2**30:.1f}"
            )
    logged = bench.gpus > 0 and nodes == 1  # other nodes do not see the folder
    with tempfile.TemporaryDirectory(prefix="hpml-nccl-") as folder:
        environment = logging_to(folder) if logged else {}
        time = bench.ranks(
            on_rank, ranks, collective, nbytes, in_place, environment=environment, nodes=nodes
        )[0]
        chosen = read_choice(folder, collective)
    if logged and not chosen:
        bench.warn("NCCL did not tell its algorithm and protocol")
    time = time.note(**chosen)
    bandwidth = nbytes / time
    return {"time": time, "algorithm_bandwidth": bandwidth, "bus_bandwidth": bandwidth * factor}


def on_rank(rank: Rank, collective: str, nbytes: int, in_place: bool) -> Samples:
    """Check and time the collective on one rank; samples of one call's time."""
    from hpml_plugins.plugins.allreduce import buffers

    made = buffers.Buffers(rank, collective, nbytes, in_place=in_place)
    step = buffers.step_of(rank, made)

    def check() -> None:
        made.fill()
        rank.barrier()
        step()
        rank.barrier()
        wrong = made.wrong()
        message = f"{collective} differs from its float64 reference"
        rank.bench.check(not wrong, message + f" in {wrong} elements" * bool(wrong))

    rank.bench.progress("checking", 0.1)
    check()
    rank.bench.progress("timing", 0.3)
    time = rank.time(step).note(place="in" if in_place else "out")
    check()
    if rank.backend == "nccl":
        from torch.cuda import nccl

        time = time.note(nccl=".".join(str(part) for part in nccl.version()))
    return time


METRICS = (
    Metric("time", "s", "lower", "of one call, the mean over ranks"),
    Metric("algorithm_bandwidth", "B/s", "higher", "size / time"),
    Metric(
        "bus_bandwidth",
        "B/s",
        "higher",
        "algorithm bandwidth times the share of the size that crosses a link",
    ),
)
ALL_SIZES = ("1KiB", "32KiB", "1MiB", "16MiB", "128MiB", "1GiB", "4GiB", "8GiB")
ON_CPU = Requires(modules=("torch",))

ALLREDUCE_NCCL = Benchmark(
    "allreduce_nccl",
    measure,
    METRICS,
    {"size": ALL_SIZES, "ranks": (2, 4, 8), "place": PLACES},
    Requires(gpus="ranks", modules=("torch",)),
    timeout=120,
    description=(
        "All-reduce of float32 over NCCL on the GPUs of one node, by nccl-tests' definitions."
    ),
)
ALLREDUCE_GLOO = replace(
    ALLREDUCE_NCCL,
    name="allreduce_gloo",
    grid={"size": ALL_SIZES[:5], "ranks": (2, 4)},
    requires=ON_CPU,
    description="All-reduce of float32 over gloo between processes on the CPU of one node.",
)
COLLECTIVES_NCCL = replace(
    ALLREDUCE_NCCL,
    name="collectives_nccl",
    grid={"collective": COLLECTIVES[1:], "size": ("1MiB", "128MiB", "1GiB"), "ranks": (2, 4, 8)},
    description=(
        "All-gather, reduce-scatter and broadcast of float32 over NCCL on the GPUs of one node."
    ),
)
COLLECTIVES_GLOO = replace(
    COLLECTIVES_NCCL,
    name="collectives_gloo",
    grid={"collective": COLLECTIVES[1:], "size": ("16MiB",), "ranks": (2, 4)},
    requires=ON_CPU,
    description=(
        "All-gather, reduce-scatter and broadcast of float32 over gloo between processes on one"
        " CPU."
    ),
)
ALLREDUCE_NODES_GLOO = replace(
    ALLREDUCE_GLOO,
    name="allreduce_nodes_gloo",
    grid={"size": ("1KiB", "1MiB", "128MiB"), "nodes": (2, 4)},
    timeout=180,
    description=(
        "All-reduce of float32 over gloo between nodes of a Slurm job, one process on each."
    ),
)
ALLREDUCE_NODES_NCCL = replace(
    ALLREDUCE_NODES_GLOO,
    name="allreduce_nodes_nccl",
    grid={"size": ("1KiB", "1MiB", "128MiB", "1GiB", "8GiB"), "nodes": (2, 4), "gpus": (1, 8)},
    requires=Requires(gpus="gpus", modules=("torch",)),
    description="All-reduce of float32 over NCCL between the GPUs of several nodes of a Slurm job.",
)
BENCHMARKS = (
    ALLREDUCE_NCCL,
    ALLREDUCE_GLOO,
    COLLECTIVES_NCCL,
    COLLECTIVES_GLOO,
    ALLREDUCE_NODES_NCCL,
    ALLREDUCE_NODES_GLOO,
)
