"""`hpml publish`: `asv publish`, which does again only what is new."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("publish")
@click.argument("range_", metavar="[RANGE]", required=False)
@click.option("--html-dir", "-o", metavar="DIR", help="Where to, instead of asv.conf.json's html_dir.")
@click.option("--config", default="asv.conf.json", show_default=True, help="asv's configuration.")
@click.option("--no-pull", is_flag=True, help="Do not pull the repository.")
def command(range_: str | None, html_dir: str | None, config: str, no_pull: bool) -> None:
    """Write the site as `asv publish` does, reading and fitting only results that are new.

    What the last time came to is in .asv/published, which may be deleted; the site is the same with and without it.
    """
    from hpml_plugins.asv.again import run_asv
    from hpml_plugins.configuration import read_configuration

    read_configuration(Path(config))  # asv would end with another status
    words = ["publish", "--config", config]
    words += ["--html-dir", html_dir] if html_dir else []
    words += ["--no-pull"] if no_pull else []
    words += [range_] if range_ else []
    run_asv(words, Path(config).resolve().parent / ".asv" / "published")
