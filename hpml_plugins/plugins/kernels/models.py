"""Shapes of published models' layers, read from models.yaml."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_plugins import HpmlError


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shapes of one model; models.yaml explains each number. 0: the model has no such part."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    source: str
    experts: int = 0
    top: int = 0
    window: int = 0


class Shape(NamedTuple):
    """The weight of a linear layer: `n` outputs of `k` inputs. M, the rows that it is applied to,
    are tokens."""

    n: int
    k: int


@functools.cache
def models() -> dict[str, Model]:
    """Every model of models.yaml by name."""
    import yaml  # not at the top: discovery imports this module

    return msgspec.convert(
        yaml.safe_load(Path(__file__).with_name("models.yaml").read_text()), dict[str, Model]
    )


def model(name: str) -> Model:
    """The model of this name. Raises HpmlError for an unknown name."""
    if found := models().get(name):
        return found
    raise HpmlError(f"no model {name!r} in models.yaml; use one of {', '.join(models())}")


def layer_shape(layer: str) -> Shape:
    """The shape of a linear layer, named "MODEL/LAYER": "llama-3.1-70b/up" is (28672, 8192).

    qkv: queries, keys and values in one product.  out: after the attention.  up: one of the two
    products into the feed-forward block, or into one expert.  gate_up: both in one.  down: the
    product out of it.  head: logits of the vocabulary. Raises HpmlError for another model or layer.
    """
    name, _, part = layer.partition("/")
    of = model(name)
    width = of.heads * of.head_dim
    shapes = {
        "qkv": Shape(width + 2 * of.kv_heads * of.head_dim, of.hidden),
        "out": Shape(of.hidden, width),
        "up": Shape(of.intermediate, of.hidden),
        "gate_up": Shape(2 * of.intermediate, of.hidden),
        "down": Shape(of.hidden, of.intermediate),
        "head": Shape(of.vocabulary, of.hidden),
    }
    if part not in shapes:
        raise HpmlError(f"no layer {part!r} of {name}; use one of {', '.join(shapes)}")
    return shapes[part]
