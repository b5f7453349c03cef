"""The benchmark `memory_card`: parameters × 4 bytes compared with the memory in use during
training."""

from __future__ import annotations

import time
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires
from hpml_plugins.plugins.memory.parts import MODELS

#: s in which the GPU monitor has certainly read the cards' memory again; s after which waiting for
#: it is given up.
FRESH, PATIENCE = 0.3, 10.0


def measure(bench: Bench, *, model: str, batch: int, gpus: int) -> dict[str, float]:
    """Bytes on the cards while `model` trains by SGD with momentum, by purpose, summed over the
    cards.

    gpus: 1, or more by torch's DataParallel.  batch: images of 224 × 224 over all cards.
    """
    # first, because torch creates the CUDA context, which must be counted
    before = memory_in_use(bench, gpus)

    import torch

    from hpml_plugins.plugins.memory import holdings

    torch.manual_seed(bench.seed)
    devices = [f"cuda:{number}" for number in range(gpus)]
    held = holdings.Holdings()
    recorder = holdings.Recorder(holdings.build(model, devices[0]), held)
    trained = torch.nn.DataParallel(recorder, list(range(gpus))) if gpus > 1 else recorder
    updates = holdings.build_optimiser("sgd", recorder)
    images, classes = holdings.make_images(batch, devices[0])

    def forward() -> Any:
        updates.zero_grad(set_to_none=False)
        return torch.nn.functional.cross_entropy(trained(images), classes)

    def wait() -> None:
        for device in devices:
            torch.cuda.synchronize(device)

    for step in range(2):
        bench.progress(f"step {step + 1} of 3", step / 3)
        forward().backward()
        updates.step()
    wait()
    for device in devices:
        torch.cuda.reset_peak_memory_stats(device)

    bench.progress("step 3 of 3, looked at", 0.7)
    held.claim_training(recorder, updates, [images, classes])
    recorder.on = True
    loss = forward()
    recorder.on = False
    wait()
    segments = torch.cuda.memory_snapshot()
    rows, blocks = [], []
    for number, device in enumerate(devices):
        own = [segment for segment in segments if segment["device"] == number]
        found = holdings.occupied(
            own, {at: part for (where, at), (part, _) in held.storages.items() if where == device}
        )
        bench.check(found.lost == 0, "a tensor lies in no active block of torch's snapshot")
        sums = (torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device))
        bench.check(
            (found.allocated, found.reserved) == sums, "the snapshot's sums differ from torch's own"
        )
        counted = {part: held.nbytes(part, device) for part in holdings.PARTS}
        agree = all(found.parts[part] == size for part, size in counted.items())
        bench.check(agree, "the snapshot's parts differ from the tensors' own sizes")
        rows.append({**counted, "other": found.parts["other"]})
        blocks.append(found)
    held.release()
    bench.check(bool(torch.isfinite(loss)), "the loss is not finite")
    loss.backward()
    updates.step()
    wait()

    used = memory_in_use(bench, gpus)
    for number, (row, found) in enumerate(zip(rows, blocks, strict=True)):
        peak, reserved = torch.cuda.max_memory_allocated(number), torch.cuda.memory_reserved(number)
        row["working"] = peak - found.allocated
        row["slack"] = reserved - peak + found.allocated - found.parts.total()
        row["reserved"] = reserved
        row["card"] = used[number] - before[number]
        row["context"] = row["card"] - reserved
        bench.check(
            row["context"] >= 0,
            "the card's memory in use grew by less than torch reserved: not alone on it",
        )
        bench.check(min(row.values()) >= 0, "a part of the memory is negative")
        parts = sum(size for name, size in row.items() if name not in ("card", "reserved"))
        bench.check(parts == row["card"], "the parts do not add up to the whole")
    columns = {"gpu": list(range(gpus)), **{name: [row[name] for row in rows] for name in rows[0]}}
    bench.series("cards", columns, {"gpu": "1", **dict.fromkeys(rows[0], "B")})

    theory = holdings.parameter_bytes(recorder) * gpus
    whole = {name: sum(row[name] for row in rows) for name in rows[0]}
    same = (
        "parameters",
        "gradients",
        "optimiser_state",
        "activations",
        "working",
        "slack",
        "context",
        "card",
    )
    return {
        "parameter_size": theory,
        "other": whole["buffers"] + whole["data"] + whole["other"],
        "ratio": whole["card"] / theory,
        **{name: whole[name] for name in same},
    }


def memory_in_use(bench: Bench, gpus: int) -> list[int]:
    """Bytes in use on each GPU, by NVML; creates no CUDA context. Raises HpmlError if the GPUs are
    not monitored."""
    started = time.monotonic()
    while time.monotonic() < started + PATIENCE:
        readings = [
            bench.telemetry.read(number) if bench.telemetry else None for number in range(gpus)
        ]
        if all(reading and reading.at > started + FRESH for reading in readings):
            return [int(reading.memory_used) for reading in readings if reading]
        time.sleep(0.02)
    raise HpmlError("the memory in use is not known: the GPUs are not watched here")


MEMORY_CARD = Benchmark(
    "memory_card",
    measure,
    metrics=[
        Metric("parameter_size", "B", None, "parameters × 4 bytes × cards: the theory"),
        Metric("parameters", "B", "lower", "those of the replicas too"),
        Metric("gradients", "B", "lower", "one number a parameter, on the first card"),
        Metric("optimiser_state", "B", "lower", "SGD's momentum, on the first card"),
        Metric("activations", "B", "lower", "what autograd saves for the backward pass"),
        Metric(
            "other",
            "B",
            "lower",
            "the batch, buffers, and blocks that are nobody's, such as cuBLAS's workspace",
        ),
        Metric(
            "working",
            "B",
            "lower",
            "how far the backward pass rises above the end of the forward pass",
        ),
        Metric("slack", "B", "lower", "reserved by torch's allocator and never needed at once"),
        Metric("context", "B", "lower", "in use on the cards beyond what torch reserved"),
        Metric("card", "B", "lower", "in use on the cards for this process, by NVML"),
        Metric("ratio", "1", "lower", "card / parameter_size"),
    ],
    grid={"model": MODELS, "batch": (256,), "gpus": (1, 2)},
    requires=Requires(gpus="gpus", gpu_memory=32e9, modules=("torch", "torchvision")),
    timeout=180,
    description=(
        "Parameters × 4 bytes against what cards hold in training, split by what it is for."
    ),
    rounds=1,
)
