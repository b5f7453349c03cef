"""`hpml schema`: the JSON schema of registry.yaml and cluster.yaml, for editors."""

from __future__ import annotations

import importlib
import json

import click


@click.command("schema")
@click.option("--cluster", is_flag=True, help="Print the schema of cluster.yaml instead.")
def command(cluster: bool) -> int:
    """Print the JSON schema of registry.yaml."""
    if cluster:
        schema = importlib.import_module("hpml_plugins.tools.cluster").json_schema()
    else:
        schema = importlib.import_module("hpml_plugins.registry").json_schema()
    print(json.dumps(schema, indent=2, sort_keys=True))
    return 0
