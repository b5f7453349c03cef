"""`hpml schema`: the JSON schema of a hand-written file, for editors."""

from __future__ import annotations

import json

import click

from hpml_plugins.registry import json_schema
from hpml_plugins.terminal import say


@click.command("schema")
@click.option("--cluster", is_flag=True, help="Print the schema of cluster.yaml instead.")
def command(cluster: bool) -> int:
    """Print the JSON schema of registry.yaml."""
    if cluster:
        from hpml_plugins.tools.cluster.config import Cluster

        schema = json_schema(Cluster)
    else:
        schema = json_schema()
    say(*json.dumps(schema, indent=2, sort_keys=True).splitlines())
    return 0
