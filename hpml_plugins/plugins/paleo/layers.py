"""A forward pass taken apart: each layer timed alone, and all of them with a synchronisation after each. Imports torch.

A layer is a node of torch.fx's graph: a leaf module (a convolution, a ReLU) or a function that a module calls (a sum of
residuals, a concatenation). What only gives a view of its input (flatten, dropout in eval mode) is no work, not timed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from hpml_plugins import Bench, HpmlError

Visit = Callable[[Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

#: Of one layer alone: s of warming up, s of sampling, samples at least (of short layers each the mean of up to 200
#: calls), and the wanted half-width of the median's interval. There are up to 140 different layers in
#: a model, and the card is warm from the one before.
WARM_UP, BUDGET, FEWEST, PRECISION = 0.01, 0.03, 3, 0.02
#: Passes with synchronisations: at most so many, s, at least.
PASSES, PASSES_BUDGET, FEWEST_PASSES = 30, 0.5, 3


@dataclass(frozen=True)
class Layer:
    """One node that works.

    node: its name in the graph.  path: of its module; of a function: of the module that calls it.  leaf: whether it is
    a whole module.  seconds: alone, on a GPU with its launch hidden.
    """

    node: str
    path: str
    leaf: bool
    seconds: float


class Walk(fx.Interpreter):  # type: ignore[misc]  # torch is untyped to mypy here
    """Runs a traced model node by node and lets `visit` make each call."""

    def __init__(self, graph: Any, visit: Visit) -> None:
        super().__init__(graph)
        self.visit = visit

    def run_node(self, n: Any) -> Any:
        """One node of the graph."""
        if n.op not in ("call_module", "call_function", "call_method"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.op == "call_module":
            return self.visit(n, self.fetch_attr(n.target), args, kwargs)
        call = n.target if n.op == "call_function" else getattr(type(args[0]), n.target)
        return self.visit(n, call, args, kwargs)


def take_apart(network: Any, model: str) -> Any:
    """The model as a graph of its layers. Raises HpmlError for one that torch.fx cannot trace."""
    try:
        return fx.symbolic_trace(network)
    except Exception as error:
        raise HpmlError(
            f"model {model!r} cannot be taken apart into layers by torch.fx: {type(error).__name__}: {error}"
        ) from error


def time_alone(bench: Bench, graph: Any, images: Any) -> tuple[list[Layer], Any]:
    """Time each layer alone on its own inputs of one pass; and the pass's result.

    Layers of equal settings whose inputs have equal shapes are timed once. A layer runs again and again on the same
    input, which on a GPU may then lie in the L2 cache.
    """
    known: dict[Any, float | None] = {}
    layers: list[Layer] = []
    unsure: list[str] = []

    def visit(node: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = _key(node, call, args, kwargs)
        if key not in known:
            bench.progress(f"timing layer {node.name}", None)
            told = len(bench.warnings)
            known[key] = _seconds_alone(bench, call, args, kwargs)
            if bench.warnings[told:]:
                unsure.append(node.name)
                del bench.warnings[told:]
        if (seconds := known[key]) is not None:
            layers.append(Layer(node.name, path_of(node), node.op == "call_module", seconds))
        return call(*args, **kwargs)

    before = bench.plan
    bench.plan = replace(before, warm_up=WARM_UP, precision=PRECISION, fewest=FEWEST)
    # the timer collects garbage before each layer: what torch's import has left need not be looked through each time
    gc.collect()
    gc.freeze()
    try:
        with torch.no_grad():
            result = Walk(graph, visit).run(images)
    finally:
        gc.unfreeze()
        bench.plan = before
    if unsure:
        timed = sum(seconds is not None for seconds in known.values())
        bench.warn(
            f"{len(unsure)} of {timed} layers timed alone were not stable to ±{PRECISION:.0%} within {BUDGET:g} s"
        )
    return layers, result


def time_synchronised(graph: Any, images: Any, layers: list[Layer]) -> list[list[float]]:
    """s of every layer, pass by pass, by the host's clock, the device idle before and after each."""
    working = {layer.node for layer in layers}
    synchronise = torch.cuda.synchronize if images.is_cuda else lambda: None
    taken: list[float] = []

    def visit(node: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if node.name not in working:
            return call(*args, **kwargs)
        synchronise()
        started = time.perf_counter()
        result = call(*args, **kwargs)
        synchronise()
        taken.append(time.perf_counter() - started)
        return result

    passes: list[list[float]] = []
    walk = Walk(graph, visit)
    with torch.no_grad():
        walk.run(images)  # not counted: it finds the algorithms and allocates
        ends = time.perf_counter() + PASSES_BUDGET
        while len(passes) < FEWEST_PASSES or (len(passes) < PASSES and time.perf_counter() < ends):
            taken.clear()
            walk.run(images)
            passes.append(list(taken))
    return passes


def path_of(node: Any) -> str:
    """The path of the module that a node is, or of the one that calls it; "" for the model itself."""
    if node.op == "call_module":
        return str(node.target)
    return str(next(reversed(node.meta.get("nn_module_stack") or {"": None})))


def _seconds_alone(
    bench: Bench, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> float | None:
    """Median of the time of one call, s; None for one that gives no tensor, or a view of its input."""
    # a copy: an operation in place must not change what the pass goes on with
    own: list[Any] = []
    copies = fx.node.map_aggregate(args, lambda value: _copied(value, own))
    versions = [tensor._version for tensor in own]
    result = call(*copies, **kwargs)
    if not isinstance(result, torch.Tensor):
        return None
    places = {tensor.untyped_storage().data_ptr() for tensor in own}
    untouched = versions == [tensor._version for tensor in own]
    if untouched and result.untyped_storage().data_ptr() in places:
        return None
    return bench.time(lambda: call(*copies, **kwargs), budget=BUDGET).median


def _copied(value: Any, own: list[Any]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    own.append(value.clone())
    return own[-1]


def _key(node: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What makes two layers take the same time: settings, and shape and layout of the inputs."""

    def spelled(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{tuple(value.shape)} {value.stride()} {value.dtype}"
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(spelled, value))}]"
        return repr(value)

    what = f"{type(call).__qualname__} {call!r}" if node.op == "call_module" else str(node.target)
    return what, spelled(args), repr(kwargs)
