"""The profile `core` of this project's registry: the points that a history is made of."""

from __future__ import annotations

import pytest

from hpml_plugins.host import Host, make_host
from hpml_plugins.registry import read_registry
from hpml_plugins.tools.cluster.commands import CORE


@pytest.fixture(scope="module")
def core() -> Host:
    return make_host(read_registry(), profile=CORE)


def points(host: Host, *, needs_gpu: bool | None = None) -> list[str]:
    return [
        f"{each.name} {params}"
        for each in host.benchmarks()
        for params in each.chosen_points().values()
        if needs_gpu in (None, each.needs_gpu)
    ]


def test_core_has_30_to_40_points_of_the_grid_and_some_for_nodes_without_a_gpu(
    core: Host,
) -> None:
    assert (
        not core.broken
    )  # a profile that names a point outside the grid breaks its plugin
    assert 30 <= len(points(core)) <= 40
    assert len(points(core, needs_gpu=False)) >= 8
    assert len(points(core, needs_gpu=True)) >= 12


def test_core_measures_every_plugin_that_has_benchmarks(core: Host) -> None:
    offering = {each.plugin.name for each in core.benchmarks()}
    assert {
        each.plugin.name for each in core.benchmarks() if each.chosen_points()
    } == offering


def test_a_benchmark_that_is_added_to_a_plugin_does_not_join_core_by_itself(
    core: Host,
) -> None:
    offering = {each.plugin.name for each in core.benchmarks()}
    for entry in core.registry.enabled:
        assert (
            entry.name not in offering or entry.choice(CORE, "a_new_benchmark") is None
        ), entry.name
