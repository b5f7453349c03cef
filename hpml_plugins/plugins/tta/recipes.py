"""Recipes: how a network is trained, read from recipes.yaml. Values, checked when they are read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from hpml_plugins import HpmlError

#: A file of more recipes, which win over those of the same name here.
VARIABLE = "HPML_TTA_RECIPES"
_Entries = dict[str, dict[str, Any]]
_T = TypeVar("_T")
OWN = Path(__file__).with_name("recipes.yaml")


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """widths, whiten (side of its filters): of the small ones.  zero_gamma: residual blocks start as the identity.

    whiten_as: how the whitening is computed; a product of the patches with a matrix may suit few channels better.
    trimmed: convolutions before a pooling leave out the last row and column where it would: same result, less work.
    """

    name: Literal["resnet50", "resnet50_stem3", "small_resnet", "speed"]
    widths: tuple[int, ...] = ()
    whiten: int = 2
    whiten_as: Literal["convolution", "product"] = "convolution"
    trimmed: bool = False
    zero_gamma: bool = False


class Sgd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """head_lr: of the classifier, where it has its own.  decay_norms: whether normalisations and biases decay too.

    weight_decay is that of a rate of 1 where head_lr is given: each group's is divided by its rate.
    """

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decay_norms: bool = True
    head_lr: float | None = None


class Muon(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For the weights of convolutions.  iterations: of Newton and Schulz."""

    lr: float
    momentum: float = 0.6
    iterations: int = 3


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The learning rate as a share of its peak.  rise: share of the steps to the peak, from `start`, then to `end`."""

    shape: Literal["constant", "cosine", "linear", "one_cycle"] = "constant"
    rise: float = 0.3
    start: float = 0.04
    end: float = 0.0


class Augment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """pad: pixels by which an image is moved at most.  flip: alternating: at random once, then in every other epoch."""

    pad: int = 0
    fill: Literal["reflect", "zero"] = "reflect"
    flip: Literal["none", "random", "alternating"] = "none"


class Evaluate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """every: epochs; 0: after the last.  views: 1, 2 (mirrored too), 6 (moved by a pixel both ways too)."""

    every: int = 1
    views: Literal[1, 2, 6] = 1
    batch: int = 1000


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All that a training is made from.

    epochs: at most; a part of one counts in steps.  sizes: (from epoch, side in pixels), for smaller images at first.
    whiten_bias_epochs: how long the bias of the whitening is trained; 0: always.  loss: over the batch.
    precision: bfloat16: autocast over float32 weights; float16: weights too, normalisations excepted.  compile: torch's
    mode, or "".  graph: a step is one CUDA graph.  steps_per_graph: so many.  workers, pin_memory: of the DataLoader,
    which feeds where the images are not on the device.  threads: of the CPU, where it computes; 0: torch's choice.
    """

    name: str
    about: str
    data: str
    network: Network
    batch: int
    epochs: float
    target: float
    target_of: Literal["each", "mean"] = "each"
    sgd: Sgd
    muon: Muon | None = None
    schedule: Schedule = Schedule()
    whiten_bias_epochs: float = 0.0
    sizes: tuple[tuple[float, int], ...] = ()
    augment: Augment = Augment()
    label_smoothing: float = 0.0
    loss: Literal["mean", "sum"] = "mean"
    precision: Literal["float32", "tf32", "bfloat16", "float16"] = "float32"
    channels_last: bool = False
    on_device: bool = False
    workers: int = 0
    pin_memory: bool = False
    compile: Literal["", "default", "max-autotune-no-cudagraphs"] = ""
    graph: bool = False
    steps_per_graph: int = 1
    threads: int = 0
    evaluate: Evaluate = Evaluate()

    def on(self, device: str) -> Recipe:
        """As it can be run there: on a CPU in float32, neither compiled nor captured."""
        if device.startswith("cuda"):
            return self
        return msgspec.structs.replace(
            self, precision="float32", compile="", graph=False, steps_per_graph=1, pin_memory=False
        )

    def fingerprint(self) -> str:
        """A short digest of all of it."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


def read_recipe(name: str, data: str, changes: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of this name for this data set.  changes: dotted key → value, on top of it.

    Raises HpmlError for an unknown recipe or key, and for a data set that the recipe does not name.
    """
    known = _files()
    if name not in known:
        raise HpmlError(f"tta has no recipe {name!r}; use one of {', '.join(known)}, or add it to a file in {VARIABLE}")
    raw = _with_base(name, known)
    of_data = _checked(raw.pop("for", {}), _Entries, f"recipe {name!r}: for")
    if data not in of_data:
        raise HpmlError(f"recipe {name!r} is not for {data!r} but for {', '.join(of_data)}; add it under `for`")
    whole = merged({**raw, "name": name, "data": data}, of_data[data])
    for key, value in (changes or {}).items():
        whole = merged(whole, _nested(key, value))
    return _checked(whole, Recipe, f"recipe {name!r} for {data!r}")


def recipe_names() -> tuple[str, ...]:
    """The built-in recipes, in the file's order: what the grid offers is the same on every node."""
    return tuple(yaml.safe_load(OWN.read_text(encoding="utf-8")))


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The base with the change, mappings merged key by key, anything else replaced."""
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def _files() -> _Entries:
    recipes: _Entries = yaml.safe_load(OWN.read_text(encoding="utf-8"))
    if path := os.environ.get(VARIABLE):
        try:
            text = Path(path).read_text(encoding="utf-8")
            _refuse_what_is_hostile(text)
            found = yaml.safe_load(text)
        except (OSError, yaml.YAMLError, ValueError) as error:
            raise HpmlError(f"{VARIABLE}={path} cannot be read: {error}") from None
        recipes |= _checked(found, _Entries, f"{VARIABLE}={path} cannot be read")
    return recipes


def _checked(value: Any, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise HpmlError(f"{what}: {error}") from None


def _refuse_what_is_hostile(text: str) -> None:
    """Raise ValueError for aliases, a few of which can stand for gigabytes, nesting that no recipe has, and halves of
    characters, which cannot be shown."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("aliases (*name) are not allowed; use `like`")
        if isinstance(event, yaml.ScalarEvent):
            event.value.encode()
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > 30:
            raise ValueError("nested more than 30 deep, which no recipe is")


def _with_base(name: str, known: _Entries, above: tuple[str, ...] = ()) -> dict[str, Any]:
    raw = dict(known[name])
    base = raw.pop("like", None)
    if base is None:
        return raw
    if not isinstance(base, str) or base not in known:
        raise HpmlError(f"recipe {name!r} is like {base!r}, which does not exist")
    if base in (name, *above):
        raise HpmlError(f"recipe {name!r} is like {base!r}, which is like it")
    under = _with_base(base, known, (name, *above))
    # The base's networks for small images stay: only what this recipe says itself is another.
    return merged(under, raw)


def _nested(key: str, value: Any) -> dict[str, Any]:
    first, dot, rest = key.partition(".")
    return {first: _nested(rest, value) if dot else value}
