"""The bytes transferred in a step by kind, counted at the calls that send them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hpml_plugins import Bench, Benchmark, Metric, Rank, Requires
from hpml_plugins.plugins.scaling.jobs import ALL_GPUS, CIFAR, GPUS, MODULES

#: Images on each rank: enough for batch normalisation. Only inputs and outputs depend on it.
BATCH = 2
#: DDP's collectives in a step, and their contents: it reduces gradients and broadcasts buffers,
#: nothing else.
_DDP = {"allreduce_": "gradients", "broadcast_": "buffers"}


def measure_wire_ddp(bench: Bench, *, ranks: int, model: str) -> Mapping[str, float]:
    """DDP's third step over gloo: the sizes of its collectives do not depend on the back end."""
    counts: list[dict[str, int]] = bench.ranks(count_ddp, ranks, model)
    bench.check(all(one == counts[0] for one in counts), "all ranks hand over as much")
    return {metric.name: float(counts[0].get(metric.name, 0)) for metric in WIRE_METRICS}


def count_ddp(rank: Rank, model: str) -> dict[str, int]:
    """Bytes by kind in DDP's third step, the first in which its buckets are in their final
    order."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from hpml_plugins.plugins.scaling.training import build

    torch.manual_seed(rank.bench.seed + rank.index)
    module = build(model, CIFAR.shape, CIFAR.classes)
    with counted_collectives() as start:
        parallel = DistributedDataParallel(module)
    for _ in range(2):
        _backward(parallel, BATCH, "cpu")
    with counted_collectives() as step:
        _backward(parallel, BATCH, "cpu")
    rank.bench.check(step.pop("other", 0) == 0, "DDP sends gradients and buffers and nothing else")
    return {**step, "at_start": start.total()}


def measure_wire_dp(bench: Bench, *, gpus: int, model: str) -> Mapping[str, float]:
    """DataParallel's second step."""
    from torch.nn import DataParallel

    from hpml_plugins.plugins.scaling.training import build

    module = build(model, CIFAR.shape, CIFAR.classes).to("cuda:0")
    parallel = DataParallel(module, list(range(gpus)))
    _backward(parallel, BATCH * gpus, "cuda:0")
    with counted_copies(module.buffers(), "cuda:0") as counted:
        _backward(parallel, BATCH * gpus, "cuda:0")
    return {metric.name: float(counted[metric.name]) for metric in WIRE_METRICS}


def _backward(parallel: Any, batch: int, device: str) -> None:
    """Forward and backward pass of random images."""
    import torch

    images = torch.randn(batch, *CIFAR.shape, device=device)
    labels = torch.randint(CIFAR.classes, (batch,), device=device)
    torch.nn.functional.cross_entropy(parallel(images), labels).backward()


@contextmanager
def counted_collectives() -> Iterator[Counter[str]]:
    """Count within the block: bytes passed to torch.distributed's collectives on this rank, by
    kind; "other": not DDP's.

    C++ code's collectives, DDP's reducer's among them, pass torch's dispatcher as well and are
    seen: it is how torch's own CommDebugMode counts.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    counted: Counter[str] = Counter()

    class Counting(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped to mypy here
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function.namespace == "c10d":
                name = function._schema.name.partition("::")[2]
                # The first argument is sent (in a broadcast: or overwritten); for a gathering rank
                # it is received.
                sent = args[1] if name.startswith("allgather") else args[0]
                tensors = [sent] if isinstance(sent, torch.Tensor) else sent
                counted[_DDP.get(name, "other")] += sum(tensor.nbytes for tensor in tensors)
            return function(*args, **(kwargs or {}))

    with Counting():
        yield counted


@contextmanager
def counted_copies(buffers: Iterable[Any], home: str) -> Iterator[Counter[str]]:
    """Count within the block: bytes that DataParallel moves between GPUs, by kind: all transfers
    use torch.nn.parallel.comm.

    buffers: the module's; other broadcasts are parameters.  home: the first GPU, source and
    destination of all transfers. Kinds: parameters, buffers (copied to the others), inputs (chunks
    for the others, and the gradients of the outputs), outputs (gathered), gradients (added up).
    """
    from torch.nn.parallel import comm

    counted: Counter[str] = Counter()
    known = {buffer.data_ptr() for buffer in buffers}

    def counting(name: str) -> Callable[..., Any]:
        real = getattr(comm, name)

        def count_and_call(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            if name == "broadcast_coalesced":
                for tensor in args[0]:
                    kind = "buffers" if tensor.data_ptr() in known else "parameters"
                    counted[kind] += tensor.nbytes * (len(args[1]) - 1)
            elif name == "reduce_add_coalesced":
                counted["gradients"] += sum(foreign_bytes(of_one, home) for of_one in args[0])
            elif name == "scatter":
                counted["inputs"] += foreign_bytes(result, home)
            else:
                counted["outputs"] += foreign_bytes(args[0], home)
            return result

        return count_and_call

    names = ("broadcast_coalesced", "reduce_add_coalesced", "scatter", "gather")
    with patch.dict(vars(comm), {name: counting(name) for name in names}):
        yield counted


def foreign_bytes(tensors: Iterable[Any], home: str) -> int:
    """Bytes of those tensors that are not on device `home`."""
    return sum(tensor.nbytes for tensor in tensors if str(tensor.device) != home)


WIRE_METRICS = (
    Metric(
        "gradients",
        "B",
        "lower",
        "handed over in a step by each rank (DDP), or added up on the first GPU (DP)",
    ),
    Metric(
        "buffers",
        "B",
        "lower",
        "batch normalisation's running statistics, broadcast before the forward pass",
    ),
    Metric("parameters", "B", "lower", "copied to the other GPUs in a step"),
    Metric(
        "inputs",
        "B",
        "lower",
        "scattered to the other GPUs: images, and the gradients of the outputs",
    ),
    Metric("outputs", "B", "lower", "gathered from the other GPUs"),
    Metric("at_start", "B", "lower", "handed over once, when the model is wrapped"),
)
WIRE_DDP = Benchmark(
    "scaling_wire_ddp",
    measure_wire_ddp,
    WIRE_METRICS,
    {"ranks": (2, 4), "model": ("resnet18",)},
    Requires(modules=MODULES),
    timeout=120,
    description=(
        "Bytes that DistributedDataParallel hands over in a step, by kind, counted over gloo."
    ),
    rounds=1,
)
WIRE_DP = replace(
    WIRE_DDP,
    name="scaling_wire_dp",
    measure=measure_wire_dp,
    grid={"gpus": GPUS, "model": ("resnet18",)},
    requires=ALL_GPUS,
    description="Bytes that DataParallel moves between GPUs in a step, by kind, counted.",
)
