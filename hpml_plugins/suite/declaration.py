"""The suite: every declared benchmark, written once by asv's own process and read by each benchmark
process."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins import store
from hpml_plugins.host import Declared, Host, make_host
from hpml_plugins.model.node import Node
from hpml_plugins.node import detect_node, machine_name
from hpml_plugins.registry import EVERYTHING, read_registry

#: Names the file of the suite to the benchmark processes.
SUITE_VARIABLE = "HPML_SUITE"
PROFILE_VARIABLE = "HPML_PROFILE"
RESULTS_VARIABLE = "HPML_RESULTS"
#: The digest of the commit's package, where that is another one than hpml-plugins; set by the
#: environment `node`.
PACKAGE_VARIABLE = "HPML_PACKAGE"
MACHINE_VARIABLE = "HPML_MACHINE"
#: "1/4": `asv run` measures the second of four shards of the benchmarks.  Unset: all of them.
SHARD_VARIABLE = "HPML_SHARD"
#: The file in which `asv run` leaves the reason where it is refused, for the job that started it.
REFUSAL_VARIABLE = "HPML_REFUSAL"
#: Results and environments in other folders than asv.conf.json says: for several runs side by side
#: on one node.
ASV_RESULTS_VARIABLE, ASV_ENVIRONMENTS_VARIABLE = "HPML_ASV_RESULTS", "HPML_ASV_ENVIRONMENTS"


class Suite(msgspec.Struct, frozen=True):
    """All that the benchmark processes of one `asv` command share.

    folder: of registry.yaml.  scratch: a folder that lives as long as the command.  keep: whether
    to store Records. reuse: statuses whose stored Records are given instead of measuring again
    (asv's --skip-existing and its kin). offers: the plugins' data sets (`host.Offers`), as plain
    JSON: a commit may know another shape of it. unranked: asv's names of the metrics without a
    direction. In `benchmarks` they have one: a commit from before there were such metrics reads the
    suite too, and would refuse None.
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
    unranked: list[str] = []

    @property
    def results(self) -> Path:
        """asv's results folder."""
        return Path(os.environ.get(RESULTS_VARIABLE) or store.results_folder(Path(self.folder)))


def declare(
    host: Host,
    node: Node,
    machine: str,
    scratch: Path | str,
    *,
    keep: bool = True,
    reuse: Sequence[str] = (),
) -> Suite:
    """The suite of a host."""
    folder, offers = str(host.registry.folder), msgspec.to_builtins(host.offers)
    benchmarks, unranked = [], []
    for each in host.benchmarks():
        metrics = [
            dataclasses.replace(metric, direction=metric.direction or "lower")
            for metric in each.metrics
        ]
        benchmarks.append(msgspec.structs.replace(each, metrics=metrics))
        unranked += [
            store.asv_name(each.name, metric.name)
            for metric in each.metrics
            if metric.direction is None
        ]
    run = uuid.uuid4().hex
    return Suite(
        run, machine, node, folder, str(scratch), benchmarks, keep, list(reuse), offers, unranked
    )


def load_suite(root: Path) -> Suite:
    """The suite that asv's process wrote, or, where there is none (`asv check`), one from root's
    registry."""
    if file := os.environ.get(SUITE_VARIABLE):
        return msgspec.json.decode(Path(file).read_bytes(), type=Suite)
    node = detect_node()
    host = make_host(
        read_registry(root / "registry.yaml"),
        profile=os.environ.get(PROFILE_VARIABLE) or EVERYTHING,
    )
    return declare(host, node, machine_name(node), "")
