"""A machine's folder has one writer at a time."""

from __future__ import annotations

from pathlib import Path

from hpml_plugins.errors import HpmlError
from hpml_plugins.records.lock import Held, Lock, take
from hpml_plugins.records.whole import remove_partial

_NAME = ".lock"


class MachineTaken(HpmlError):
    """Another process writes results under this machine's name."""


def take_machine(results: Path, machine: str, *, wait: float = 0.0) -> Lock:
    """Take results/<machine>/ for this process. Raises MachineTaken, saying who has it and what to do."""
    folder = results / machine
    try:
        lock = take(folder / _NAME, wait=wait)
    except Held as held:
        raise MachineTaken(
            f"machine {machine!r} is being measured by {held.holder}; wait until it is done, or give this node a name "
            "of its own: asv run --machine NAME",
            str(folder),
        ) from None
    except OSError as error:
        raise HpmlError(f"cannot be written: {error.strerror}", str(folder)) from None
    if lock.exclusive:
        remove_partial(folder)
    return lock
