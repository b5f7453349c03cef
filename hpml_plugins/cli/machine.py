"""`hpml machine`: record this node for asv and show its facts."""

from __future__ import annotations

import json

import click

from hpml_plugins.cli import Settings


@click.command("machine")
@click.option("--name", help="The machine's name; default: a stable name made of GPU type and count.")
@click.option("--json", "as_json", is_flag=True, help="Print all facts as JSON.")
@click.option("--dry-run", is_flag=True, help="Show the facts; write nothing.")
@click.pass_obj
def command(settings: Settings, name: str | None, as_json: bool, dry_run: bool) -> int:
    """Record this node in ~/.asv-machine.json, with `gpu` and `num_gpu`; `asv run` does the same by itself."""
    import msgspec

    from hpml_plugins.asv.run import facets, record_machine
    from hpml_plugins.node import detect_node, machine_name

    node = detect_node()
    facts = facets(node, name or machine_name(node), {})
    if not dry_run:
        record_machine(facts)
    if as_json:
        print(json.dumps({**facts, "node": msgspec.to_builtins(node)}, indent=2))
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
