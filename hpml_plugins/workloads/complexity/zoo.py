"""torchvision's classifiers: built without drawing weights, the size of their image, and what torchvision publishes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from hpml_plugins.errors import HpmlError

#: Models with auxiliary classifiers, which serve training only: without them neither their work nor their
#: parameters are counted.
AUXILIARY = ("googlenet", "inception_v3")
USUAL_SIZE = 224


def require_classifier(name: str) -> None:
    """Raise HpmlError with the nearest names where torchvision has no such classifier."""
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        mend = f"did you mean {', '.join(near)}?" if near else "see torchvision.models.list_models()"
        raise HpmlError(f"torchvision has no classifier {name!r}; {mend}")


def image_size(name: str) -> int:
    """Side of the square image, px: the smallest that the metadata of the model's weights names, usually 224."""
    return min((size for size, _ in _weights(name)), default=USUAL_SIZE)


def published_multiply_adds(name: str, size: int) -> float | None:
    """Multiply-adds that torchvision publishes for an image of this side, or None. They are rounded to 1 M."""
    return next((weights.meta["_ops"] * 1e9 for side, weights in _weights(name) if side == size), None)


def _weights(name: str) -> list[tuple[int, Any]]:
    from torchvision import models

    require_classifier(name)
    return [(weights.transforms().crop_size[0], weights) for weights in models.get_model_weights(name)]


def build(name: str) -> Any:
    """The model in eval mode on the CPU, its parameters whatever the memory held.

    Counts depend on shapes alone, and drawing VGG's 144 M normal numbers costs seconds. Not on "meta": torch's
    tracer cannot run convolutions there, and a few models compute with tensors while they are built.
    Raises HpmlError where torchvision has no such classifier.
    """
    from torchvision import models

    require_classifier(name)
    without = {"aux_logits": False, "init_weights": False} if name in AUXILIARY else {}
    with _nothing_drawn():
        return models.get_model(name, weights=None, **without).eval()


@contextmanager
def _nothing_drawn() -> Iterator[None]:
    """Leave tensors as they are instead of filling them at random: pages never written cost no time and no memory."""
    from unittest import mock

    import torch
    from torch.overrides import TorchFunctionMode

    drawn = (torch.Tensor.normal_, torch.Tensor.uniform_)

    def keep(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return tensor

    class Undrawn(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped to mypy here
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func in drawn or getattr(func, "__module__", "") == "torch.nn.init":
                return args[0] if args else kwargs["tensor"]
            return func(*args, **kwargs)

    # not all of them ask the mode first, and trunc_normal_ draws again until every number is in bounds
    fillers = [name for name in dir(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
    with mock.patch.multiple(torch.nn.init, **{name: cast(Any, keep) for name in fillers}), Undrawn():
        yield
