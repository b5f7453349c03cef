"""torchvision's classifiers by name: built without drawing random weights, and the size of their image."""

from __future__ import annotations

import difflib
from typing import Any

from hpml_plugins import HpmlError

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
    from torchvision import models

    return min((weights.transforms().crop_size[0] for weights in models.get_model_weights(name)), default=USUAL_SIZE)


def build(name: str) -> Any:
    """The model in eval mode on the CPU, every parameter that is usually drawn at random set to 0.

    Counts depend on shapes alone, and drawing VGG's 144 M normal numbers costs seconds. Not on "meta": torch's
    tracer cannot run convolutions there, and a few models compute with tensors while they are built.
    """
    from torchvision import models

    without = {"aux_logits": False, "init_weights": False} if name in AUXILIARY else {}
    with _zeros_for_random():
        return models.get_model(name, weights=None, **without).eval()


def _zeros_for_random() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    drawn = (torch.Tensor.normal_, torch.Tensor.uniform_)

    class ZerosForRandom(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped to mypy here
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            # init.trunc_normal_ draws until all are in bounds: it must get values that are, so zero, not skip.
            if func in drawn or getattr(func, "__module__", "") == "torch.nn.init":
                return (args[0] if args else kwargs["tensor"]).data.zero_()
            return func(*args, **kwargs)

    return ZerosForRandom()
