"""Commands equivalent to commands of asv: machine, publish."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from hpml_plugins.cli import PATH, json_option, print_json
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import say, warn


@click.command()
@click.option(
    "--name", help="The machine's name; default: a stable name made of GPU type and count."
)
@json_option("Print all facts as JSON.")
@click.option("--dry-run", is_flag=True, help="Show the facts; write nothing.")
def machine(name: str | None, as_json: bool, dry_run: bool) -> int:
    """Record this node in ~/.asv-machine.json, with its GPUs.

    `asv run` does the same.
    """
    from hpml_plugins.asv.run import facets, record_machine
    from hpml_plugins.node import detect_node, machine_name
    from hpml_plugins.store import machine_folder

    if name:
        machine_folder(Path("results"), name)  # refuses invalid folder names
    node = detect_node()
    facts = facets(node, name or machine_name(node), {})
    if not dry_run:
        record_machine(facts)
    if as_json:
        print_json({**facts, "node": node})
        return 0
    for key, value in facts.items():
        say(f"{key:8} {value}")
    for gpu in node.gpus:
        say(
            f"{'':8} {gpu.name}: {gpu.memory / 2**30:.0f} GiB, {gpu.power_limit:.0f} W, {gpu.links}"
        )
    if node.driver:
        say(f"driver   {node.driver}, CUDA {node.cuda}")
    if node.gpu_problem:
        say(f"problem  {node.gpu_problem}")
    return 0


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--config", default="asv.conf.json", show_default=True, help="asv's configuration."
)
@click.option(
    "--results",
    "folders",
    multiple=True,
    type=PATH,
    metavar="DIR",
    help=(
        "Results to show instead of the project's, of any project of hpml-plugins or asv; several"
        " are shown together."
    ),
)
@click.option(
    "-o",
    "--html-dir",
    type=PATH,
    metavar="DIR",
    help=(
        "Write the site to this folder: a new or empty one, or one of an earlier site, which is"
        " replaced.  [default: html_dir of asv's configuration]"
    ),
)
@click.argument(
    "words", nargs=-1, metavar="[RANGE] [OPTIONS OF ASV PUBLISH]", type=click.UNPROCESSED
)
def publish(
    config: str, folders: tuple[Path, ...], html_dir: Path | None, words: tuple[str, ...]
) -> None:
    """Write the site, as `asv publish` does, with its options.

    With --results neither asv.conf.json nor a git repository is needed: commits that the repository
    lacks are placed by their dates.
    """
    from hpml_plugins.asv.configuration import read_configuration, write_configuration
    from hpml_plugins.store import merge_results
    from hpml_plugins.suite import ASV_RESULTS_VARIABLE

    with temporary_folder("hpml-publish-") as scratch:
        if folders:
            together = scratch / "results"
            merged = merge_results(folders, together)
            for line in [
                *merged.conflicts,
                *(f"skipped: {skipped}" for skipped in merged.skipped),
            ]:
                warn(line)
            os.environ[ASV_RESULTS_VARIABLE] = str(together)
            if not Path(config).exists() and config == "asv.conf.json":
                config = str(write_configuration(scratch, html=Path("html").absolute()))
        read_configuration(Path(config))  # asv itself would end with another exit status
        # asv would take a relative one from the folder of the configuration
        to = () if html_dir is None else ("--html-dir", str(html_dir.absolute()))
        run_asv("publish", "--config", config, *to, *words)


def run_asv(*words: str) -> None:
    """Run a command of asv in this process. Raises SystemExit if it fails."""
    from asv.main import main

    sys.argv = ["asv", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
