"""`hpml schema`: the JSON schema of registry.yaml, for editors."""

from __future__ import annotations

import json

import click


@click.command("schema")
def command() -> int:
    """Print the JSON schema of registry.yaml."""
    from hpml_plugins.registry import json_schema

    print(json.dumps(json_schema(), indent=2, sort_keys=True))
    return 0
