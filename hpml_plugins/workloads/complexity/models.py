"""What to count: a model and the shape of its input, from one word of the grid."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.workloads.complexity import zoo

#: Of a factory that names no shape: a picture of the usual size.
USUAL_SHAPE = (3, 224, 224)


@dataclass(frozen=True)
class Spelling:
    """`resnet50`, `resnet50@3x320x320`, `package.module:factory@int64:128`.

    name: torchvision's, or `module:factory`.  shape: of one input without the batch, None where it was not said.
    dtype: torch's name of its type.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str = "float32"

    @property
    def foreign(self) -> bool:
        """Whether it names a factory rather than a classifier of torchvision."""
        return ":" in self.name


def read_spelling(text: str) -> Spelling:
    """A word of the grid. Raises HpmlError where it cannot be read."""
    found = re.fullmatch(r"(?P<name>\w+|[\w.]+:[\w.]+)(@((?P<dtype>[a-z]\w*):)?(?P<shape>\d+(x\d+)*))?", text)
    if not found:
        raise HpmlError(
            f"model {text!r} is neither a torchvision name nor module:factory, nor one with @3x224x224 after it"
        )
    shape = tuple(map(int, found["shape"].split("x"))) if found["shape"] else None
    return Spelling(found["name"], shape, found["dtype"] or "float32")


def build(spelling: Spelling) -> Any:
    """The model in eval mode on the CPU. Raises HpmlError in one line, whatever is wrong with a factory."""
    return build_foreign(spelling.name) if spelling.foreign else zoo.build(spelling.name)


def build_foreign(name: str) -> Any:
    """The model that `module:factory`, called without arguments, returns. Raises HpmlError naming what went wrong."""
    import torch

    module, _, attribute = name.partition(":")
    try:
        factory: Any = importlib.import_module(module)
        for part in attribute.split("."):
            factory = getattr(factory, part)
    except Exception as error:
        raise HpmlError(f"model {name!r} cannot be found: {type(error).__name__}: {error}") from error
    try:
        model = factory()
    except Exception as error:
        raise HpmlError(f"model {name!r}: the factory raised {type(error).__name__}: {error}") from error
    if not isinstance(model, torch.nn.Module):
        raise HpmlError(f"model {name!r}: the factory returned a {type(model).__name__}, not a torch.nn.Module")
    return model.cpu().eval()


def example(spelling: Spelling) -> Any:
    """One input, all zeros, a batch of one. Raises HpmlError for a dtype that torch does not have."""
    import torch

    shape = spelling.shape or (USUAL_SHAPE if spelling.foreign else (3, *[zoo.image_size(spelling.name)] * 2))
    dtype = getattr(torch, spelling.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise HpmlError(f"model {spelling.name!r}: torch has no dtype {spelling.dtype!r}")
    return torch.zeros(1, *shape, dtype=dtype)
