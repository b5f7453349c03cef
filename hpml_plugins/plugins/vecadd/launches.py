"""How many blocks of how many threads a launch has."""

from __future__ import annotations

from hpml_plugins import HpmlError

THREADS = 256
LAUNCHES = ("1x1", "1x256", "grid")


def shape(launch: str, elements: int) -> tuple[int, int]:
    """(blocks, threads of a block) of a launch over so many elements.

    "1x1": one thread.  "1x256": one block.  "grid": a thread for each element, in blocks of 256, the last rounded up:
    1003 elements take 4 blocks.  Raises HpmlError for another launch.
    """
    if launch == "1x1":
        return 1, 1
    if launch == "1x256":
        return 1, THREADS
    if launch == "grid":
        return -(-elements // THREADS), THREADS
    raise HpmlError(f"no launch {launch!r}; use one of {', '.join(LAUNCHES)}")
