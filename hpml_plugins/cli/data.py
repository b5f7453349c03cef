"""`hpml data`: which data sets are here, and getting one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpml_plugins.cli import Settings
from hpml_plugins.model.formatting import quantity
from hpml_plugins.workloads.datasets.known import also_known

if TYPE_CHECKING:
    from hpml_plugins.workloads.datasets import DataSource


@click.group("data", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> int:
    """Show which data sets are here and how to get the others. Only `get` uses the network."""
    context.with_resource(also_known(_of_plugins(context.obj)))
    if context.invoked_subcommand is None:
        _list()
    return 0


@command.command("get")
@click.argument("name")
@click.option("--root", type=click.Path(path_type=Path), help="Where to put it; the user's cache when left out.")
def get(name: str, root: Path | None) -> int:
    """Download NAME with torchvision's loader, which checks its MD5."""
    from hpml_plugins.workloads.datasets.getting import download
    from hpml_plugins.workloads.datasets.places import user_root

    print(f"{name} is in {download(name, root or user_root())}")
    return 0


@command.command("add")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--name", default="", help="The data set; the archive's name without endings when left out.")
@click.option("--root", type=click.Path(path_type=Path), help="Where to put it; the user's cache when left out.")
def add(archive: Path, name: str, root: Path | None) -> int:
    """Unpack ARCHIVE, a .tar, .tar.gz or .tar.xz that holds a data set."""
    from hpml_plugins.workloads.datasets.getting import add
    from hpml_plugins.workloads.datasets.places import user_root

    print(f"unpacked into {add(archive, root or user_root(), name)}")
    return 0


@command.command("show")
@click.argument("name")
def show(name: str) -> int:
    """Load NAME and say what it holds. Decodes it, so that no benchmark has to."""
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


def _of_plugins(settings: Settings) -> dict[str, DataSource]:
    """The data sets that plugins bring; none where there is no registry, as beside a copied `hpml`."""
    from hpml_plugins.host import load_sources, make_host
    from hpml_plugins.registry import read_registry

    if not settings.registry.is_file():
        return {}
    host = make_host(read_registry(settings.registry))
    for problem in host.offers.problems:
        print(f"hpml: {problem}", file=sys.stderr)
    return load_sources(host.offers, settings.registry.parent, host.offers.data)  # type: ignore[return-value]


def _list() -> None:
    from hpml_plugins.workloads.datasets import find, why_missing
    from hpml_plugins.workloads.datasets.decoded import Entry
    from hpml_plugins.workloads.datasets.known import sources
    from hpml_plugins.workloads.datasets.places import DATA_VARIABLE, roots

    known = sources()
    width = max(map(len, known))
    for name, source in known.items():
        found = find(name)
        if not found:
            print(f"{name:{width}}  missing  {source.mend}")
            continue
        if reason := why_missing(name):
            print(f"{name:{width}}  unread   {reason}")
            continue
        entry = Entry.of(found)
        kept = f"; decoded, {quantity(entry.size, 'B')} in {entry.folder}" if entry.size else ""
        print(f"{name:{width}}  here     {found.path}{kept}")
    print(f"\nlooked in: {', '.join(str(root) for root in roots())} ({DATA_VARIABLE} puts others in front)")


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4f}" for value in values)
