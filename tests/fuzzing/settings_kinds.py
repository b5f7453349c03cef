"""Files that users write: the registry, targets, prices, recipes, asv's configuration, what a node
tells of itself."""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from fuzzing.engine import Kind
from fuzzing.grammars import json_of, yaml_of
from fuzzing.mutating import mutate_json, mutate_yaml
from support import ROOT


def _yaml(tree: Any) -> bytes:
    return yaml.safe_dump(tree, sort_keys=False).encode()


@functools.cache
def _registry() -> list[Any]:
    return list(yaml.safe_load((ROOT / "registry.yaml").read_text())["plugins"])


@functools.cache
def _registries() -> Sequence[bytes]:
    """Each entry of registry.yaml alone, and one with every key that there is."""
    whole = {
        "name": "toy",
        "path": "toy.py",
        "sha256": "0" * 64,
        "enabled": True,
        "timeout": 120,
        "sampling": {"precision": 0.01, "budget": 5},
        "grid": {"toy": {"size": [1, 2]}},
        "profiles": {"quick": {"toy": {"size": [1]}}},
        "gate": {"toy": {"time": 2}},
    }
    pinned = {"name": "other", "entry_point": "other", "version": "1.0"}
    entries = [[entry] for entry in _registry()] + [
        [whole, pinned],
        [whole, _registry()[0]],
    ]
    return [_yaml({"version": 1, "plugins": entry}) for entry in entries]


def _read_registry(data: bytes, folder: Path) -> str:

    from hpml_plugins.host import LoadedPlugin
    from hpml_plugins.host.loading import apply_registry
    from hpml_plugins.registry import read_registry

    path = folder / "registry.yaml"
    path.write_bytes(data)
    registry = read_registry(path)
    msgspec.json.encode([registry.plugins, registry.profiles])
    limits = [
        each
        for entry in registry.plugins
        for each in (entry.timeout, entry.sampling.budget)
    ]
    assert all(each is None or 0 < each < math.inf for each in limits), limits
    taken: dict[str, str] = {}
    for entry in registry.enabled:
        plugin = LoadedPlugin(entry, registry.folder, registry.at(entry.name), (_toy(),))
        fitted = apply_registry(plugin, entry, registry, taken)
        if fitted.error and "toy" in {*entry.grid, *entry.gate}:
            raise fitted.error
    return "read"


def _measure(bench: Any, size: int) -> dict[str, float]:
    raise NotImplementedError


def _toy() -> Any:
    from hpml_plugins import Benchmark, Metric

    return Benchmark(
        "toy", _measure, [Metric("time", "s", "lower")], grid={"size": [1, 2, 3]}
    )


def _clusters() -> Sequence[bytes]:
    """The example of the guide, whole and target by target."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    lines = page[page.index("    version: 1") :].splitlines()
    end = next(
        number for number, line in enumerate(lines) if line and not line.startswith("    ")
    )
    whole = yaml.safe_load("\n".join(line.removeprefix("    ") for line in lines[:end]))
    return [
        _yaml({**whole, "targets": targets})
        for targets in (*([each] for each in whole["targets"]), whole["targets"])
    ]


def _read_cluster(data: bytes, folder: Path) -> str:
    from hpml_plugins.tools.cluster.config import read_cluster
    from hpml_plugins.tools.cluster.job import RunRequest
    from hpml_plugins.tools.cluster.submit import script

    path = folder / "cluster.yaml"
    path.write_bytes(data)
    cluster = read_cluster(path, folder)
    for target in cluster.choose(()):
        script(target, RunRequest(str(folder), str(folder / "results")), folder / "job")
    return "read"


def _nodes() -> Sequence[bytes]:
    """This machine, as `hpml bundle --ask` would tell of it, and an H200 node."""
    from hpml_plugins.tools.bundle.ask_node import ask

    node = {
        "hpml_node": 1,
        "python": "3.12.3",
        "abi": "cp312",
        "machine": "x86_64",
        "libc": "glibc 2.39",
        "packages": {
            "torch": "2.11.0a0+nv",
            "torchvision": "0.26.0",
            "numpy": "2.4.6",
            "pyyaml": "",
            "six": "1.16ubuntu1",
        },
    }
    here = ask()
    here["packages"] = dict(list(here["packages"].items())[:20]) | {"torch": "2.15.0"}  # type: ignore[attr-defined]
    return [json.dumps(each).encode() for each in (node, here)]


def _read_node(data: bytes, folder: Path) -> str:
    from hpml_plugins.tools.bundle.packages import lacking, read_node, request_packages

    path = folder / "node.json"
    path.write_bytes(data)
    node = read_node(path)
    request = request_packages(ROOT, node)
    lacking({**request.preferred, "numpy": "2.4.6"}, node)
    return "read"


def _prices() -> Sequence[bytes]:
    return [
        _yaml(
            {"prices": {"NVIDIA H200": 3.5, "NVIDIA A100-SXM4-80GB": 1}, "currency": "USD"}
        )
    ]


def _read_prices(data: bytes, folder: Path) -> str:
    from hpml_plugins.report.site.matrix import PRICES_FILE, read_costs

    (folder / PRICES_FILE).write_bytes(data)
    costs = read_costs(folder)
    for price in costs.prices.values():
        assert math.isfinite(8 * price) and price > 0, price
    costs.currency.encode()
    return "read"


def _recipes() -> Sequence[bytes]:
    """Each of tta's own recipes with those that it is like."""
    from hpml_plugins.plugins.tta.recipes import OWN

    known = yaml.safe_load(OWN.read_text())
    return [_yaml({name: known[name]}) for name in known] + [
        _yaml({"new": {"like": "fast", "batch": 7}})
    ]


@functools.cache
def _recipe_names() -> tuple[str, ...]:
    from hpml_plugins.plugins.tta.recipes import recipe_names

    return recipe_names()


def _read_recipes(data: bytes, folder: Path) -> str:
    from hpml_plugins import HpmlError
    from hpml_plugins.plugins.tta.recipes import VARIABLE, read_recipe

    path = folder / "recipes.yaml"
    path.write_bytes(data)
    os.environ[VARIABLE] = str(path)
    refused = None
    for name in [each for each in (*_recipe_names(), "new") if each.encode() in data] or [
        "fast"
    ]:
        try:
            msgspec.json.encode(read_recipe(name, "digits"))
        except HpmlError as error:
            str(error).encode()
            refused = error if "has no recipe 'new'" not in str(error) else refused
    if refused:
        raise refused
    return "read"


def _configurations() -> Sequence[bytes]:
    return [(ROOT / "asv.conf.json").read_bytes()]


def _read_configuration(data: bytes, folder: Path) -> str:
    from hpml_plugins.asv.configuration import NAME, read_configuration

    path = folder / NAME
    path.write_bytes(data)
    conf = read_configuration(path)
    assert isinstance(folder / conf.results_dir, Path)
    for branch in conf.branches:
        (branch or "").encode()  # it is given to git
    return "read"


KINDS = (
    Kind(
        "registry", _registries, mutate_yaml, _read_registry, grammar=yaml_of(_registries)
    ),
    Kind("cluster file", _clusters, mutate_yaml, _read_cluster, grammar=yaml_of(_clusters)),
    Kind("node.json", _nodes, mutate_json, _read_node, grammar=json_of(_nodes)),
    Kind("prices", _prices, mutate_yaml, _read_prices, grammar=yaml_of(_prices)),
    Kind("recipes", _recipes, mutate_yaml, _read_recipes, grammar=yaml_of(_recipes)),
    Kind(
        "asv.conf.json",
        _configurations,
        mutate_json,
        _read_configuration,
        grammar=json_of(_configurations),
    ),
)
