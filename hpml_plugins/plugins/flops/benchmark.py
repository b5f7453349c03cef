"""The benchmark `flops`: one input through a model, counted, not timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires
from hpml_plugins.plugins.flops import tables, zoo
from hpml_plugins.plugins.flops.classifiers import CLASSIFIERS
from hpml_plugins.plugins.flops.formulas import flop
from hpml_plugins.plugins.flops.models import Spelling, build, example, read_spelling
from hpml_plugins.plugins.flops.torchs_count import count_of_a_pass, count_while
from hpml_plugins.plugins.flops.tracing import Operation, trace

#: Share by which a count may differ from torchvision's before the record says so.
AGREES = 0.01


def measure(bench: Bench, *, model: str) -> dict[str, float]:
    """Count one forward pass of one input through `model`, in eval mode.

    model: a torchvision classifier or `module:factory`, and `@3x224x224` or `@int64:128` for the shape of one input.
    multiply_adds: of convolutions, linear layers and matrix products (`operators.MULTIPLY_ADD`), where fvcore counts
    one multiply-add as 1; biases are not counted.  flops: 2 × multiply_adds.  activations: elements of the results that
    new memory holds, views and in-place results left out.  bytes: of every tensor, weights included, that an operator
    reads or writes, each once an operator, as if nothing were fused or cached.  VGG19: 19.632 G multiply-adds, 99.37 %
    of them in convolutions.
    Raises HpmlError for an unknown model, a factory that fails and a model that cannot be traced.
    """
    with one_thread():
        return count_and_check(bench, read_spelling(model))


def count_and_check(bench: Bench, spelling: Spelling) -> dict[str, float]:
    """What `measure` does."""
    network, given = build(spelling), example(spelling)
    operations, torchs = count(spelling, network, given)
    whole, operators = tables.total(operations), tables.by_operator(operations)
    modules = dict(network.named_modules())
    own = tables.own_parameters(
        [(name, [(id(p), p.numel()) for p in module.parameters(recurse=False)]) for name, module in modules.items()]
    )
    parameters = sum(parameter.numel() for parameter in network.parameters())
    layers = tables.by_layer(operations, modules)

    bench.check(whole.multiply_adds > 0, "no multiply-add was counted")
    bench.check(all(operation.multiply_adds >= 0 for operation in operations), "an operation has a negative count")
    bench.check(sum(own.values()) == parameters, "parameters of the layers differ from the total")
    bench.check(flop(whole.multiply_adds) == torchs, "fvcore's count differs from torch's own flop_counter")

    types = {name: type(module).__name__ for name, module in modules.items()}
    for name, columns in (
        ("layers", tables.layer_columns(layers, types, own)),
        ("operators", tables.operator_columns(operators)),
    ):
        bench.series(name, columns, tables.units(columns))
    say_what_is_left_out(bench, operators)
    if not spelling.foreign:
        hold_against_torchvision(bench, spelling, whole.multiply_adds, int(given.shape[-1]))
    convolutions = operators["conv"].multiply_adds if "conv" in operators else 0
    return {
        "multiply_adds": whole.multiply_adds,
        "flops": flop(whole.multiply_adds),
        "parameters": parameters,
        "activations": whole.activations,
        "activation_bytes": whole.activation_bytes,
        "bytes": whole.bytes,
        "convolution_share": convolutions / whole.multiply_adds,
    }


def count(spelling: Spelling, network: Any, given: Any) -> tuple[list[Operation], int]:
    """The operations of one pass, and torch's own FLOP of the same pass. Raises HpmlError if it cannot be traced."""
    operations: list[Operation] = []
    try:
        if spelling.foreign:
            return trace(network, given), count_of_a_pass(network, given)
        torchs = count_while(lambda: operations.extend(trace(network, given)))
        return operations, torchs
    except Exception as error:
        shape = "x".join(map(str, given.shape))
        raise HpmlError(
            f"model {spelling.name!r} cannot be traced on {spelling.dtype} {shape}: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread: what is left to compute is small, and threads that wait for one another cost more.

    Besides, OpenMP's threads do not survive the fork into a point's process once somebody has used them before it.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def say_what_is_left_out(bench: Bench, operators: dict[str, tables.Sum]) -> None:
    """Name what is not in the numbers: what fvcore counts otherwise than in multiply-adds, and what it does not."""
    if apart := {name: row.apart for name, row in operators.items() if row.apart}:
        bench.warn(f"left out, not multiply-adds (fvcore's counts): {tables.spelled(apart)}")
    if uncounted := {name: row.calls for name, row in operators.items() if not row.counted}:
        bench.warn(f"not counted: {tables.spelled(uncounted, '×')}")


def hold_against_torchvision(bench: Bench, spelling: Spelling, multiply_adds: int, size: int) -> None:
    """Warn where torchvision publishes another number of multiply-adds for this model and size of image."""
    published = zoo.published_multiply_adds(spelling.name, size)
    if published and abs(multiply_adds - published) > max(AGREES * published, zoo.ROUNDED / 2):
        share = published / multiply_adds
        bench.warn(f"torchvision publishes {published / 1e9:.3f} G multiply-adds, {share:.4f} of this count")


FLOPS = Benchmark(
    "flops",
    measure,
    metrics=[
        Metric("multiply_adds", "MAC", "lower", "of convolutions, linear layers and matrix products, one input"),
        Metric("flops", "FLOP", "lower", "2 × multiply_adds, one input"),
        Metric("parameters", "1", "lower", "without auxiliary classifiers"),
        Metric("activations", "1", "lower", "elements of all results that new memory holds, one input"),
        Metric("activation_bytes", "B", "lower", "of the activations"),
        Metric("bytes", "B", "lower", "read and written by all operators, nothing fused or cached"),
        Metric("convolution_share", "1", "lower", "of the multiply-adds; descriptive: neither direction is better"),
    ],
    grid={"model": CLASSIFIERS},
    requires=Requires(modules=("torch", "torchvision", "fvcore.nn")),
    version="2",
    timeout=120,
    description="Multiply-adds, FLOP, parameters, activations and bytes of one input through a model, by fvcore.",
)
