"""`hpml new`: a plugin that works as it stands, to be changed into one's own."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hpml_plugins.cli import Settings


@click.command("new")
@click.argument("name")
@click.option("--single-file", is_flag=True, help="One file instead of a package.")
@click.option("--to", "folder", type=click.Path(path_type=Path), default=Path(), help="Where to write it.")
@click.option("--register", "enter", is_flag=True, help="Add its line to the registry.")
@click.pass_obj
def command(settings: Settings, name: str, single_file: bool, folder: Path, enter: bool) -> int:
    """Write plugin NAME: a package with an entry point, a test and a README, or a single file."""
    from hpml_plugins.tools.scaffold.write import register, write_plugin

    written = write_plugin(name, folder, single_file=single_file)
    source = os.path.relpath(written, settings.registry.parent)
    line = f"- {{name: {name}, path: {source}}}" if single_file else f"- {{name: {name}, entry_point: {name}}}"
    print(f"wrote {written}")
    if enter:
        register(settings.registry, line)
    print(f"{'is' if enter else 'add'} in {settings.registry}:  {line}")
    if not single_file:
        print(f"install it:  pip install --no-deps --no-build-isolation -e {written}")
    print(f"then:  hpml check {name};  hpml run {name};  asv run --bench {name};  asv publish")
    return 0
