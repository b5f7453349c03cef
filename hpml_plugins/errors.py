"""One family of errors. Each says what is wrong, where, and how to fix it, in one line."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress

from hpml_plugins.terminal import one_line, printable

#: s; no time limit is longer, and none is infinite. 31 years.
LONGEST = 1e9


class HpmlError(Exception):
    """Base of every error that is meant for a user.

    what: the fault and how to fix it, one line.  where: `file:line` or `file`, put in front; empty when there is none.
    """

    def __init__(self, what: str, where: str = "") -> None:
        self.what = one_line(what)
        self.where = printable(where)
        super().__init__(f"{self.where}: {self.what}" if where else self.what)


class RegistryError(HpmlError):
    """registry.yaml says something that cannot be."""


class DefinitionError(HpmlError):
    """A Benchmark, Metric, Requires or a plugin is declared wrongly."""


class UsageError(HpmlError):
    """A command was given a name or a value that does not exist."""


class ResultError(HpmlError):
    """What a measurement returned cannot be believed: no such metric, not finite, wrong unit."""


class CheckFailed(HpmlError):
    """`bench.check` found a wrong result; no number of this point counts."""


class Skipped(HpmlError):
    """The point cannot be measured on this node; the reason is recorded. Raised by `bench.skip`."""


class Unwritable(HpmlError):
    """A file system refuses: full, read-only, over quota, or not permitted."""


#: Errors of a file system that the user can fix, not a fault of ours.
_REFUSALS = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ELOOP,
    errno.ENAMETOOLONG,
)  # fmt: skip


def unwritable(error: OSError, path: object = "") -> Unwritable | None:
    """The error for a user where a file system refused to write; None where it means something else.

    path: what was to be written, where the error does not say.
    """
    if isinstance(error, shutil.Error):  # of many files: (from, to, message) of each
        _, path, message = error.args[0][0]
        number = re.search(r"\[Errno (\d+)\]", str(message))
        error = OSError(int(number[1]), os.strerror(int(number[1]))) if number else error
    if error.errno not in _REFUSALS:
        return None
    where = error.filename2 or error.filename or path
    where = os.fsdecode(where) if isinstance(where, (str, bytes)) else str(where)
    return Unwritable(f"cannot be written: {error.strerror}; free space or fix permissions", where)


def environment_number(variable: str, default: float) -> float:
    """The positive number that an environment variable holds, or the default. Raises UsageError for anything else."""
    text = os.environ.get(variable, "")
    with suppress(ValueError):
        if 0 < (value := float(text or default)) <= LONGEST:
            return value
    raise UsageError(f"{variable} is {text[:40]!r}, not a positive number up to {LONGEST:g}; correct or unset it")


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean …?` with the nearest name, or the list of the known ones."""
    import difflib  # only errors need it

    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"


def describe(error: BaseException) -> str:
    """An exception in one line: a user's error as it is, anything else with its type."""
    if isinstance(error, HpmlError):
        return str(error)
    text = one_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
