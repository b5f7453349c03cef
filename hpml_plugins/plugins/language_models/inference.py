"""A decoder ready to be timed: its cache filled, its steps compiled and captured. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hpml_plugins.plugins.language_models.llama import Llama

#: Steps before a capture, so that set-up by libraries in their first calls is not captured.
STEPS_BEFORE_CAPTURE = 3


def compile_options(tokens: int) -> dict[str, Any]:
    """Inductor's options for a step over `tokens` tokens.

    One token: each product becomes a reduction, which is tuned and starts while the previous one
    ends (programmatic dependent launch, from compute capability 9). Few tokens: Triton's products
    are tried besides cuBLAS's, because they can include the conversion of quantised weights. Many:
    cuBLAS.
    """
    if tokens == 1:
        dependent = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
        return {"coordinate_descent_tuning": True, "triton.enable_pdl": dependent}
    return {"max_autotune_gemm": True} if tokens <= 256 else {}


def captured(step: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """A call that replays the step as one CUDA graph, and the step's results, which the call
    overwrites."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(STEPS_BEFORE_CAPTURE):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # other threads, such as NCCL's watchdog, may call CUDA during the capture
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        written = step()
    return graph.replay, written


class DecodeStep:
    """A step in which each sequence gets a token, at the last place of its full cache.

    The first sequence's cache is computed from `tokens` (1, context − 1), read as a prompt; the
    other caches are filled with normal numbers.  last: (batch, 1), the token that each sequence
    adds.
    """

    def __init__(self, model: Llama, batch: int, seed: int) -> None:
        device = str(model.cos.device)
        generator = torch.Generator(device).manual_seed(seed)
        self.model, self.caches = model, model.caches(batch)
        size, vocabulary = (batch, model.context), model.shape.vocabulary
        text = torch.randint(vocabulary, size, generator=generator, device=device)
        self.tokens, self.last = text[:1, :-1], text[:, -1:]
        for cache in self.caches:
            cache.keys.normal_(generator=generator)
            cache.values.normal_(generator=generator)
        positions = torch.full((batch, 1), model.context - 1, device=device)
        self.place = model.place(torch.arange(batch, device=device), positions)

    def read_prompt(self) -> None:
        """Fill the first sequence's cache."""
        self.model.prompt(self.tokens, self.caches)

    def __call__(self) -> tuple[Any, Any]:
        """Logits (batch, vocabulary) and tokens (batch,)."""
        found: tuple[Any, Any] = self.model(self.last, self.caches, self.place)
        return found

    def whole(self) -> Any:
        """The first sequence's last logits, (vocabulary,), by a pass over all of its tokens."""
        return self.model.prompt(self.text(), self.model.caches(1))[0][0]

    def text(self) -> Any:
        """The first sequence's tokens, (1, context)."""
        return torch.cat([self.tokens, self.last[:1]], 1)


def relative_error(found: Any, wanted: Any) -> float:
    """|found − wanted| / |wanted|, 2-norms, in float64."""
    wanted = wanted.double()
    return float((found.double() - wanted).norm() / wanted.norm())
