"""Models by name: torchvision's classifiers and `module:factory`, built without initialising
weights."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import dataclass
from typing import Any, cast

from hpml_plugins.errors import HpmlError, describe, nearest

#: Models with auxiliary classifiers, which are only for training: neither their work nor their
#: parameters are counted.
AUXILIARY = ("googlenet", "inception_v3")
USUAL_SIZE = 224


@dataclass(frozen=True)
class ModelName:
    """`resnet50`, `resnet50@3x320x320`, `package.module:factory@int64:128,3x224x224`.

    name: torchvision's, or `module:factory`.  inputs: torch's name of the type of each, and its
    shape without the batch; none for the model's usual input.
    """

    name: str
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def is_factory(self) -> bool:
        """Whether it names a factory and not a classifier of torchvision."""
        return ":" in self.name


def parse_model_name(text: str) -> ModelName:
    """Parse a model's name from a grid. Raises HpmlError if it cannot be parsed."""
    one = r"(?:[a-z]\w*:)?\d+(?:x\d+)*"
    found = re.fullmatch(
        rf"(?P<name>\w+|[\w.]+:[\w.]+)(@(?P<inputs>{one}(,{one})*))?", text
    )
    if not found:
        raise HpmlError(
            f"model {text!r} is neither a torchvision name nor module:factory, nor one with"
            " @3x224x224 after it"
        )
    inputs = []
    for each in (found["inputs"] or "").split(","):
        dtype, _, shape = each.rpartition(":")
        if shape:
            inputs.append((dtype or "float32", tuple(map(int, shape.split("x")))))
    return ModelName(found["name"], tuple(inputs))


def build_model(model: str) -> tuple[Any, Any]:
    """The model in eval mode on the CPU, and one input of zeros, a batch of one.

    model: a torchvision classifier or `module:factory`, and `@3x224x224` or `@int64:128` for the
    shape of one input. Several inputs, `@3x224x224,int64:12`, give a tuple, as does a factory that
    returns its inputs with the model, (module, (input, …)). The weights of torchvision's models are
    uninitialised memory. Classifiers with auxiliary heads come without them. Raises HpmlError for
    an unknown model, a factory that fails and a dtype that torch lacks.
    """
    import torch

    name = parse_model_name(model)
    if name.is_factory:
        network, own_inputs = _build_from_factory(name.name)
    else:
        network = _build_classifier(name.name)
        own_inputs = ()
    if own_inputs and not name.inputs:
        return network, own_inputs
    side = USUAL_SIZE if name.is_factory else image_size(name.name)
    inputs = []
    for type_name, shape in name.inputs or [("float32", (3, side, side))]:
        dtype = getattr(torch, type_name, None)
        if not isinstance(dtype, torch.dtype):
            raise HpmlError(f"model {name.name!r}: torch has no dtype {type_name!r}")
        inputs.append(torch.zeros(1, *shape, dtype=dtype))
    return network, inputs[0] if len(inputs) == 1 else tuple(inputs)


def image_size(name: str) -> int:
    """Side of the square image, px: the smallest that the metadata of the model's weights names,
    usually 224."""
    return min((size for size, _ in _weights(name)), default=USUAL_SIZE)


def published_multiply_adds(name: str, size: int) -> float | None:
    """Multiply-adds that torchvision publishes for an image of this side, or None. They are rounded
    to 1 M."""
    return next(
        (weights.meta["_ops"] * 1e9 for side, weights in _weights(name) if side == size),
        None,
    )


def _build_from_factory(name: str) -> tuple[Any, tuple[Any, ...]]:
    """The model and the inputs from the factory; no inputs if it returned only the model."""
    import torch

    try:
        factory = pkgutil.resolve_name(name)
    except Exception as error:
        raise HpmlError(f"model {name!r} cannot be found: {describe(error)}") from error
    try:
        made = factory()
    except Exception as error:
        raise HpmlError(f"model {name!r}: the factory raised {describe(error)}") from error
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, ())
    if not isinstance(model, torch.nn.Module):
        raise HpmlError(
            f"model {name!r}: the factory returned a {type(model).__name__}, not a torch.nn.Module"
        )
    return model.cpu().eval(), tuple(inputs) if isinstance(inputs, tuple | list) else (
        inputs,
    )


def _build_classifier(name: str) -> Any:
    """Not on "meta": torch's tracer cannot run convolutions there, and a few models compute while
    they are built.

    torch.nn.init does nothing during the build: drawing VGG's 144 M normal numbers takes seconds,
    and counts only depend on shapes.
    """
    from unittest import mock

    import torch
    from torchvision import models

    def keep(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return tensor

    require_classifier(name)
    without = {"aux_logits": False, "init_weights": False} if name in AUXILIARY else {}
    initialisers = [
        each
        for each in dir(torch.nn.init)
        if each.endswith("_") and not each.startswith("_")
    ]
    with mock.patch.multiple(torch.nn.init, **dict.fromkeys(initialisers, cast(Any, keep))):
        return models.get_model(name, weights=None, **without).eval()


def require_classifier(name: str) -> None:
    """Raise HpmlError for a model that is not a classifier of torchvision."""
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        raise HpmlError(f"torchvision has no classifier {name!r}; {nearest(name, known)}")


def _weights(name: str) -> list[tuple[int, Any]]:
    from torchvision import models

    require_classifier(name)
    return [
        (weights.transforms().crop_size[0], weights)
        for weights in models.get_model_weights(name)
    ]
