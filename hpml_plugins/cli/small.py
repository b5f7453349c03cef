"""Small commands: machine, publish, schema."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import click

from hpml_plugins.cli import print_json


@click.command()
@click.option("--name", help="The machine's name; default: a stable name made of GPU type and count.")
@click.option("--json", "as_json", is_flag=True, help="Print all facts as JSON.")
@click.option("--dry-run", is_flag=True, help="Show the facts; write nothing.")
def machine(name: str | None, as_json: bool, dry_run: bool) -> int:
    """Record this node in ~/.asv-machine.json, with `gpu` and `num_gpu`; `asv run` does the same by itself."""
    from hpml_plugins.asv.run import facets, record_machine
    from hpml_plugins.node import detect_node, machine_name

    node = detect_node()
    facts = facets(node, name or machine_name(node), {})
    if not dry_run:
        record_machine(facts)
    if as_json:
        print_json({**facts, "node": node})
        return 0
    for key, value in facts.items():
        print(f"{key:8} {value}")
    for gpu in node.gpus:
        print(f"{'':8} {gpu.name}: {gpu.memory / 2**30:.0f} GiB, {gpu.power_limit:.0f} W, {gpu.links}")
    if node.driver:
        print(f"driver   {node.driver}, CUDA {node.cuda}")
    if node.gpu_problem:
        print(f"problem  {node.gpu_problem}")
    return 0


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--config", default="asv.conf.json", show_default=True, help="asv's configuration.")
@click.argument("words", nargs=-1, metavar="[RANGE] [OPTIONS OF ASV PUBLISH]", type=click.UNPROCESSED)
def publish(config: str, words: tuple[str, ...]) -> None:
    """Write the site: `asv publish`, with its options."""
    from asv.main import main

    from hpml_plugins.asv.configuration import read_configuration

    read_configuration(Path(config))  # asv would end with another exit status
    sys.argv = ["asv", "publish", "--config", config, *words]
    main()


@click.command()
@click.option("--cluster", is_flag=True, help="Print the schema of cluster.yaml instead.")
def schema(cluster: bool) -> int:
    """Print the JSON schema of registry.yaml."""
    from hpml_plugins.registry import json_schema

    schema = json_schema(importlib.import_module("hpml_plugins.tools.cluster").Cluster) if cluster else json_schema()
    print(json.dumps(schema, indent=2, sort_keys=True))
    return 0
