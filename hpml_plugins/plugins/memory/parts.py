"""The benchmark `memory_parts`: the memory that a training step must keep, counted from its
tensors, on any device."""

from __future__ import annotations

from hpml_plugins import Bench, Benchmark, Metric, Requires

MODELS = ("resnet18", "resnet50")
#: Numbers that an optimiser keeps for each parameter: the momentum; Adam's first and second moment.
KEPT = {"sgd": 1, "adam": 2}


def measure(bench: Bench, *, model: str, optimiser: str, batch: int) -> dict[str, float]:
    """Bytes that a training step of `model` keeps at the end of its forward pass: of storages, not
    of an allocator.

    optimiser: "sgd" or "adam".  batch: images of 224 × 224. Raises HpmlError for an unknown model
    or optimiser.
    """
    import torch
    from torch.nn.functional import cross_entropy

    from hpml_plugins.plugins.memory import holdings

    torch.manual_seed(bench.seed)
    network = holdings.build(model, bench.device)
    updates = holdings.build_optimiser(optimiser, network)
    images, classes = holdings.make_images(batch, bench.device)
    bench.progress("one step, so that gradients and the optimiser's state exist", 0.1)
    cross_entropy(network(images), classes).backward()
    updates.step()

    bench.progress("counting", 0.6)
    held = holdings.Holdings()
    held.claim_training(network, updates, [images, classes])
    with held.watching():
        loss = cross_entropy(network(images), classes)
    again = holdings.Holdings()
    again.claim_training(network, updates, [images, classes])
    again.claim("activations", holdings.saved_in_graph(loss))
    size = {part: held.nbytes(part) for part in holdings.PARTS}

    theory = holdings.parameter_bytes(network)
    saved = again.nbytes("activations")
    bench.check(size["activations"] == saved, "saved tensors differ from those found in the graph")
    bench.check(size["parameters"] == theory, "parameters differ from 4 bytes each")
    bench.check(size["gradients"] == theory, "gradients differ from 4 bytes a parameter")
    # Adam counts its steps in a scalar of 4 bytes for each tensor of parameters.
    spare = size["optimiser_state"] - KEPT[optimiser] * theory
    bench.check(
        0 <= spare <= 8 * len(list(network.parameters())),
        "the optimiser's state differs from its formula",
    )
    total = sum(size.values())
    return {
        "parameter_size": theory,
        **{part: size[part] for part in ("gradients", "optimiser_state", "activations")},
        "other": size["buffers"] + size["data"],
        "total": total,
        "ratio": total / theory,
    }


MEMORY_PARTS = Benchmark(
    "memory_parts",
    measure,
    metrics=[
        Metric("parameter_size", "B", None, "parameters × 4 bytes"),
        Metric("gradients", "B", "lower", "one number a parameter"),
        Metric("optimiser_state", "B", "lower", "momentum, or Adam's two moments"),
        Metric("activations", "B", "lower", "what autograd saves for the backward pass"),
        Metric("other", "B", "lower", "the batch, and running means and variances"),
        Metric("total", "B", "lower", "all of these, parameters included"),
        Metric("ratio", "1", "lower", "total / parameter_size"),
    ],
    grid={"model": MODELS, "optimiser": tuple(KEPT), "batch": (8,)},
    requires=Requires(gpus=1, modules=("torch", "torchvision"), cpu_fallback=True),
    timeout=120,
    description=(
        "What a training step keeps, by what it is for: counted from tensors, on a GPU or a CPU."
    ),
    rounds=1,
)
