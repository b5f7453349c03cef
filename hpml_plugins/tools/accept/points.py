"""The points of `hpml accept`."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hpml_plugins.analysis import Physics
from hpml_plugins.host import Declared, Host, Unmet, make_host
from hpml_plugins.model import Params, Record
from hpml_plugins.registry import read_registry
from hpml_plugins.tools.accept.bands import Component

#: The registry that names the points.
REGISTRY = Path(__file__).with_name("points.yaml")
#: Its profile.
PROFILE = "accept"
#: The benchmark that compares bits.
BITS = "bits"
#: Benchmarks of several GPUs, which measure the links between them.
OF_NODE = ("machine_peer_copy", "allreduce_nccl")
#: Class of physics → the component whose fault it shows. Other classes are not judged.
COMPONENTS: dict[Physics, Component] = {
    Physics.STREAMING: "memory",
    Physics.MEMORY_BOUND: "memory",
    Physics.BOOST: "tensor cores",
    Physics.SUSTAINED: "power",
    Physics.NEVER_THROTTLED: "clocks",
    Physics.LATENCY: "clocks",
    Physics.HOST_LINK: "link",
    Physics.HOST_CLOCK: "host",
    Physics.CPU: "host",
}


def component_of(benchmark: str, physics: Physics) -> Component | None:
    """The component whose fault a value shows; None if it judges no component."""
    return "link" if benchmark in OF_NODE else COMPONENTS.get(physics)


def accept_host(unmet: Unmet | None = None) -> Host:
    """The benchmarks, regardless of the registry in the current folder."""
    return make_host(read_registry(REGISTRY), unmet=unmet, profile=PROFILE)


@functools.cache
def accept_points() -> dict[str, tuple[Declared, Params]]:
    """Every point by its key."""
    return {
        declared.key(params): (declared, params)
        for declared in accept_host().benchmarks()
        for params in declared.chosen_points().values()
    }


def digests_of(record: Record) -> dict[str, str]:
    """The digest of each step of a Record of `bits`."""
    columns = record.series["digests"].columns if "digests" in record.series else {}
    pairs = zip(columns.get("step", ()), columns.get("sha256", ()), strict=True)
    return {str(step): str(digest) for step, digest in pairs}


def majority(digests: Sequence[str]) -> str | None:
    """The result that at least two and more than half of them have; None if there is none."""
    (digest, count), *_ = Counter(digests).most_common(1)
    return digest if count >= 2 and count > len(digests) / 2 else None
