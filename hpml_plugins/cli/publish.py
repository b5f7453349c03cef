"""`hpml publish`: `asv publish` with the errors of `hpml`."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("publish")
@click.argument("range_", metavar="[RANGE]", required=False)
@click.option("--html-dir", "-o", metavar="DIR", help="Where to write; default: html_dir of asv.conf.json.")
@click.option("--config", default="asv.conf.json", show_default=True, help="asv's configuration.")
@click.option("--no-pull", is_flag=True, help="Do not pull the repository.")
def command(range_: str | None, html_dir: str | None, config: str, no_pull: bool) -> None:
    """Write the site, as `asv publish` does."""
    from asv.main import main

    from hpml_plugins.asv.configuration import read_configuration

    read_configuration(Path(config))  # asv would end with another exit status
    words = ["publish", "--config", config]
    words += ["--html-dir", html_dir] if html_dir else []
    words += ["--no-pull"] if no_pull else []
    words += [range_] if range_ else []
    sys.argv = ["asv", *words]
    main()
