"""Recipes: how a network is trained, read from recipes.yaml, and tricks, which change a recipe."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from hpml_plugins import HpmlError
from hpml_plugins.registry import YamlLines

#: A file of more recipes, which replace built-in ones of the same name.
VARIABLE = "HPML_TTA_RECIPES"
OWN = Path(__file__).with_name("recipes.yaml")
#: The recipe that tricks change.
BASE = "lab"
#: Names for several tricks at once → the tricks that each leaves out.
SUMS = {"graphed": ("compile", "batch"), "all": ("batch",)}
_Entries = dict[str, dict[str, Any]]
_T = TypeVar("_T")


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """widths, whiten (side of its filters): of the small ones.  zero_gamma: residual blocks start
    as the identity."""

    name: Literal["resnet50", "resnet50_stem3", "small_resnet", "speed"]
    widths: tuple[int, ...] = ()
    whiten: int = 2
    zero_gamma: bool = False


class Sgd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """head_lr: of the classifier, if it has its own.  decay_norms: whether normalisations and
    biases decay too.

    With head_lr, weight_decay is that for a rate of 1: each group's is divided by its rate.
    """

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decay_norms: bool = True
    head_lr: float | None = None


class Muon(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Muon, for the weights of convolutions.  iterations: of Newton–Schulz."""

    lr: float
    momentum: float = 0.6
    iterations: int = 3


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The learning rate as a share of its peak.  rise: share of the steps to the peak, from
    `start`, then to `end`."""

    shape: Literal["cosine", "linear", "one_cycle"]
    rise: float = 0.3
    start: float = 0.04
    end: float = 0.0

    def share_of_peak(self, step: int, steps: int) -> float:
        """The rate of this step, from 0, as a share of its peak.  steps: of the whole training.

        linear: 1 − t.  cosine: ½ (1 + cos π t).  one_cycle: straight from `start` to 1 at `rise`,
        then straight to `end` (Smith, Super-Convergence, arXiv 1708.07120). t = step / steps.
        """
        t = step / steps
        if self.shape == "linear":
            return 1.0 - t
        if self.shape == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * t))
        if t < self.rise:
            return self.start + (1.0 - self.start) * t / self.rise
        return 1.0 + (self.end - 1.0) * (t - self.rise) / (1.0 - self.rise)


class Augment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """pad: the most pixels by which an image is moved.  fill: torch's mode of padding.

    flip: alternating: random in the first epoch, then inverted in each epoch.
    """

    pad: int = 0
    fill: Literal["reflect", "constant"] = "reflect"
    flip: Literal["none", "random", "alternating"] = "none"


class Evaluate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """every: epochs; 0: after the last.  views: 1, 2 (mirrored too), 6 (moved by a pixel both ways
    too)."""

    every: int = 1
    views: Literal[1, 2, 6] = 1
    batch: int = 1000


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a training.

    epochs: at most; a fraction is rounded to steps.  whiten_bias_epochs: how long the bias of the
    whitening is trained; 0: always.  loss: over the batch.  precision: bfloat16: autocast over
    float32 weights; float16: weights too, normalisations excepted.  compile: torch's mode, or "".
    graph: each step is a CUDA graph.  workers, pin_memory: of the DataLoader, which is used if the
    images are not on the device.  threads: of the CPU, if it computes; 0: torch's choice.
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
    schedule: Schedule
    whiten_bias_epochs: float = 0.0
    augment: Augment = Augment()
    label_smoothing: float = 0.0
    loss: Literal["mean", "sum"] = "mean"
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    channels_last: bool = False
    on_device: bool = False
    workers: int = 0
    pin_memory: bool = False
    compile: Literal["", "default", "max-autotune-no-cudagraphs"] = ""
    graph: bool = False
    threads: int = 0
    evaluate: Evaluate = Evaluate()

    def on(self, device: str) -> Recipe:
        """The recipe adapted to the device: on a CPU in float32, neither compiled nor captured."""
        if device.startswith("cuda"):
            return self
        return msgspec.structs.replace(
            self, precision="float32", compile="", graph=False, pin_memory=False
        )

    def fingerprint(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


def read_recipe(name: str, data: str) -> Recipe:
    """The recipe of this name for this data set.

    Raises HpmlError for an unknown recipe or key, and for a data set that the recipe does not list.
    """
    known = _read_files()
    if name not in known:
        raise HpmlError(
            f"tta has no recipe {name!r}; use one of {', '.join(known)}, or add it to a file in"
            f" {VARIABLE}"
        )
    recipe = _with_base(name, known)
    of_data = _checked(recipe.pop("for", {}), _Entries, f"recipe {name!r}: for")
    if data not in of_data:
        raise HpmlError(
            f"recipe {name!r} is not for {data!r} but for {', '.join(of_data)}; add it under `for`"
        )
    recipe = merged({**recipe, "name": name, "data": data}, of_data[data])
    return _checked(recipe, Recipe, f"recipe {name!r} for {data!r}")


def recipe_names() -> tuple[str, ...]:
    """The built-in recipes, in the file's order, so that the grid is the same on every node."""
    return tuple(_read(OWN))


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The base with the change, mappings merged key by key, anything else replaced."""
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        result[key] = (
            merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return result


def read_tricks() -> _Entries:
    """Trick → changes of a recipe, in the order of accumulation. batch: a multiple of the
    recipe's."""
    return _read(OWN.with_name("tricks.yaml"))


def trick_names() -> tuple[str, ...]:
    """The names accepted by `with_tricks`: no trick, each alone, and combinations."""
    return (BASE, *read_tricks(), *SUMS)


def with_tricks(recipe: Recipe, *names: str) -> Recipe:
    """The recipe with all of these tricks and combinations. Raises HpmlError for an unknown one."""
    tricks = read_tricks()
    for name in names:
        if name not in trick_names():
            raise HpmlError(f"tta has no trick {name!r}; use one of {', '.join(trick_names())}")
        for trick, changes in tricks.items():
            if trick == name or (name in SUMS and trick not in SUMS[name]):
                batch = recipe.batch * changes.get("batch", 1)
                recipe = msgspec.structs.replace(recipe, **{**changes, "batch": batch})
    return recipe


def _read(path: Path) -> _Entries:
    """A file of this plugin. It is read when benchmarks are declared, so libyaml's faster loader is
    used."""
    entries: _Entries = yaml.load(
        path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return entries


def _read_files() -> _Entries:
    recipes = _read(OWN)
    if path := os.environ.get(VARIABLE):
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise HpmlError(f"{VARIABLE}={path} cannot be read: {error}") from None
        recipes |= _checked(
            YamlLines(text, path).document, _Entries, f"{VARIABLE}={path} cannot be read"
        )
    return recipes


def _checked(value: Any, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise HpmlError(f"{what}: {error}") from None


def _with_base(name: str, known: _Entries, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """A recipe with the settings that it inherits by `like`."""
    recipe = dict(known[name])
    base = recipe.pop("like", None)
    if base is None:
        return recipe
    if not isinstance(base, str) or base not in known:
        raise HpmlError(f"recipe {name!r} is like {base!r}, which does not exist")
    if base in (name, *above):
        raise HpmlError(f"recipe {name!r} is like {base!r}, which is like it")
    return merged(_with_base(base, known, (name, *above)), recipe)
