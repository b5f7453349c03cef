"""`hpml table NAME`: the tables of a plugin's figures, in the terminal, as Markdown or as CSV."""

from __future__ import annotations

from pathlib import Path

import click

from hpml_plugins.cli import Settings


@click.command("table")
@click.argument("name")
@click.option("--format", "form", type=click.Choice(["text", "markdown", "csv"]), default="text", show_default=True)
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.pass_obj
def command(settings: Settings, name: str, form: str, results: Path) -> int:
    """Print the tables of plugin NAME, or of one figure (NAME or PLUGIN.NAME), from the newest Records."""
    from hpml_plugins.cli.figures import find_drawables
    from hpml_plugins.report.tables import as_csv, as_markdown, as_text

    spell = {"text": as_text, "markdown": as_markdown, "csv": as_csv}[form]
    for number, drawable in enumerate(find_drawables(settings, name, results)):
        if form != "csv":
            print("\n" * (number > 0) + f"{'### ' if form == 'markdown' else ''}{drawable.figure.title}\n")
        elif number:
            print()
        print(spell(drawable.table), end="")
    return 0
