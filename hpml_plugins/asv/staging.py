"""Publish the site into a folder beside the old one, check it, and replace the old one as a whole:
if publishing fails or is killed, the old site is unchanged.

asv itself deletes the old site first, and writes in place.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hpml_plugins.errors import UsageError
from hpml_plugins.report.site.manifest import complete_manifest, escape_direction_in_files
from hpml_plugins.report.site.previous import replacing
from hpml_plugins.temporary import temporary_folder

#: Prefix of the folders beside a site that is being published; a killed publish leaves one.
_MARK = ".hpml-publishing-"
#: A file of every site, also of those that asv wrote alone.
_OF_EVERY_SITE = "asv.js"


@contextmanager
def staged_site(args: Any, site: Path, digest: str) -> Iterator[None]:
    """Make asv publish into a new folder beside the site's, and replace the site at the end.

    args: of `asv publish`, whose `html_dir` is set.  digest: of all inputs of the site. Raises
    HpmlError for an incomplete site, and UsageError if what it would replace is no site; that is
    then unchanged.
    """
    # if the site is a link, keep it and replace its target
    site = site.resolve()
    _check_replaceable(site)
    site.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(site)
    with temporary_folder(prefix=f".{site.name}{_MARK}", parent=site.parent) as folder:
        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)  # held until this process ends for any reason
            args.html_dir = str(folder / "site")
            with replacing(site):
                yield
            escape_direction_in_files(folder / "site")
            complete_manifest(folder / "site", digest)
            _replace(site, folder)
        finally:
            os.close(held)


def _check_replaceable(site: Path) -> None:
    """Raise UsageError unless the path is free, an empty folder or an earlier site."""
    if not site.exists():
        return
    if site.is_dir() and ((site / _OF_EVERY_SITE).exists() or not any(site.iterdir())):
        return
    raise UsageError(
        "not a site, and would be deleted; name a new or empty folder, or one of an earlier site",
        str(site),
    )


def _replace(site: Path, folder: Path) -> None:
    """Replace the old site by `folder/site`."""
    new = folder / "site"
    old = folder / "old"
    there = site.exists()
    if there:
        site.rename(old)
    try:
        new.rename(site)
    except OSError:
        if there:
            old.rename(site)
        raise


def _remove_leftovers(site: Path) -> None:
    """Remove the folders that killed publishes have left beside a site; those of running ones are
    locked.

    If one was killed between two renames, it contains the old site, which is restored.
    """
    for folder in site.parent.glob(f".{site.name}{_MARK}*"):
        with suppress(OSError):
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not site.exists() and (folder / "old").exists():
                    (folder / "old").rename(site)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)
