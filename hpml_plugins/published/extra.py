"""GPU types and published figures that plugins bring, known while a block runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpml_plugins.published.figures import PublishedFigure
    from hpml_plugins.published.gpus import GpuType

GPU_TYPES: ContextVar[tuple[GpuType, ...]] = ContextVar("more GPU types", default=())
FIGURES: ContextVar[tuple[PublishedFigure, ...]] = ContextVar("more published figures", default=())


@contextmanager
def also_published(gpu_types: Sequence[GpuType], figures: Sequence[PublishedFigure]) -> Iterator[None]:
    """Let these be found after the built-in ones while the block runs, here and in processes forked in it."""
    tokens = GPU_TYPES.set((*GPU_TYPES.get(), *gpu_types)), FIGURES.set((*FIGURES.get(), *figures))
    try:
        yield
    finally:
        GPU_TYPES.reset(tokens[0])
        FIGURES.reset(tokens[1])
