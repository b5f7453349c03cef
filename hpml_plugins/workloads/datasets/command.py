"""`hpml data`: shows which data sets are present, and how to get the others."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import click

from hpml_plugins.cli import PATH, Settings
from hpml_plugins.errors import HpmlError, UsageError, describe
from hpml_plugins.model import quantity, use_sources
from hpml_plugins.terminal import say, warn
from hpml_plugins.workloads.datasets.lookup import source_of, sources
from hpml_plugins.workloads.datasets.places import DATA_VARIABLE, cache, roots
from hpml_plugins.workloads.datasets.source import DataSource

#: An archive that unpacks to more than this many times its size counts as an attack that fills the
#: disk. Images and tables unpack to 1 to 20 times their size, gzip at most to 1,032 times.
LARGEST_RATIO = 100
#: Archives smaller than this, B, may unpack to LARGEST_RATIO times this size.
SMALLEST = 1 << 18
ROOT = click.option("--root", type=PATH, help="Where to put it; default: the user's cache.")
_PACKED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}


@click.group("data", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> int:
    """Show which data sets are present and how to get the others. Only `get` uses the network."""
    context.with_resource(use_sources(_of_plugins(context.obj)))
    if context.invoked_subcommand is None:
        _list()
    return 0


@command.command("get")
@click.argument("name")
@ROOT
def get(name: str, root: Path | None) -> int:
    """Download NAME with torchvision's loader, which checks its MD5."""
    say(f"{name} is in {download(name, root or cache() / 'data')}")
    return 0


@command.command("add")
@click.argument("archive", type=PATH)
@click.option(
    "--name", default="", help="The data set; default: the archive's name without endings."
)
@ROOT
def add(archive: Path, name: str, root: Path | None) -> int:
    """Unpack ARCHIVE, a .tar, .tar.gz or .tar.xz that holds a data set."""
    say(f"unpacked into {unpack(archive, root or cache() / 'data', name)}")
    return 0


@command.command("show")
@click.argument("name")
def show(name: str) -> int:
    """Load NAME and show its contents. Decodes it, so that no benchmark has to."""
    from hpml_plugins.workloads.datasets import load_data

    data = load_data(name, say=say)
    channels, height, width = data.shape
    say(f"name         {data.name}")
    say(f"images       {len(data.train)} for training, {len(data.test)} for testing")
    say(f"shape        {channels} × {height} × {width}")
    say(f"classes      {len(data.classes)}: {', '.join(data.classes)}")
    say(f"mean, std    {_numbers(data.mean)}; {_numbers(data.std)}")
    say(f"fingerprint  {data.fingerprint}")
    return 0


def _of_plugins(settings: Settings) -> dict[str, Any]:
    """The data sets of the plugins; none without a registry."""
    from hpml_plugins.host import load_sources, make_host
    from hpml_plugins.registry import read_registry

    if not settings.registry.is_file():
        return {}
    offers = make_host(read_registry(settings.registry)).offers
    for problem in offers.problems:
        warn(problem)
    return dict(load_sources(offers, settings.registry.parent, offers.data))


def _list() -> None:
    from hpml_plugins.workloads.datasets.decoding import decoded_copy

    known = sources()
    width = max(map(len, known))
    for name, source in known.items():
        reason = source.why_missing()
        if not isinstance(source, DataSource):  # a plugin's own kind
            say(f"{name:{width}}  {'missing' if reason else 'here   '}  {reason}".rstrip())
        elif (path := source.path()) is None:
            say(f"{name:{width}}  missing  {source.how_to_get}")
        elif reason:
            say(f"{name:{width}}  unread   {reason}")
        else:
            copy = decoded_copy(name, path)
            if copy.exists():
                kept = f"; decoded, {quantity(copy.stat().st_size, 'B')} in {copy}"
            else:
                kept = ""
            say(f"{name:{width}}  here     {path}{kept}")
    say(
        "",
        f"looked in: {', '.join(str(root) for root in roots())} ({DATA_VARIABLE} puts others in"
        " front)",
    )


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4f}" for value in values)


def download(name: str, root: Path) -> Path:
    """Fetch a data set into a root, unless it is already there. Returns its path.

    Raises UsageError if no library downloads it, HpmlError if the download failed.
    """
    source = _source(name)
    if there := source.path_under(root):
        return there
    if source.download is None:
        raise UsageError(f"{name} cannot be downloaded; {source.how_to_get}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        source.download(root)
    except Exception as error:  # a library's, the network's or the disk's
        raise HpmlError(
            f"{name} could not be downloaded to {root}: {describe(error)}"
        ) from error
    return _present(source, root, f"the download of {name}")


def unpack(archive: Path, root: Path, name: str = "") -> Path:
    """Unpack an archive of a data set into a root, completely or not at all. Returns the data set's
    path.

    name: of the data set; default: the archive's name without its endings.  Refuses members that
    would land outside, links, devices, and archives that unpack to more than LARGEST_RATIO times
    their size. The archive is read to its end, so that a wrong checksum is noticed. Raises
    UsageError for an invalid name or file or an existing data set, HpmlError for an archive that is
    damaged or contains something else.
    """
    source = _source(name or archive.name.partition(".")[0])
    if source.unpack_to is None:
        raise UsageError(
            f"{source.name} cannot be unpacked from an archive; {source.how_to_get}"
        )
    if not archive.is_file():
        raise UsageError(f"{archive}: no such file")
    if there := source.path_under(root):
        raise UsageError(f"{source.name} is in {there} already; remove that first")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=".adding-", dir=root, ignore_cleanup_errors=True
        ) as scratch:
            with tempfile.TemporaryFile(dir=scratch) as content:
                _decompress(archive, content)
                with tarfile.open(fileobj=content, mode="r:") as tar:
                    _extract(tar, Path(scratch, source.unpack_to))
                    _require_end(content, tar.offset)
            unpacked = _present(source, Path(scratch), str(archive))
            target = root / unpacked.relative_to(scratch)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():  # something else, because find did not recognise it
                raise UsageError(
                    f"{target} exists and is not a complete {source.name}; remove it first"
                )
            shutil.move(unpacked, target)
    except HpmlError:
        raise
    # tarfile's, and those of zlib and lzma, which have no base of their own
    except Exception as error:
        raise HpmlError(
            f"{archive}: cannot be unpacked into {root}: {describe(error)}"
        ) from error
    return target


def _source(name: str) -> DataSource:
    source = source_of(name)
    if not isinstance(source, DataSource):
        raise UsageError(
            f"{name} is offered by a plugin: {source.why_missing() or 'it is here'}"
        )
    return source


def _decompress(archive: Path, content: IO[bytes]) -> None:
    """Write the decompressed archive (gzip, bzip2, xz or none) up to its end, where the checksum
    is.

    Raises TarError as soon as it is longer than LARGEST_RATIO times the archive.
    """
    with archive.open("rb") as file:
        start = file.read(6)
    opener = next(
        (opener for magic, opener in _PACKED.items() if start.startswith(magic)), open
    )
    most = LARGEST_RATIO * max(SMALLEST, archive.stat().st_size)
    with opener(archive, "rb") as packed:
        while chunk := packed.read(1 << 20):
            content.write(chunk)
            if content.tell() > most:
                raise tarfile.TarError(
                    f"it unpacks to more than {most} B, {LARGEST_RATIO} times its size"
                )
    content.seek(0)


def _require_end(content: IO[bytes], position: int) -> None:
    """Raise TarError unless two or more blocks of zeros, and nothing else, follow the last
    member."""
    content.seek(position)
    if (
        any(map(any, iter(lambda: content.read(1 << 20), b"")))
        or content.tell() - position < 2 * tarfile.BLOCKSIZE
    ):
        raise tarfile.TarError(
            "it is damaged or cut off: no end behind the last whole member"
        )


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Extract plain files and folders, and refuse anything else: no data set needs a link or a
    device.

    Holes are refused too, because they make a file of any size from a few bytes. An absolute name
    is relative to the folder. (Python before 3.11.4 lacks the filters of tarfile.) Raises TarError.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for member in tar:
        if member.issparse():
            raise tarfile.TarError(f"{member.name!r} is a file with holes")
        if not (member.isfile() or member.isdir()):
            kind = "link" if member.issym() or member.islnk() else "special file"
            raise tarfile.TarError(f"{member.name!r} is a {kind}")
        path = (folder / member.name.lstrip("/")).resolve()
        if not path.is_relative_to(folder):
            raise tarfile.TarError(f"{member.name!r} would land outside of the folder")
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        content = tar.extractfile(member)
        assert content  # of a plain file
        with content, path.open("wb") as file:
            shutil.copyfileobj(content, file)


def _present(source: DataSource, root: Path, what: str) -> Path:
    found = source.path_under(root)
    if found is None:
        raise HpmlError(f"{what} is not {source.name}: no {source.looks_for} in it")
    return found
