"""`hpml plot NAME`: the charts of a plugin as files, the same pictures as on its page."""

from __future__ import annotations

from pathlib import Path

import click

from hpml_plugins.cli import Settings
from hpml_plugins.errors import HpmlError, UsageError


@click.command("plot")
@click.argument("name")
@click.option("--format", "form", type=click.Choice(["svg", "png", "pdf"]), default="png", show_default=True)
@click.option("--to", "folder", type=click.Path(path_type=Path), default=Path(), help="Folder to write to.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.pass_obj
def command(settings: Settings, name: str, form: str, folder: Path, results: Path) -> int:
    """Draw the charts of plugin NAME, or one of them (NAME or PLUGIN.NAME), from the newest Records."""
    from hpml_plugins.cli.figures import find_drawables
    from hpml_plugins.report.figures import render

    found = find_drawables(settings, name, results)
    drawables = [drawable for drawable in found if drawable.figure.chart or drawable.figure.draw]
    if not drawables:
        raise UsageError(f"{name!r} has tables but no chart; print them: hpml table {name}")
    for drawable in drawables:
        drawn = render(drawable, form)
        if drawn is None:
            print(f"{drawable.plugin}.{drawable.figure.name}: nothing to draw; see hpml table")
            continue
        path = folder / f"{drawable.plugin}-{drawable.figure.name}.{form}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(drawn)
        except OSError as error:
            raise HpmlError(f"cannot be written: {error.strerror}", str(path)) from None
        print(path)
    return 0
