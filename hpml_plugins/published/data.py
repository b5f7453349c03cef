"""The package's data files, read strictly, and what plugins add to them while a block runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

import msgspec

from hpml_plugins.errors import DefinitionError

if TYPE_CHECKING:
    from hpml_plugins.published.figures import PublishedFigure
    from hpml_plugins.published.gpus import GpuType

T = TypeVar("T")

GPU_TYPES: ContextVar[tuple[GpuType, ...]] = ContextVar("GPU types of plugins", default=())
FIGURES: ContextVar[tuple[PublishedFigure, ...]] = ContextVar("published figures of plugins", default=())


@contextmanager
def use_published(gpu_types: Sequence[GpuType], figures: Sequence[PublishedFigure]) -> Iterator[None]:
    """Let these be found after the built-in ones while the block runs, here and in processes forked in it."""
    tokens = GPU_TYPES.set((*GPU_TYPES.get(), *gpu_types)), FIGURES.set((*FIGURES.get(), *figures))
    try:
        yield
    finally:
        GPU_TYPES.reset(tokens[0])
        FIGURES.reset(tokens[1])


def read_data(name: str, kind: type[T]) -> T:
    """The file `name` of `hpml_plugins/data` as a `kind`: a missing, unknown or mistyped key is an error.

    Raises DefinitionError naming the file and the place.
    """
    # not at the top: discovery imports this module
    from importlib import resources

    import yaml

    text = resources.files("hpml_plugins").joinpath("data", name).read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's takes a tenth of the time
    try:
        return msgspec.convert(yaml.load(text, loader), kind)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise DefinitionError(str(error), f"hpml_plugins/data/{name}") from None
