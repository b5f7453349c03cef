"""`hpml data`: which data sets are here, and getting one."""

from __future__ import annotations

from pathlib import Path

import click

from hpml_plugins.display import quantity


@click.group("data", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> int:
    """Show which data sets are here and how to get the others. Only `get` uses the network."""
    if context.invoked_subcommand is None:
        _list()
    return 0


@command.command("get")
@click.argument("name")
@click.option("--root", type=click.Path(path_type=Path), help="Where to put it; the user's cache when left out.")
def get(name: str, root: Path | None) -> int:
    """Download NAME with torchvision's loader, which checks its MD5."""
    from hpml_plugins.datasets.getting import download
    from hpml_plugins.datasets.places import user_root

    print(f"{name} is in {download(name, root or user_root())}")
    return 0


@command.command("add")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--name", default="", help="The data set; the archive's name without endings when left out.")
@click.option("--root", type=click.Path(path_type=Path), help="Where to put it; the user's cache when left out.")
def add(archive: Path, name: str, root: Path | None) -> int:
    """Unpack ARCHIVE, a .tar, .tar.gz or .tar.xz that holds a data set."""
    from hpml_plugins.datasets.getting import add
    from hpml_plugins.datasets.places import user_root

    print(f"unpacked into {add(archive, root or user_root(), name)}")
    return 0


@command.command("show")
@click.argument("name")
def show(name: str) -> int:
    """Load NAME and say what it holds. Decodes it, so that no benchmark has to."""
    from hpml_plugins.datasets import load_data

    data = load_data(name, say=print)
    channels, height, width = data.shape
    print(f"name         {data.name}")
    print(f"images       {len(data.train)} for training, {len(data.test)} for testing")
    print(f"shape        {channels} × {height} × {width}")
    print(f"classes      {len(data.classes)}: {', '.join(data.classes)}")
    print(f"mean, std    {_numbers(data.mean)}; {_numbers(data.std)}")
    print(f"fingerprint  {data.fingerprint}")
    return 0


def _list() -> None:
    from hpml_plugins.datasets import find, why_missing
    from hpml_plugins.datasets.builtin import SOURCES
    from hpml_plugins.datasets.decoded import Entry
    from hpml_plugins.datasets.places import DATA_VARIABLE, roots

    width = max(map(len, SOURCES))
    for name, source in SOURCES.items():
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
