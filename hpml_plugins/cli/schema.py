"""`hpml schema`: the JSON schema of registry.yaml and cluster.yaml, for editors."""

from __future__ import annotations

import json

import click


@click.command("schema")
@click.option("--cluster", is_flag=True, help="Of cluster.yaml instead.")
def command(cluster: bool) -> int:
    """Print the JSON schema of registry.yaml."""
    if cluster:
        from hpml_plugins.tools.cluster.schema import json_schema
    else:
        from hpml_plugins.registry import json_schema

    print(json.dumps(json_schema(), indent=2, sort_keys=True))
    return 0
