"""The parts of a step of each decoder, each as a step of its own. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import sdpa_kernel

from hpml_plugins.plugins.language_models import gpt, inference, llama

#: Converts a function into the timed one: compiled or unchanged.
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Part:
    """step: all calls of the part in a step, or one of `count` equal ones."""

    name: str
    step: Callable[[], Any]
    count: int = 1


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function unchanged: on a CPU nothing is compiled."""
    return function


def compiler(options: dict[str, Any], backend: str = "inductor") -> Compile:
    """torch.compile with these options, specialised to the shapes of the calls."""
    gpt.compile_in_this_process()
    more = {"options": options} if options else {}
    return lambda function: torch.compile(function, dynamic=False, backend=backend, **more)


@contextmanager
def exact_backends() -> Iterator[None]:
    """Attention by the back ends of the models, without gradients."""
    with torch.no_grad(), sdpa_kernel(llama.BACKENDS, set_priority=True):
        yield


def of_inference(
    model: llama.Llama, tokens: Any, caches: list[llama.Cache], place: llama.Place, fix: Compile
) -> list[Part]:
    """The parts of a pass over `tokens` (sequences, new).

    A part uses the weights and caches of all layers in turn, as the model does, so that none stays
    in the card's cache. Its inputs are the same in each layer.
    """
    project, merge, expand, contract, attend = (
        fix(function)
        for function in (
            llama.Block.project,
            llama.Block.merge,
            llama.Block.expand,
            llama.Block.contract,
            llama.attend,
        )
    )
    blocks, ends = list(zip(model.blocks, caches, strict=True)), fix(llama.Ends.forward)
    with exact_backends():
        x = model.embedding(tokens)
        heads: tuple[Any, Any, Any] = model.blocks[0].project(x, caches[0], place)
        mixed, inner = llama.attend(*heads, caches[0], place), model.blocks[0].expand(x)

    def each(call: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        def step() -> Any:
            with exact_backends():
                return [call(block, cache) for block, cache in blocks][-1]

        return step

    def last() -> Any:
        with exact_backends():
            return ends(model.ends, x[:, -1])

    return [
        Part("embedding", lambda: model.embedding(tokens)),
        Part("attention_in", each(lambda block, cache: project(block, x, cache, place))),
        Part("attention", each(lambda block, cache: attend(*heads, cache, place))),
        Part("attention_out", each(lambda block, cache: merge(block, x, mixed))),
        Part("feed_forward_in", each(lambda block, cache: expand(block, x))),
        Part("feed_forward_out", each(lambda block, cache: contract(block, x, inner))),
        Part("head", last),
    ]


def of_training(trainer: gpt.Trainer, text: tuple[Any, Any], fix: Compile) -> list[Part]:
    """The parts of a training step, each forward and backward: those of the first layer,
    representing all, then the head with its loss, and the optimiser."""
    model: gpt.Gpt = trainer.model
    layer, tokens, targets = model.layers[0], *text
    count = len(model.layers)

    def start(tokens: Any) -> Any:
        found = model.embedding(tokens) + model.positions.weight[: tokens.shape[1]]
        return found.to(model.dtype)

    def finish(x: Any) -> Any:
        return model.loss(model.norm(x).to(model.dtype), targets)

    with torch.no_grad(), context(model):
        x = start(tokens)
        heads = layer.project(x)
        mixed, inner = gpt.attend(*heads), layer.expand(x)
    parts: list[tuple[str, Callable[..., Any], tuple[Any, ...], int]] = [
        ("embedding", start, (tokens,), 1),
        ("attention_in", layer.project, (x,), count),
        ("attention", gpt.attend, heads, count),
        ("attention_out", layer.merge, (x, mixed), count),
        ("feed_forward_in", layer.expand, (x,), count),
        ("feed_forward_out", layer.contract, (x, inner), count),
        ("head", finish, (x,), 1),
    ]
    found = [
        Part(name, there_and_back(model, fix(call), given), count)
        for name, call, given, count in parts
    ]
    return [*found, Part("optimiser", updates(trainer))]


def there_and_back(
    model: gpt.Gpt, call: Callable[..., Any], given: tuple[Any, ...]
) -> Callable[[], Any]:
    """A step of a part forward and backward, including its parameters' gradients; earlier gradients
    are discarded."""
    leaves = [
        each.detach().clone().requires_grad_() if each.is_floating_point() else each
        for each in given
    ]

    def there() -> tuple[Any, ...]:
        with context(model):
            results = call(*leaves)
        return results if isinstance(results, tuple) else (results,)

    ones = [torch.ones_like(each) for each in there()]

    def step() -> Any:
        results = there()
        torch.autograd.backward(results, ones)
        for leaf in leaves:
            leaf.grad = None
        model.zero_grad(set_to_none=True)
        return results

    return step


@contextmanager
def context(model: gpt.Gpt) -> Iterator[None]:
    """Dtype and back ends as in the model's own pass."""
    with model.precision(), sdpa_kernel(llama.BACKENDS, set_priority=True):
        yield


def updates(trainer: gpt.Trainer) -> Callable[[], None]:
    """The optimiser's step, with gradients of zero."""
    given = [(each, torch.zeros_like(each)) for each in trainer.model.parameters()]

    def step() -> None:
        for parameter, gradient in given:
            parameter.grad = gradient
        trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)

    return step


def as_graph(part: Part) -> Callable[[], Any]:
    """The part's step as one CUDA graph."""
    return inference.captured(part.step)[0]
