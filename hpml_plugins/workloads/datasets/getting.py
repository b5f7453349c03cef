"""Getting a data set at the user's request: by a library's download, or from an archive on this machine."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from hpml_plugins.errors import DataError, HpmlError, UsageError, describe
from hpml_plugins.workloads.datasets.source import DataSource, source_of


def download(name: str, root: Path) -> Path:
    """Fetch a data set into a root, unless it is there. Returns its path.

    Raises UsageError where no library downloads it, DataError where that failed.
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
        raise DataError(f"{name} could not be downloaded to {root}: {describe(error)}") from error
    return _present(source, root, f"what was downloaded for {name}")


def add(archive: Path, root: Path, name: str = "") -> Path:
    """Unpack an archive of a data set into a root, completely or not at all. Returns the data set's path.

    name: of the data set; the archive's, without its endings, when left out.  Members that would land outside, links
    and devices are refused. Raises UsageError for a name or file that is none, or a data set that is there already,
    DataError for an archive that is damaged or holds something else.
    """
    source = _source(name or archive.name.partition(".")[0])
    if source.unpack_to is None:
        raise UsageError(f"{source.name} is not made of an archive; {source.how_to_get}")
    if not archive.is_file():
        raise UsageError(f"{archive}: no such file")
    if there := source.path_under(root):
        raise UsageError(f"{source.name} is in {there} already; remove that first")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".adding-", dir=root, ignore_cleanup_errors=True) as scratch:
            with tarfile.open(archive) as tar:
                tar.extractall(Path(scratch, source.unpack_to), filter=_plain)
            unpacked = _present(source, Path(scratch), str(archive))
            target = root / unpacked.relative_to(scratch)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():  # something else, for find did not know it
                raise UsageError(f"{target} exists and is not a complete {source.name}; remove it first")
            shutil.move(unpacked, target)
    except HpmlError:
        raise
    except Exception as error:  # tarfile's, and those of zlib and lzma, which have no base of their own
        raise DataError(f"{archive}: cannot be unpacked into {root}: {describe(error)}") from error
    return target


class LinkError(tarfile.FilterError):
    """A link in an archive: no data set needs one, and every known way out of tarfile's own filter went through one."""

    def __init__(self, member: tarfile.TarInfo) -> None:
        self.tarinfo = member
        super().__init__(f"{member.name!r} is a link")


def _source(name: str) -> DataSource:
    source = source_of(name)
    if not isinstance(source, DataSource):
        raise UsageError(f"{name} is a plugin's own: {source.why_missing() or 'it is here'}")
    return source


def _plain(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    if member.issym() or member.islnk():
        raise LinkError(member)
    return tarfile.data_filter(member, folder)


def _present(source: DataSource, root: Path, what: str) -> Path:
    found = source.path_under(root)
    if found is None:
        raise DataError(f"{what} is no {source.name}: no {source.looks_for} in it")
    return found
