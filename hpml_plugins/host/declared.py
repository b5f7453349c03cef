"""A Benchmark's declaration as plain data, which can be sent between processes and to the suite of
an older commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from hpml_plugins.model.benchmark import Benchmark, Metric, Params, Value, points_of
from hpml_plugins.model.record import point_key
from hpml_plugins.registry import EVERYTHING, PluginEntry, PluginSource, is_one_of

if TYPE_CHECKING:
    from hpml_plugins.store.declarations import Declaration


class Declared(msgspec.Struct, frozen=True):
    """A benchmark as declared by plugin and registry: enough to run it without reading the registry
    again.

    grid: parameter → values, in asv's order.  modules: of its Requires.  chosen: the points of the
    profile, as a choice of values.  left_out: whether the profile has none of them.  precision,
    budget: how long to sample, if the registry says so.  rounds: of each point.  needs_gpu, terms:
    from the Benchmark.  unmet: index of a point → why it cannot be measured on this node, if that
    was determined.
    """

    plugin: PluginSource
    benchmark: str
    version: str
    grid: dict[str, list[Value]]
    timeout: float
    metrics: list[Metric]
    description: str = ""
    modules: list[str] = []
    chosen: dict[str, list[Value]] = {}
    left_out: bool = False
    precision: float | None = None
    budget: float | None = None
    rounds: int = 1
    needs_gpu: bool = True
    terms: dict[str, str] = {}
    unmet: dict[int, str] = {}

    @classmethod
    def of(
        cls, benchmark: Benchmark, entry: PluginEntry, profile: str = EVERYTHING
    ) -> Declared:
        """Apply the registry's entry to a benchmark."""
        chosen = entry.choice(profile, benchmark.name)
        return cls(
            plugin=entry.source,
            benchmark=benchmark.name,
            version=benchmark.version,
            grid={name: list(values) for name, values in benchmark.grid.items()},
            timeout=float(benchmark.timeout),
            metrics=list(benchmark.metrics),
            description=benchmark.description,
            modules=list(benchmark.requires.modules),
            chosen=chosen or {},
            left_out=chosen is None,
            rounds=benchmark.rounds
            if benchmark.rounds == 1
            else entry.sampling.rounds or benchmark.rounds,
            needs_gpu=bool(benchmark.requires.gpus),
            terms=dict(benchmark.terms),
            precision=entry.sampling.precision,
            budget=entry.sampling.budget,
        )

    @property
    def name(self) -> str:
        """The name of the benchmark."""
        return self.benchmark

    def points(self) -> Iterator[Params]:
        """Every point of the grid, in asv's order."""
        return points_of(self.grid)

    def chosen_points(self) -> dict[int, Params]:
        """The points that the profile measures, by their indices in the grid."""
        chosen = [
            (name, values) for name, values in self.chosen.items() if name in self.grid
        ]
        points = {}
        for index, params in enumerate(() if self.left_out else self.points()):
            if all(is_one_of(params[name], values) for name, values in chosen):
                points[index] = params
        return points

    def why_unmet(self, params: Params) -> str:
        """Why a point cannot be measured on this node; empty if it can, or if that was not
        determined."""
        if not self.unmet:
            return ""
        reasons = [
            self.unmet.get(n) for n, each in enumerate(self.points()) if each == params
        ]
        return next(filter(None, reasons), "")

    def entries(self) -> Iterator[Declaration]:
        """The entries for asv, one for each metric."""
        from hpml_plugins.store.declarations import declare_metric  # only needed for asv

        source = f"# plugin {self.plugin.name}\n# {self.description}"
        for metric in self.metrics:
            yield declare_metric(
                self.benchmark,
                metric.name,
                metric.unit,
                metric.direction,
                version=self.version,
                param_names=list(self.grid),
                params=[list(map(repr, values)) for values in self.grid.values()],
                code=source.rstrip("# "),
                plugin=self.plugin.name,
                timeout=self.timeout,
            )

    def key(self, params: Params) -> str:
        """The key of a point, as in `Record.point`."""
        return point_key(self.benchmark, self.version, params)
