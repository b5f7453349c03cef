"""The suite: every declared benchmark, written once by asv's own process and read by each benchmark process."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.host import BenchmarkInfo, Host, PluginInfo, make_host
from hpml_plugins.model.benchmark import Direction, Params, Value, points_of
from hpml_plugins.model.node import Node
from hpml_plugins.node import detect_node, machine_name
from hpml_plugins.registry import EVERYTHING, PluginSource, read_registry

#: Names the file of the suite to the benchmark processes.
SUITE_VARIABLE = "HPML_SUITE"
PROFILE_VARIABLE = "HPML_PROFILE"
RESULTS_VARIABLE = "HPML_RESULTS"
MACHINE_VARIABLE = "HPML_MACHINE"
#: "1/4": `asv run` measures the second of four shards of the benchmarks.  Unset: all of them.
SHARD_VARIABLE = "HPML_SHARD"
#: Results and environments in other folders than asv.conf.json says: for several runs side by side on one node.
ASV_RESULTS_VARIABLE, ASV_ENVIRONMENTS_VARIABLE = "HPML_ASV_RESULTS", "HPML_ASV_ENVIRONMENTS"


class DeclaredMetric(msgspec.Struct, frozen=True):
    """A metric as asv shows it."""

    name: str
    unit: str
    direction: Direction


class Declared(msgspec.Struct, frozen=True):
    """A benchmark as the registry declares it: enough to run it without reading the registry again.

    grid: parameter → values, in asv's order.  chosen: the points of the profile, as a choice of values.  left_out: the
    profile has none of them.  precision, budget: how long to sample, where the registry says it.
    """

    plugin: PluginSource
    benchmark: str
    version: str
    grid: dict[str, list[Value]]
    timeout: float
    metrics: list[DeclaredMetric]
    description: str = ""
    modules: list[str] = []
    chosen: dict[str, list[Value]] = {}
    left_out: bool = False
    precision: float | None = None
    budget: float | None = None

    def points(self) -> Iterator[Params]:
        """Every point of the grid, in asv's order."""
        return points_of(self.grid)

    def is_chosen(self, params: Params) -> bool:
        """Whether the profile of this run measures the point."""
        chosen = self.chosen.items()
        return not self.left_out and all(params[name] in values for name, values in chosen if name in params)


class Suite(msgspec.Struct, frozen=True):
    """All that the benchmark processes of one `asv` command share.

    folder: of registry.yaml.  scratch: a folder that lives as long as the command.  keep: whether to store Records.
    reuse: statuses whose stored Records are given instead of measuring again (asv's --skip-existing and its kin).
    offers: what plugins offer beside benchmarks (`host.Offers`), as plain JSON: a commit may know another shape of it.
    """

    run: str
    machine: str
    node: Node
    folder: str
    scratch: str
    benchmarks: list[Declared]
    keep: bool = True
    reuse: list[str] = []
    offers: dict[str, Any] = {}

    @property
    def results(self) -> Path:
        """asv's results folder."""
        return Path(os.environ.get(RESULTS_VARIABLE) or Path(self.folder, "results"))


def declare(
    host: Host,
    node: Node,
    machine: str,
    scratch: Path | str,
    *,
    profile: str = EVERYTHING,
    keep: bool = True,
    reuse: Sequence[str] = (),
) -> Suite:
    """The suite of a host. Raises UsageError for an unknown profile."""
    host.check_profile(profile)
    benchmarks = [_declared(plugin, benchmark, profile) for plugin, benchmark in host.benchmarks()]
    folder = str(host.registry.path.parent.resolve())
    offers = msgspec.to_builtins(host.offers)
    node = msgspec.structs.replace(node, facts=host.offers.facts)
    return Suite(uuid.uuid4().hex, machine, node, folder, str(scratch), benchmarks, keep, list(reuse), offers)


def load_suite(root: Path) -> Suite:
    """The suite that asv's process wrote, or, where there is none (`asv check`), one from root's registry."""
    if file := os.environ.get(SUITE_VARIABLE):
        return msgspec.json.decode(Path(file).read_bytes(), type=Suite)
    node = detect_node()
    host = make_host(read_registry(root / "registry.yaml"))
    return declare(host, node, machine_name(node), "", profile=os.environ.get(PROFILE_VARIABLE) or EVERYTHING)


def _declared(plugin: PluginInfo, benchmark: BenchmarkInfo, profile: str) -> Declared:
    chosen = plugin.entry.choice(profile, benchmark.name)
    return Declared(
        plugin=plugin.entry.source,
        benchmark=benchmark.name,
        version=benchmark.version,
        grid={name: list(values) for name, values in benchmark.grid.items()},
        timeout=benchmark.timeout,
        metrics=[DeclaredMetric(metric.name, metric.unit, metric.direction) for metric in benchmark.metrics],
        description=benchmark.description,
        modules=list(benchmark.modules),
        chosen={name: list(values) for name, values in (chosen or {}).items()},
        left_out=chosen is None,
        precision=plugin.entry.sampling.precision,
        budget=plugin.entry.sampling.budget,
    )
