"""`hpml data`: which data sets are here, and how to get the others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from hpml_plugins.cli import Settings
from hpml_plugins.model import quantity, use_sources


@click.group("data", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> int:
    """Show which data sets are here and how to get the others. Only `get` uses the network."""
    context.with_resource(use_sources(_of_plugins(context.obj)))
    if context.invoked_subcommand is None:
        _list()
    return 0


@command.command("get")
@click.argument("name")
@click.option("--root", type=click.Path(path_type=Path), help="Where to put it; default: the user's cache.")
def get(name: str, root: Path | None) -> int:
    """Download NAME with torchvision's loader, which checks its MD5."""
    from hpml_plugins.workloads.datasets.getting import download
    from hpml_plugins.workloads.datasets.source import cache

    print(f"{name} is in {download(name, root or cache() / 'data')}")
    return 0


@command.command("add")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--name", default="", help="The data set; default: the archive's name without endings.")
@click.option("--root", type=click.Path(path_type=Path), help="Where to put it; default: the user's cache.")
def add(archive: Path, name: str, root: Path | None) -> int:
    """Unpack ARCHIVE, a .tar, .tar.gz or .tar.xz that holds a data set."""
    from hpml_plugins.workloads.datasets.getting import add
    from hpml_plugins.workloads.datasets.source import cache

    print(f"unpacked into {add(archive, root or cache() / 'data', name)}")
    return 0


@command.command("show")
@click.argument("name")
def show(name: str) -> int:
    """Load NAME and show what it holds. Decodes it, so that no benchmark has to."""
    from hpml_plugins.workloads.datasets import load_data

    data = load_data(name, say=print)
    channels, height, width = data.shape
    print(f"name         {data.name}")
    print(f"images       {len(data.train)} for training, {len(data.test)} for testing")
    print(f"shape        {channels} × {height} × {width}")
    print(f"classes      {len(data.classes)}: {', '.join(data.classes)}")
    print(f"mean, std    {_numbers(data.mean)}; {_numbers(data.std)}")
    print(f"fingerprint  {data.fingerprint}")
    return 0


def _of_plugins(settings: Settings) -> dict[str, Any]:
    """The data sets of the plugins; none where there is no registry."""
    from hpml_plugins.host import load_sources, make_host
    from hpml_plugins.registry import read_registry

    if not settings.registry.is_file():
        return {}
    offers = make_host(read_registry(settings.registry)).offers
    for problem in offers.problems:
        print(f"hpml: {problem}", file=sys.stderr)
    return dict(load_sources(offers, settings.registry.parent, offers.data))


def _list() -> None:
    from hpml_plugins.workloads.datasets.decoding import decoded_copy
    from hpml_plugins.workloads.datasets.source import DATA_VARIABLE, DataSource, roots, sources

    known = sources()
    width = max(map(len, known))
    for name, source in known.items():
        reason = source.why_missing()
        if not isinstance(source, DataSource):  # a plugin's own kind
            print(f"{name:{width}}  {'missing' if reason else 'here   '}  {reason}".rstrip())
        elif (path := source.path()) is None:
            print(f"{name:{width}}  missing  {source.how_to_get}")
        elif reason:
            print(f"{name:{width}}  unread   {reason}")
        else:
            copy = decoded_copy(name, path)
            kept = f"; decoded, {quantity(copy.stat().st_size, 'B')} in {copy}" if copy.exists() else ""
            print(f"{name:{width}}  here     {path}{kept}")
    print(f"\nlooked in: {', '.join(str(root) for root in roots())} ({DATA_VARIABLE} puts others in front)")


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4f}" for value in values)
