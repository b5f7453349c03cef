"""Histograms of weights and activations, before and after. Imports torch: imported on use only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hpml_plugins import Bench
from hpml_plugins.plugins.quantization.affine import Profile
from hpml_plugins.plugins.quantization.calibration import INPUT
from hpml_plugins.plugins.quantization.quantized import Quantized

BINS = 40
#: Values of each layer that are counted at most, evenly taken.
MOST = 200_000
#: Widths that are drawn beside float32.
SHOWN = (8, 4, 2)


def attach(bench: Bench, networks: Mapping[int, Sequence[Quantized]], activations: Mapping[str, Any]) -> None:
    """The series `ranges`, and `weights` and `activations`: shares of the values in BINS equal bins, before and after.

    networks: bits → the network of that width.  activations: name → values seen while calibrating.
    """
    weights = {each.block.name: each.block.module.weight for each in networks[8] if each.weight is not None}
    grids: dict[int, dict[str, Any]] = {}
    for bits in SHOWN:
        network = networks[bits]
        grids[bits] = {INPUT: network[0].given} | {each.block.name: each.result for each in network}
    bench.series("ranges", _ranges({"weights": weights, "activations": activations}), _RANGE_UNITS)
    bench.series("weights", _columns(weights, lambda name, bits: _of_weights(networks[bits], name)), _UNITS)
    bench.series("activations", _columns(activations, lambda name, bits: grids[bits][name].rounded), _UNITS)


_RANGE_UNITS = dict.fromkeys(("low", "high", "mean", "deviation", "outside_sigma3"), "1")


def _ranges(kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Any]]:
    """A row a tensor. outside_sigma3: the share that ranges of three standard deviations clamp."""
    rows: list[tuple[Any, ...]] = []
    for kind, tensors in kinds.items():
        for name, values in tensors.items():
            seen = Profile.of(values)
            low, high = seen.range("sigma3")
            outside = float(((values < low) | (values > high)).double().mean())
            rows.append((name, kind, seen.low, seen.high, seen.mean, seen.deviation, outside))
    names = ("layer", "of", *_RANGE_UNITS)
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


_UNITS = {"from": "1", "to": "1", "float": "1", **{f"bits{bits}": "1" for bits in SHOWN}}


def _of_weights(network: Sequence[Quantized], name: str) -> Callable[[Any], Any]:
    return next(each.weight.rounded for each in network if each.block.name == name and each.weight is not None)


def _columns(tensors: Mapping[str, Any], rounding: Callable[[str, int], Callable[[Any], Any]]) -> dict[str, list[Any]]:
    """layer, from, to, and the share of the values in each bin: float, bits8, …"""
    columns: dict[str, list[Any]] = {"layer": [], **{name: [] for name in _UNITS}}
    for name, values in tensors.items():
        after = {"float": values, **{f"bits{bits}": rounding(name, bits)(values) for bits in SHOWN}}
        low, high = float(values.min()), float(values.max())
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges = torch.linspace(low, high, BINS + 1).tolist()
        columns["layer"] += [name] * BINS
        columns["from"] += edges[:-1]
        columns["to"] += edges[1:]
        for column, found in after.items():
            columns[column] += shares(found, low, high)
    return columns


def shares(values: Any, low: float, high: float) -> list[float]:
    """The share of the values in each of BINS equal bins from low to high; what lies outside counts in the outermost.

    Of more than MOST values every so many are counted.
    """
    values = values.reshape(-1)
    values = values[:: -(-len(values) // MOST)].float().cpu().clamp(low, high)
    found: list[float] = (torch.histc(values, BINS, low, high) / len(values)).tolist()
    return found
