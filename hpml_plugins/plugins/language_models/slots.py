"""A decoder that serves several requests at a time, each in a slot: a row of its cache. Imports
torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from hpml_plugins.plugins.language_models.fused_decoding import BATCHES, FORMATS, kernel_step
from hpml_plugins.plugins.language_models.inference import (
    DecodeStep,
    captured,
    compile_options,
)
from hpml_plugins.plugins.language_models.llama import Cache, Llama


def has_kernels(format: str, slots: int) -> bool:
    """Whether there are kernels of ours for a step of as many slots."""
    return format in FORMATS and slots in BATCHES


class LlamaEngine:
    """The engine of a server: a decoder with `slots` slots.

    A step is by kernels of ours, of as many slots as are in use, rounded up to a number that these
    are made for; or by the decoder itself, always of all slots.

    prompts: (requests, length): all have the same length.
    """

    def __init__(self, decoder: Llama, slots: int, prompts: Any, *, by_kernels: bool) -> None:
        device = prompts.device
        self.slots, self.decoder, self.prompts = slots, decoder, prompts
        self.by_kernels = by_kernels
        self.row = torch.zeros(1, dtype=torch.long, device=device)
        self.prompt = prompts[:1].clone()
        self.rows = torch.arange(slots, device=device)
        self.last = torch.zeros(slots, 1, dtype=torch.long, device=device)
        self.positions = torch.zeros_like(self.last)
        self.advance = torch.zeros_like(self.last)  # 1 in a slot with a request, else 0
        self.inputs = DecodeStep(decoder, slots, seed=0)
        self.caches = self.inputs.caches
        self.decode = kernel_step(self.inputs) if by_kernels else self.inputs
        self._read: Callable[[], Any] = self._read_prompt
        self._steps: dict[int, Callable[[], Any]] = {
            count: partial(self._decode_first, count) for count in self._counts()
        }

    def _counts(self) -> list[int]:
        """How many slots a step may have, ascending."""
        if not self.by_kernels:
            return [self.slots]
        return [count for count in BATCHES if 1 < count < self.slots] + [self.slots]

    def capture(self) -> None:
        """Compile what is not by kernels of ours; make reading a prompt and each step a CUDA
        graph."""
        compiled_tokens = len(self.prompt[0]) if self.by_kernels else self.slots
        self.decoder.compile_parts(compile_options(compiled_tokens))
        self._read = replayed(self._read)
        self._steps = {count: replayed(step) for count, step in self._steps.items()}

    def _read_prompt(self) -> Any:
        positions = self.decoder.places[: self.prompt.shape[1]][None]
        place = self.decoder.place(self.row, positions)
        return self.decoder(self.prompt, self.caches, place)[1]

    def _decode_first(self, count: int) -> Any:
        """Tokens of the first slots, (count,)."""
        positions = self.positions[:count]
        self.inputs.last = self.last[:count]
        self.inputs.caches = [
            Cache(cache.keys[:count], cache.values[:count]) for cache in self.caches
        ]
        # our kernels look no further than each position
        self.inputs.place = self.decoder.place(
            self.rows[:count], positions, masked=not self.by_kernels
        )
        tokens = self.decode()[1]
        self.inputs.last.copy_(tokens[:, None])
        positions.add_(self.advance[:count])
        return tokens

    def start(self, number: int, slot: int) -> int:
        """Read the prompt of request `number` into a slot; return its first token."""
        self.prompt.copy_(self.prompts[number : number + 1])
        self.row.fill_(slot)
        first = self._read()
        self.last[slot] = first
        self.positions[slot] = self.prompt.shape[1]
        self.advance[slot] = 1
        return int(first)

    def step(self, slots: int) -> list[int]:
        """One more token in each of the first slots."""
        count = next(count for count in self._steps if count >= slots)
        return [int(token) for token in self._steps[count]().tolist()]

    def finish(self, slot: int) -> None:
        """Leave a slot at its first position, where a step reads nothing of its cache."""
        self.positions[slot] = self.advance[slot] = 0


def replayed(step: Callable[[], Any]) -> Callable[[], Any]:
    """The step as a CUDA graph.  step: returns a tensor."""
    replay, written = captured(step)

    def call() -> Any:
        replay()
        return written

    return call
