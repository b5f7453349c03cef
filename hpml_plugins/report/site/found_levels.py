"""The levels of a series and the questions about them, which the next publish takes from the user's
cache for each series that has not changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from hpml_plugins.analysis.levels import Level, Levels, Readings, best_level
from hpml_plugins.analysis.segments import BEGIN, END, Contrast
from hpml_plugins.report.kept import LEVELS, keep, kept_file, package_digest, read_kept

#: A question about the levels of a series: whether a level and the next differ, whether a level
#: drifts, and whether the newest differs from the best; with the number of the level.
Question = tuple[Literal["next", "drift", "lasting"], int]


class LevelAnswer(NamedTuple):
    """The difference that a question is about.  bound: on the ratio, in words; "" without one."""

    question: Question
    difference: Contrast
    bound: str


class FoundLevels(NamedTuple):
    """The levels of a series, oldest first, and what they answer."""

    levels: list[Level]
    answers: list[LevelAnswer]


#: Finds the levels of readings.  direction: "lower", "higher", or "" if neither is better.
FindLevels = Callable[[Readings, str], FoundLevels]
#: msgpack, unlike JSON, has infinite numbers.
_DECODER: Final = msgspec.msgpack.Decoder(dict[bytes, FoundLevels])


def find_levels(readings: Readings, direction: str) -> FoundLevels:
    """Search the levels of readings.  direction: of the metric."""
    found = readings.find_levels()
    asked = _questions(found, direction)
    answers = [LevelAnswer(name, each, found.bound(each)) for name, each in asked.items()]
    return FoundLevels(list(found.levels), answers)


def _questions(levels: Levels, direction: str) -> dict[Question, Contrast]:
    """The difference for each question; a series with a single level has one trivial question."""
    asked: dict[Question, Contrast] = {
        ("next", number): each for number, each in enumerate(levels.steps())
    }
    for number, level in enumerate(levels.levels):
        if level.end is not None:
            asked["drift", number] = levels.contrast((number, BEGIN), (number, END))
    if levels.levels:
        newest = len(levels.levels) - 1
        asked["lasting", 0] = levels.contrast(
            best_level(levels.levels, direction), (newest, END)
        )
    return asked


@contextmanager
def kept_levels(results: Path) -> Iterator[FindLevels]:
    """`find_levels`, which takes what the last publish of these results found from the user's
    cache, and at the end of the block keeps what this one found.

    For 100,000 Records of 2,560 series the search takes a third of the CPU time of our pages.
    """
    name = hashlib.sha256(os.fsencode(results.absolute())).hexdigest()
    file = kept_file(name, LEVELS)
    before: dict[bytes, FoundLevels] = {}
    if made := read_kept(file):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            before = _DECODER.decode(made)
    after: dict[bytes, FoundLevels] = {}

    def find(readings: Readings, direction: str) -> FoundLevels:
        asked = package_digest() + readings.digest() + direction.encode()
        key = hashlib.sha256(asked).digest()
        found = before.get(key) or find_levels(readings, direction)
        after[key] = found
        return found

    yield find
    keep(file, msgspec.msgpack.encode(after))
