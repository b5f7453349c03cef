"""A machine's folder has one writer at a time, and is a folder."""

from __future__ import annotations

from pathlib import Path

from hpml_plugins.errors import HpmlError
from hpml_plugins.store.atomic_write import remove_partial
from hpml_plugins.store.lock import Held, Lock, take

_NAME = ".lock"


class MachineTaken(HpmlError):
    """Another process writes results under this machine's name."""


def take_machine(results: Path, machine: str, *, wait: float = 0.0) -> Lock:
    """Take results/<machine>/ for this process. Raises MachineTaken, saying who has it and what to do."""
    folder = results / machine
    refuse_links(folder, folder / "records")
    try:
        lock = take(folder / _NAME, wait=wait)
    except Held as held:
        raise MachineTaken(
            f"machine {machine!r} is being measured by {held.holder}; wait until it is done, or give this node a name "
            "of its own: asv run --machine NAME",
            str(folder),
        ) from None
    if lock.exclusive:
        for place in (folder, folder / "records"):
            remove_partial(place)
    return lock


def refuse_links(*folders: Path) -> None:
    """Raise HpmlError for a symbolic link: results come from others too, and must not have us write elsewhere.

    `results` itself may be one: that is the user's own doing.
    """
    for folder in folders:
        if folder.is_symlink():
            raise HpmlError("is a symbolic link, which nothing is written through; put a folder there", str(folder))
