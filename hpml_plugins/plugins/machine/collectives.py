"""The benchmarks of small collectives: latency over NCCL, torch's symmetric memory, and gloo.

The plugin allreduce measures the bus bandwidth of large messages; here one point measures all small
sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from hpml_plugins import Bench, Benchmark, Metric, Rank, Requires

#: B that each rank sends; in an all-to-all, to all ranks together.
SIZES = (8, 64, 512, 4096, 32768, 262144, 1048576)
COLLECTIVES = ("all_reduce", "all_gather", "all_to_all", "send_receive")
#: s, all rounds together, of one size.
BUDGET = 0.1
#: Disables NVLink's multicast, and its set-up by torch's symmetric memory.
NO_MULTICAST = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


def measure(bench: Bench, *, collective: str, ranks: int, over: str = "gloo") -> dict[str, float]:
    """Time a collective of each size.  over: "nccl", "symmetric" (torch's symmetric memory) or
    "gloo"."""
    times = bench.ranks(
        on_rank, ranks, collective, over, environment=NO_MULTICAST if over == "symmetric" else {}
    )[0]
    sizes = [float(size) for size in times]
    bench.series("sizes", {"size": sizes, "time": list(times.values())}, {"size": "B", "time": "s"})
    return {"latency": times[min(times)], "time_1mib": times[max(times)]}


class Exchange(NamedTuple):
    """A collective on one rank: the sent and received tensors, which may be the same, and the
    call."""

    send: Any
    receive: Any
    step: Callable[[], object]


def on_rank(rank: Rank, collective: str, over: str) -> dict[int, float]:
    """The median time of the collective by size in B, checked before and after each timing. The
    same on every rank."""
    found = {}
    for number, size in enumerate(SIZES):
        rank.bench.progress(f"{size} B", number / len(SIZES))
        elements = elements_of(size, collective, rank.count)
        made = (_symmetric if over == "symmetric" else _distributed)(rank, collective, elements)
        _check(rank, collective, made)
        time = rank.time(made.step, budget=BUDGET, name=f"{size} B")
        _check(rank, collective, made)
        # there and back
        found[4 * elements] = time.median / (2 if collective == "send_receive" else 1)
    return found


def elements_of(size: int, collective: str, ranks: int) -> int:
    """How many float32 each rank sends: an all-to-all sends at least one to every rank."""
    return max(size // 4, ranks if collective == "all_to_all" else 1)


def _check(rank: Rank, collective: str, made: Exchange) -> None:
    """One collective on fresh inputs: each rank must receive what the others sent."""
    elements = made.send.numel()
    made.receive.fill_(-1.0)
    made.send.copy_(inputs(rank.index, elements))
    rank.barrier()
    made.step()
    rank.barrier()
    wanted = expected(collective, rank.index, rank.count, elements)
    right = bool((rank.bench.result(made.receive.cpu()) == wanted).all())
    rank.bench.check(right, f"{collective} of {4 * elements} B differs from what the ranks sent")


def inputs(rank: int, elements: int) -> Any:
    """The input of a rank: small whole numbers, different at each place and on each rank. Sums over
    ranks are exact."""
    import torch

    return (torch.arange(elements) * (2 * rank + 1) + rank).remainder(1021).float()


def expected(collective: str, index: int, ranks: int, elements: int) -> Any:
    """The expected output of rank `index` of `ranks`, from the inputs of all ranks."""
    import torch

    sent = [inputs(other, elements) for other in range(ranks)]
    if collective == "all_reduce":
        return torch.stack(sent).sum(0)
    if collective == "all_gather":
        return torch.cat(sent)
    if collective == "all_to_all":
        return torch.cat([each.chunk(ranks)[index] for each in sent])
    return sent[index ^ 1]


def _distributed(rank: Rank, collective: str, elements: int) -> Exchange:
    """By torch.distributed, over NCCL or gloo."""
    import torch
    import torch.distributed as dist

    send = torch.zeros(elements, device=rank.device)
    receive = torch.zeros(
        elements * (rank.count if collective == "all_gather" else 1), device=rank.device
    )
    partner = rank.index ^ 1

    def there_and_back() -> None:
        if rank.index % 2 == 0:
            dist.send(send, partner)
            dist.recv(receive, partner)
        else:
            dist.recv(receive, partner)
            dist.send(send, partner)

    if collective == "all_reduce":
        return Exchange(send, send, lambda: dist.all_reduce(send))
    steps: dict[str, Callable[[], object]] = {
        "all_gather": lambda: dist.all_gather_into_tensor(receive, send),
        "all_to_all": lambda: dist.all_to_all_single(receive, send),
        "send_receive": there_and_back,
    }
    return Exchange(send, receive, steps[collective])


def _symmetric(rank: Rank, collective: str, elements: int) -> Exchange:
    """By loads from and stores to the other GPUs' memory, which torch's symmetric memory maps.

    The all-reduce is torch's one-shot kernel. The others are a kernel of torch between two
    barriers, or between signals to the partner. Source: torch.distributed._symmetric_memory.
    """
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    group = dist.group.WORLD.group_name
    shared = symmetric.empty(elements, dtype=torch.float32, device=rank.device)
    handle = symmetric.rendezvous(shared, group)
    rank.bench.check(handle.multicast_ptr == 0, "symmetric memory has a multicast address")
    of_ranks = [handle.get_buffer(other, (elements,), torch.float32) for other in range(rank.count)]
    own = torch.zeros(
        elements * (rank.count if collective == "all_gather" else 1), device=rank.device
    )
    partner = rank.index ^ 1

    def collect(parts: list[Any]) -> Callable[[], None]:
        def step() -> None:
            handle.barrier(channel=0)
            torch.cat(parts, out=own)
            handle.barrier(channel=1)

        return step

    def there_and_back() -> None:
        if rank.index % 2:
            handle.wait_signal(partner)
        of_ranks[partner].copy_(own)
        handle.put_signal(partner)
        if rank.index % 2 == 0:
            handle.wait_signal(partner)

    if collective == "send_receive":
        return Exchange(own, shared, there_and_back)
    steps: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: torch.ops.symm_mem.one_shot_all_reduce_out(shared, "sum", group, own),
        "all_gather": collect(of_ranks),
        "all_to_all": collect([each.chunk(rank.count)[rank.index] for each in of_ranks]),
    }
    return Exchange(shared, own, steps[collective])


METRICS = (
    Metric("latency", "s", "lower", "of 8 B (an all-to-all of 4 ranks: 16 B), the mean over ranks"),
    Metric("time_1mib", "s", "lower", "of 1 MiB, the mean over ranks"),
)
TERMS = {
    "collective=send_receive": (
        "half of a message's way to the next rank and back, pairs of ranks at once"
    )
}
SMALL = Benchmark(
    "machine_collective",
    measure,
    METRICS,
    grid={"collective": COLLECTIVES, "over": ("nccl", "symmetric"), "ranks": (2, 4)},
    requires=Requires(gpus="ranks", modules=("torch",)),
    timeout=120,
    description=(
        "Latency of small collectives between the GPUs of one node, 8 B to 1 MiB of float32."
    ),
    terms={**TERMS, "over=symmetric": "torch's symmetric memory, without NVLink's multicast"},
)
SMALL_GLOO = replace(
    SMALL,
    name="machine_collective_gloo",
    grid={"collective": COLLECTIVES, "ranks": (2,)},
    requires=Requires(modules=("torch",)),
    description=(
        "Latency of small collectives over gloo between processes on the CPU, 8 B to 1 MiB of"
        " float32."
    ),
    terms=TERMS,
)
BENCHMARKS = (SMALL, SMALL_GLOO)
