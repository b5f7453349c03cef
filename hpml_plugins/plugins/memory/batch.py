"""The benchmark `memory_batch`: how many images a card trains on at once."""

from __future__ import annotations

from functools import partial

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires
from hpml_plugins.plugins.memory.parts import MODELS
from hpml_plugins.plugins.memory.search import CARD, Trials, set_limit

#: Batches whose peaks give the memory per image, and thus the start of the search.
SMALL = (8, 24)
MOST = 1 << 16
#: The search ends once a batch that does not fit is this close.
TOLERANCE = 0.005


def measure(bench: Bench, *, model: str, dtype: str, limit: float | str) -> dict[str, float]:
    """The largest batch of 224 × 224 images that `model` can run forward and backward on one GPU,
    without optimiser.

    dtype: "float32" or "bfloat16", of parameters and activations.  limit: see `set_limit`.  Else
    raises HpmlError.
    """
    import torch

    from hpml_plugins.plugins.memory.holdings import build, make_images

    if dtype not in ("float32", "bfloat16"):
        raise HpmlError(f"memory_batch has no dtype {dtype!r}; use float32 or bfloat16")
    kind = getattr(torch, dtype)
    torch.manual_seed(bench.seed)
    network = build(model, "cuda").to(kind)
    trials = Trials([0], lambda: network.zero_grad(set_to_none=True))
    allowed = set_limit(bench, limit, [0])
    finite: list[bool] = []

    def train(batch: int) -> None:
        images, classes = make_images(batch, "cuda", kind)
        loss = torch.nn.functional.cross_entropy(network(images), classes)
        loss.backward()
        finite.append(bool(torch.isfinite(loss)))

    small, larger = (
        trials.peaks(bench, partial(train, batch), f"a batch of {batch}")[0] for batch in SMALL
    )
    per_image = (larger - small) / (SMALL[1] - SMALL[0])
    bench.check(per_image > 0, "a larger batch takes no more memory")
    estimate = min(MOST, max(1, int(0.95 * (allowed - small) / per_image)))
    found, (peak,) = trials.largest(
        bench, train, "images", allowed, start=estimate, most=MOST, tolerance=TOLERANCE
    )
    bench.check(all(finite), "a loss is not finite")
    bench.series(
        "tries",
        {"batch": [n for n, _ in found.tries], "fitted": [float(ok) for _, ok in found.tries]},
    )
    return {
        "batch": found.largest,
        "peak": peak,
        "image": (peak - small) / max(1, found.largest - SMALL[0]),
    }


MEMORY_BATCH = Benchmark(
    "memory_batch",
    measure,
    metrics=[
        Metric("batch", "1", "higher", "images, forward and backward"),
        Metric("peak", "B", "lower", "most that torch had allocated with this batch"),
        Metric("image", "B", "lower", "that each image more takes"),
    ],
    grid={"model": MODELS, "dtype": ("float32", "bfloat16"), "limit": (16, CARD)},
    requires=Requires(gpus=1, modules=("torch", "torchvision")),
    timeout=300,
    description=(
        "The largest batch of 224 × 224 images that fits, within 16 GiB and on the whole card."
    ),
    rounds=1,
)
