"""The one place that knows fvcore, whose last release is of 2022: a model and an image in, plain numbers out."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpml_plugins.plugins.flops.formulas import attention_multiply_adds
from hpml_plugins.plugins.flops.operators import MULTIPLY_ADD, WITHOUT_ARITHMETIC


@dataclass(frozen=True)
class Count:
    """What fvcore found in one forward pass.

    by_operator: multiply-adds of each operator that is made of them.  apart: fvcore's counts of normalisations and
    pooling, which are not multiply-adds.  by_module: module → multiply-adds, its children's included.
    uncounted: operator → calls that fvcore has no count for.
    """

    by_operator: Mapping[str, int]
    apart: Mapping[str, int]
    by_module: Mapping[str, int]
    uncounted: Mapping[str, int]

    @property
    def multiply_adds(self) -> int:
        """Of the whole model."""
        return sum(self.by_operator.values())


def count(model: Any, image: Any) -> Count:
    """Trace one forward pass of `model` on `image` and count it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and fvcore stands on it
        from fvcore.nn import FlopCountAnalysis

        logging.getLogger("fvcore").setLevel(logging.ERROR)
        analysis = FlopCountAnalysis(model, image)
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
        analysis.set_op_handle("aten::scaled_dot_product_attention", _attention)
        # fvcore's own list passes over ReLU and comparisons without a word; ours is shorter and documented.
        analysis._ignored_ops = set(WITHOUT_ARITHMETIC)
        operators = analysis.by_operator()
        modules = analysis.by_module_and_operator()
        uncounted = analysis.unsupported_ops()
    return Count(
        by_operator={name: round(number) for name, number in operators.items() if name in MULTIPLY_ADD},
        apart={name: round(number) for name, number in operators.items() if name not in MULTIPLY_ADD},
        by_module={name: round(_multiply_adds(counts)) for name, counts in modules.items()},
        uncounted=dict(uncounted),
    )


def _multiply_adds(counts: Mapping[str, float]) -> float:
    return sum(number for name, number in counts.items() if name in MULTIPLY_ADD)


def _attention(inputs: list[Any], outputs: list[Any]) -> int:
    """fvcore is older than this operator: its handle, in fvcore's form (values of the traced graph)."""
    query, key, value = (values.type().sizes() for values in inputs[:3])
    return attention_multiply_adds(math.prod(query[:-2]), query[-2], key[-2], key[-1], value[-1])
