"""Work that another process does meanwhile, on what this one has read."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Do this in a process beside the block, which sees all that there is now; what it changes but files is lost.

    Done before the block's end. Where it fails, it is done again here, so that its error is raised here.
    """
    if not sys.platform.startswith("linux"):  # others have no fork that is safe
        work()
        yield
        return
    process = multiprocessing.get_context("fork").Process(target=_quietly, args=(work,))
    process.start()
    try:
        yield
    finally:
        process.join()
    if process.exitcode:
        work()


def _quietly(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        raise SystemExit(1) from None
