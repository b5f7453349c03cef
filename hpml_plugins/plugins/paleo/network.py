"""A model on the measuring device: its forward pass, whole and layer by layer, and its training
step.

Imports torch: for use inside `measure`. A layer is a node of torch.fx's graph: a leaf module (a
convolution, a ReLU) or a function that a module calls (a sum of residuals, a concatenation). Nodes
that only return a view of their input (flatten, dropout in eval mode) do no work and are not timed.
"""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from hpml_plugins import Bench, HpmlError, build_model

Visit = Callable[[Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

#: For one of up to 140 layers alone, on a card that is warm from the previous one: s of warming up,
#: s of sampling, samples at least (of short layers each the mean of up to 200 calls), and the
#: wanted half-width of the median's interval.
WARM_UP, BUDGET, FEWEST, PRECISION = 0.01, 0.03, 3, 0.02
#: Passes with synchronisations: at most; their budget, s; at least.
PASSES, PASSES_BUDGET, FEWEST_PASSES = 30, 0.5, 3


class Network:
    """A model, its matrices drawn by He et al., a batch of random inputs and labels, in a precision
    on a device.

    Raises HpmlError for an unknown model, and for one that does not take pictures or give one row
    of scores each.
    """

    def __init__(self, model: str, dtype: str, batch: int, device: str, seed: int) -> None:
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = dtype == "tf32"
        kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
        self.name = model
        network, one = build_model(model)
        if not one.is_floating_point():
            raise HpmlError(f"model {model!r} does not take pictures: its input is {one.dtype}")
        torch.manual_seed(seed)
        for path, parameter in network.to(device).named_parameters(remove_duplicate=False):
            if parameter.dim() > 1:
                torch.nn.init.kaiming_normal_(parameter, nonlinearity="relu")
            else:  # scales 1, shifts 0
                torch.nn.init.constant_(parameter, float(path.rpartition(".")[2] == "weight"))
        self.network = network.to(kind)
        self.images = torch.randn(batch, *one.shape[1:], device=device).to(kind)
        try:
            scores = self.forward()
        except (HpmlError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            shape = "x".join(map(str, self.images.shape))
            raise HpmlError(
                f"model {model!r} does not run on {shape}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(scores, torch.Tensor) or scores.dim() != 2:
            raise HpmlError(f"model {model!r} does not give one row of scores for each input")
        self.labels = torch.randint(scores.shape[1], (batch,), device=device)
        self.loss: Any = None

    def forward(self) -> Any:
        """One forward pass in eval mode, without gradients."""
        with torch.no_grad():
            return self.network(self.images)

    def train(self) -> None:
        """Forward, cross entropy, backward; no optimiser. Gradients are fresh, not accumulated.
        Needs train mode."""
        self.network.zero_grad(set_to_none=True)
        self.loss = torch.nn.functional.cross_entropy(self.network(self.images), self.labels)
        self.loss.backward()

    def error(self) -> float:
        """Relative error (2-norm) of the first input's scores against float64 on the CPU; NaN where
        not finite."""
        with torch.no_grad():
            truth = copy.deepcopy(self.network).to("cpu", torch.float64)(
                self.images[:1].to("cpu", torch.float64)
            )
        return relative_error(self.forward()[:1].cpu(), truth)

    def gradients_finite(self) -> bool:
        """Whether the loss and all gradients of the last training step are finite, and every
        parameter has one."""
        gradients = [parameter.grad for parameter in self.network.parameters()]
        return all(
            values is not None and bool(values.isfinite().all())
            for values in (self.loss, *gradients)
        )

    def graph(self) -> Any:
        """The model as a graph of its layers. Raises HpmlError if torch.fx cannot trace it."""
        try:
            return fx.symbolic_trace(self.network)
        except Exception as error:
            what = f"model {self.name!r} cannot be taken apart into layers by torch.fx"
            raise HpmlError(f"{what}: {type(error).__name__}: {error}") from error


def relative_error(found: Any, expected: Any) -> float:
    """The 2-norm of the difference over that of the expected value."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


class Walk(fx.Interpreter):  # type: ignore[misc]  # torch is untyped to mypy here
    """Runs a traced model node by node, with each call made by `visit`."""

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


@dataclass(frozen=True)
class Layer:
    """One node that does work.  path: of its module; for a function, of the calling module.  leaf:
    whether it is a whole module.

    seconds: alone, on a GPU with its launch hidden.
    """

    node: str
    path: str
    leaf: bool
    seconds: float


def time_alone(bench: Bench, graph: Any, images: Any) -> tuple[list[Layer], Any]:
    """Time each layer alone on its own inputs of one pass, equal ones once; and the pass's
    result."""
    times: dict[Any, Any] = {}
    layers: list[Layer] = []

    def visit(
        node: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        what = (
            f"{type(call).__qualname__} {call!r}" if node.op == "call_module" else str(node.target)
        )
        key = what, repr(fx.node.map_aggregate((args, kwargs), _described))
        if key not in times:
            bench.progress(f"timing layer {node.name}", None)
            times[key] = _time_alone(bench, call, args, kwargs)
        if times[key]:
            leaf = node.op == "call_module"
            path = (
                node.target
                if leaf
                else next(reversed(node.meta.get("nn_module_stack") or {"": None}))
            )
            layers.append(Layer(node.name, str(path), leaf, times[key].median))
        return call(*args, **kwargs)

    # the timer would collect garbage before each layer, each time scanning the objects of torch
    gc.collect()
    gc.disable()
    try:
        with torch.no_grad():
            result = Walk(graph, visit).run(images)
    finally:
        gc.enable()
    timed = [samples for samples in times.values() if samples]
    if imprecise := sum(samples.relative_precision > PRECISION for samples in timed):
        share = f"{imprecise} of {len(timed)} layers timed alone"
        bench.warn(f"{share} were not stable to ±{PRECISION:.0%} within {BUDGET:g} s")
    return layers, result


def _described(value: Any) -> Any:
    """The properties of a tensor that a layer's time depends on; anything else unchanged."""
    return (
        f"{tuple(value.shape)} {value.stride()} {value.dtype}"
        if isinstance(value, torch.Tensor)
        else value
    )


def _time_alone(
    bench: Bench, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Samples of the time of one call, s; None if it returns no tensor, or a view of its input."""
    own: list[Any] = []

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        own.append(value.clone())
        return own[-1]

    # an in-place operation must not change the inputs of the rest of the pass
    copies = fx.node.map_aggregate(args, copied)
    versions = [tensor._version for tensor in own]
    result = call(*copies, **kwargs)
    if not isinstance(result, torch.Tensor):
        return None
    places = {tensor.untyped_storage().data_ptr() for tensor in own}
    untouched = versions == [tensor._version for tensor in own]
    if untouched and result.untyped_storage().data_ptr() in places:
        return None
    plan = bench.plan.but(warm_up=WARM_UP, precision=PRECISION, fewest=FEWEST, budget=BUDGET)
    return bench.time(lambda: call(*copies, **kwargs), plan=plan, quiet=True)


def time_synchronised(graph: Any, images: Any, layers: list[Layer]) -> list[list[float]]:
    """s of every layer, pass by pass, by the host's clock, the device idle before and after
    each."""
    working = {layer.node for layer in layers}
    synchronise = torch.cuda.synchronize if images.is_cuda else lambda: None
    taken: list[float] = []

    def visit(
        node: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
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
