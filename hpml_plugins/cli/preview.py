"""`hpml preview FILE.py`: the site of one plugin, before there is a project."""

from __future__ import annotations

import functools
import json
import os
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from hpml_plugins.asv.configuration import write_configuration
from hpml_plugins.asv.run import machine_file
from hpml_plugins.cli import PATH, Settings, records_beside
from hpml_plugins.cli.asv_commands import run_asv
from hpml_plugins.errors import UsageError
from hpml_plugins.host import make_host
from hpml_plugins.model.node import Node
from hpml_plugins.registry import name_of_file, read_registry
from hpml_plugins.store import (
    atomic_write,
    machine_folders,
    save_declarations,
    stored_rounds,
    unpack_records,
)
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import say, warn


@click.command("preview")
@click.argument("file", metavar="FILE.py", type=PATH)
@click.option(
    "--results",
    "records",
    type=PATH,
    metavar="FILE.jsonl",
    help="A file of hpml run --record.  [default: the one beside FILE.py]",
)
@click.option(
    "--to",
    "folder",
    type=PATH,
    help=(
        "Write the site to this folder, a new or empty one or one of an earlier site, which is"
        " replaced; serve nothing."
    ),
)
@click.option("--browser", is_flag=True, help="Open it in a browser.")
@click.pass_obj
def command(
    settings: Settings, file: Path, records: Path | None, folder: Path | None, browser: bool
) -> int:
    """Show the site of plugin FILE.py for the Records of `hpml run FILE.py --record`.

    It needs neither a project nor a git repository. Each run is shown in place of a commit. The
    site is served on this machine until Ctrl-C.
    """
    if not file.is_file():
        raise UsageError("no such file; the site of a project: asv publish", str(file))
    records = records or records_beside(str(file))
    if not records.is_file():
        raise UsageError(
            f"no such file; measure first: hpml run {file} --record", str(records)
        )
    with temporary_folder("hpml-preview-") as project:
        html = folder.absolute() if folder else project / "html"
        _write_project(project, file.absolute(), records, html)
        os.chdir(project)  # asv reads its configuration from here
        run_asv("publish")
        if folder is None:
            _serve(html, browser=browser)
    if folder:
        say(f"wrote {folder}; open {folder}/index.html")
    return 0


def _serve(html: Path, *, browser: bool) -> None:
    """Serve the site until Ctrl-C, on the loopback address only (`asv preview` serves on all)."""
    import http.server
    import webbrowser

    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        address = f"http://127.0.0.1:{server.server_port}/"
        say(f"Serving at {address} until Ctrl-C")
        if browser:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _write_project(project: Path, file: Path, records: Path, html: Path) -> None:
    """Create a project with this plugin and these Records. Raises the error of a plugin that cannot
    be loaded."""
    entry = {"name": name_of_file(file), "path": str(file)}
    registry = project / "registry.yaml"
    registry.write_text(json.dumps({"version": 1, "plugins": [entry]}), encoding="utf-8")
    host = make_host(read_registry(registry))
    for plugin in host.broken:
        raise plugin.error or AssertionError
    results = project / "results"
    unpack_records(records, results, warn, runs_as_commits=True)
    if not machine_folders(results):
        raise UsageError(
            f"has no Record; measure first: hpml run {file.name} --record", str(records)
        )
    for machine in machine_folders(results):
        node = msgspec.convert(stored_rounds(results, machine.name)[-1].node, Node)
        atomic_write(machine / "machine.json", machine_file(node, machine.name))
    save_declarations(
        results, (each for found in host.benchmarks() for each in found.entries())
    )
    write_configuration(project, html)
