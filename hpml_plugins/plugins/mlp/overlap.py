"""A batch in other ways than the exercise's: gradients in pieces, images ahead of time. Imports torch."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from hpml_plugins.plugins.mlp.job import RATE, REG
from hpml_plugins.plugins.mlp.training import Trainer

#: In how many pieces W1's gradient is made, copied and added up.
PIECES = 8


def in_pieces(trainer: Trainer) -> None:
    """One batch in which parts of W1's gradient are on their way while others are made.

    All else is ready before W1's gradient is begun, and goes first.
    """
    trainer.copy_images()
    compute_in_pieces(trainer)


def compute_in_pieces(trainer: Trainer) -> None:
    """The same, images apart."""
    network, exchange = trainer.network, trainer.exchange
    network.forward()
    network.backward_to_hidden(trainer.job.batch)
    inputs, hidden = network.sizes.inputs, network.sizes.hidden
    started = [exchange.start(network.gradient, hidden * inputs, network.sizes.parameters)]
    for begin, end in pieces(hidden, PIECES):
        network.backward_rows(begin, end)
        started.append(exchange.start(network.gradient, begin * inputs, end * inputs))
    waiting: Any = None
    for each in started:
        now = exchange.add_up(each)
        if waiting is not None:
            exchange.finish(waiting)
        waiting = now
    exchange.finish(waiting)
    network.step(RATE, REG)


def pieces(rows: int, count: int) -> list[tuple[int, int]]:
    """So many parts of the rows, or as many as there are rows, as (first, past the last), nearly equal."""
    count = min(count, rows)
    borders = [rows * i // count for i in range(count + 1)]
    return list(itertools.pairwise(borders))


class Ahead:
    """Batches whose images were copied on a stream of their own while the batch before was computed. GPUs only."""

    def __init__(self, trainer: Trainer, *, pieces: bool) -> None:
        self._trainer, self._pieces = trainer, pieces
        self._stream = torch.cuda.Stream()
        self._next = (torch.empty_like(trainer.network.x), torch.empty_like(trainer.network.targets))
        self._fetch()

    def batch(self) -> None:
        """One batch; the next one's images come meanwhile."""
        trainer, network = self._trainer, self._trainer.network
        torch.cuda.current_stream().wait_stream(self._stream)
        (network.x, network.targets), self._next = self._next, (network.x, network.targets)
        self._fetch()
        if self._pieces:
            compute_in_pieces(trainer)
            return
        network.forward()
        network.backward(trainer.job.batch)
        trainer.exchange.reduce(network.gradient)
        network.step(RATE, REG)

    def _fetch(self) -> None:
        # The buffers were last read by a batch that the current stream has been given before.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._next[0].copy_(self._trainer.host_x, non_blocking=True)
            self._next[1].copy_(self._trainer.host_targets, non_blocking=True)
