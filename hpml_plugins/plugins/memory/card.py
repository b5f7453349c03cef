"""The benchmark `memory_card`: parameters × 4 bytes against what the cards hold while they train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.memory.holdings import PARTS, Holdings
from hpml_plugins.plugins.memory.networks import MODELS, build, build_optimiser, parameter_bytes, pictures

#: Everything that a card holds, in the order in which the chart stacks it.
ON_CARD = (*PARTS, "other", "working", "slack", "context")


def measure(bench: Bench, *, model: str, batch: int, gpus: int) -> dict[str, float]:
    """Bytes on the cards while `model` trains by SGD with momentum, by what they are for, summed over the cards.

    gpus: 1, or more by torch's DataParallel.  batch: images of 224 × 224 over all cards. Gradients are kept from step
    to step and zeroed, as torch before 2.0 did unless told otherwise. The parts are read from torch's snapshot at the
    end of a forward pass; `working` is how far the backward pass rises above that, `slack` what torch reserved and
    never needed at once, `context` what NVML sees in use beyond what torch reserved.
    """
    uuids = [gpu.uuid for gpu in bench.node.gpus[:gpus]]
    before = used(uuids)  # first: importing and using torch makes the CUDA context, which is to be counted
    theory, rows = _train_and_look(bench, model, batch, gpus)
    for row, now, then in zip(rows, used(uuids), before, strict=True):
        row["card"] = now - then
        row["context"] = row["card"] - row["reserved"]
        bench.check(row["context"] >= 0, "the card's memory in use grew by less than torch reserved: not alone on it")
        bench.check(min(row.values()) >= 0, "a part of the memory is negative")
        bench.check(sum(row[part] for part in ON_CARD) == row["card"], "the parts do not add up to the whole")
    columns = {"gpu": list(range(gpus)), **{name: [row[name] for row in rows] for name in rows[0]}}
    bench.series("cards", columns, {"gpu": "1", **dict.fromkeys(rows[0], "B")})

    whole = {name: sum(row[name] for row in rows) for name in rows[0]}
    same = ("parameters", "gradients", "optimiser_state", "activations", "working", "slack", "context", "card")
    return {
        "parameter_size": theory,
        "other": whole["buffers"] + whole["data"] + whole["other"],
        "ratio": whole["card"] / theory,
        **{name: whole[name] for name in same},
    }


def used(uuids: Sequence[str]) -> list[int]:
    """Bytes in use on each of these cards, whoever's they are, as NVML and nvidia-smi tell. Makes no CUDA context."""
    import pynvml

    pynvml.nvmlInit()
    return [int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid)).used) for uuid in uuids]


def _train_and_look(bench: Bench, model: str, batch: int, gpus: int) -> tuple[int, list[dict[str, int]]]:
    """Three steps, of which the last is looked at. Returns the parameters' bytes in theory, and a row a card."""
    import torch

    from hpml_plugins.plugins.memory.recorder import Recorder
    from hpml_plugins.plugins.memory.snapshot import occupied

    torch.manual_seed(bench.seed)
    devices = [f"cuda:{number}" for number in range(gpus)]
    held = Holdings()
    recorder = Recorder(build(model, devices[0]), held)
    trained = torch.nn.DataParallel(recorder, list(range(gpus))) if gpus > 1 else recorder
    updates = build_optimiser("sgd", recorder)
    images, classes = pictures(batch, devices[0])

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
    found = []
    for number, device in enumerate(devices):
        own = [segment for segment in segments if segment["device"] == number]
        at_end = occupied(own, {at: told for (where, at), told in held.storages.items() if where == device})
        bench.check(at_end.lost == 0, "a tensor lies in no active block of torch's snapshot")
        right = (at_end.allocated, at_end.reserved) == (
            torch.cuda.memory_allocated(device),
            torch.cuda.memory_reserved(device),
        )
        bench.check(right, "the snapshot's sums differ from memory_allocated and memory_reserved")
        counted = {part: held.nbytes(part, device) for part in PARTS}
        same = all(at_end.parts.get(part, 0) == size for part, size in counted.items())
        bench.check(same, "the snapshot's parts differ from the tensors' own sizes")
        found.append((at_end, counted))
    held.release()
    bench.check(bool(torch.isfinite(loss)), "the loss is not finite")
    loss.backward()
    updates.step()
    wait()

    rows = []
    for device, (at_end, counted) in zip(devices, found, strict=True):
        peak, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.memory_reserved(device)
        left = {
            "other": at_end.parts.get("other", 0),
            "working": peak - at_end.allocated,
            "slack": reserved - peak + at_end.allocated - at_end.requested,
            "reserved": reserved,
        }
        rows.append({**counted, **left})
    return parameter_bytes(recorder) * gpus, rows


METRICS = (
    Metric("parameter_size", "B", None, "parameters × 4 bytes × cards: the theory"),
    Metric("parameters", "B", "lower", "those of the replicas too"),
    Metric("gradients", "B", "lower", "one number a parameter, on the first card"),
    Metric("optimiser_state", "B", "lower", "SGD's momentum, on the first card"),
    Metric("activations", "B", "lower", "what autograd saves for the backward pass"),
    Metric("other", "B", "lower", "the batch, buffers, and blocks that are nobody's, such as cuBLAS's workspace"),
    Metric("working", "B", "lower", "how far the backward pass rises above the end of the forward pass"),
    Metric("slack", "B", "lower", "reserved by torch's allocator and never needed at once"),
    Metric("context", "B", "lower", "in use on the cards beyond what torch reserved"),
    Metric("card", "B", "lower", "in use on the cards for this process, by NVML"),
    Metric("ratio", "1", "lower", "card / parameter_size"),
)
MEMORY_CARD = Benchmark(
    "memory_card",
    measure,
    metrics=METRICS,
    grid={"model": MODELS, "batch": (256,), "gpus": (1, 2)},
    requires=Requires(gpus="gpus", gpu_memory=32e9, modules=("torch", "torchvision", "pynvml")),
    version="1",
    timeout=180,
    description="Parameters × 4 bytes against what cards hold in training, split by what it is for.",
    rounds=1,
)
