"""One family of errors. Each says what is wrong, where, and how to fix it, in one line."""

from __future__ import annotations

import errno
import linecache
import os
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from types import FrameType

from hpml_plugins.terminal import one_line, printable

#: s: the longest time limit, 31 years.
LONGEST = 1e9
#: The most names that a message lists.
MOST_NAMES = 12
#: The most names that an unknown one may mean.
MOST_MEANT = 3
#: Characters of the longest error: a quoted name or value may have any length.
LONGEST_ERROR = 5000
_HERE = os.path.dirname(__file__) + os.sep  # noqa: PTH120
_LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120


class Failure(StrEnum):
    """The kind of failure of a point; the reason describes it in words.

    The values are stored: new ones may be added, none renamed.
    """

    NONE = ""
    #: `bench.check` found a wrong result.
    CHECK = "check"
    #: `measure` raised.
    ERROR = "error"
    #: What `measure` returned or sent is not valid or cannot be stored.
    RESULT = "result"
    #: The process ended before it reported: by itself, or by a signal.
    EXIT = "exit"
    SIGNAL = "signal"
    #: The point, or its ranks, exceeded the time limit.
    TIMEOUT = "timeout"
    #: A point exceeded the limit on processes or on the length of a message.
    LIMIT = "limit"
    #: The process that supervises the point's process was killed or stopped.
    SUPERVISOR = "supervisor"
    #: The code that watches the process ended it.
    STOPPED = "stopped"
    #: A card was lost, or its memory failed.
    GPU = "gpu"


class HpmlError(Exception):
    """Base of all errors for users.

    what: the fault and how to fix it, one line.  where: `file:line` or `file`, put in front; empty
    if there is none.
    """

    #: The kind of failure of a point whose `measure` raises it.
    failure = Failure.ERROR

    def __init__(self, what: str, where: str = "") -> None:
        self.what = one_line(
            what if len(what) <= LONGEST_ERROR else f"{what[:LONGEST_ERROR]} …"
        )
        self.where = printable(where)
        super().__init__(f"{self.where}: {self.what}" if where else self.what)


class RegistryError(HpmlError):
    """registry.yaml is invalid."""


class DefinitionError(HpmlError):
    """A Benchmark, Metric, Requires or plugin is declared incorrectly.

    where: the plugin's line that created the value, unless given.
    """

    def __init__(self, what: str, where: str | None = None) -> None:
        super().__init__(what, _calling_line() if where is None else where)


class UsageError(HpmlError):
    """A command was given a name or a value that does not exist."""


class ResultError(HpmlError):
    """The result of a measurement is invalid: unknown metric, not finite, wrong unit."""

    failure = Failure.RESULT


class CheckFailed(HpmlError):
    """`bench.check` found a wrong result; all numbers of this point are discarded."""

    failure = Failure.CHECK


class Skipped(HpmlError):
    """The point cannot be measured on this node; the reason is recorded. Raised by `bench.skip`."""


class Unwritable(HpmlError):
    """The file system refuses to write: full, read-only, over quota, or not permitted."""


#: File system errors that the user can fix, rather than bugs.
_REFUSALS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


def unwritable(error: OSError, path: object = "") -> Unwritable | None:
    """The error for a user if a file system refused to write, or to read a file; None for any other
    error.

    path: the target, if the error does not name it.
    """
    if isinstance(error, shutil.Error):  # for several files: (from, to, message) of each
        _, path, message = error.args[0][0]
        number = re.search(r"\[Errno (\d+)\]", str(message))
        error = OSError(int(number[1]), os.strerror(int(number[1]))) if number else error
    if error.errno not in _REFUSALS:
        return None
    where = error.filename2 or error.filename or path
    where = os.fsdecode(where) if isinstance(where, (str, bytes)) else str(where)
    if os.access(where, os.F_OK) and not os.access(where, os.R_OK):
        return Unwritable(f"cannot be read: {error.strerror}; fix permissions", where)
    if error.errno in (errno.EACCES, errno.EPERM):
        return Unwritable(
            f"cannot be read or written: {error.strerror}; fix permissions", where
        )
    fix = (
        "choose a shorter name"
        if error.errno == errno.ENAMETOOLONG
        else "free space or fix permissions"
    )
    return Unwritable(f"cannot be written: {error.strerror}; {fix}", where)


def environment_number(variable: str, default: float) -> float:
    """The positive number in an environment variable, or the default. Raises UsageError for
    anything else."""
    text = os.environ.get(variable, "")
    with suppress(ValueError):
        if 0 < (value := float(text or default)) <= LONGEST:
            return value
    raise UsageError(
        f"{variable} is {text[:40]!r}, not a positive number up to {LONGEST:g}; correct or unset it"
    )


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Import an optional package in the block. If it is missing, raises UsageError that names the
    extra of hpml-plugins with the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        install = f"pip install 'hpml-plugins[{extra}]'"
        raise UsageError(
            f"this needs the package {error.name}, which is not installed: {install}"
        ) from None


def regular_expression(text: str, option: str) -> re.Pattern[str]:
    """Compile the pattern given to an option. Raises UsageError if it is invalid."""
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(
            f"{option} {text!r} is not a regular expression: {error}"
        ) from None


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean …?` with the nearest name, or with the few that contain it, or a list of known
    names."""
    import difflib  # only needed for errors

    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    if not near and name:
        containing = [each for each in names if name.lower() in each.lower()]
        near = containing if len(containing) <= MOST_MEANT else []
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"known: {', '.join(names[:MOST_NAMES]) or 'none'}{more}"


def raise_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt if that is what asv has turned into this error."""
    if isinstance(error.__context__, KeyboardInterrupt):
        raise KeyboardInterrupt from None


def describe(error: BaseException) -> str:
    """Describe an exception in one line: a user error unchanged, any other with its type."""
    if isinstance(error, HpmlError):
        return str(error)
    try:
        text = one_line(str(error))
    except Exception as another:  # a plugin's exception may itself be broken
        text = f"(its text cannot be shown: {type(another).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def why_unreadable(error: BaseException) -> str:
    """Why a file or an address cannot be read, in words: of the file system, of the network, or of
    a parser of JSON."""
    reason = getattr(error, "reason", None)  # of a urllib.error.URLError
    if isinstance(reason, OSError):
        error = reason
    elif isinstance(reason, str) and hasattr(error, "code"):  # a urllib.error.HTTPError
        return f"HTTP {error.code} {reason}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, ValueError):
        text = re.sub(r"^<string>:(\d+) ", r"line \1: ", one_line(str(error)))
        return f"it is not JSON: {text}"
    return describe(error)


def explain(error: BaseException) -> tuple[str, str]:
    """(what, where) of an exception: one line with the expression that failed, and `file:line` of
    the plugin.

    where is empty if the traceback has no frame of a plugin. An HpmlError is not extended.
    """
    if isinstance(error, HpmlError):
        return error.what, error.where
    if isinstance(error, SyntaxError) and error.filename:
        return describe(error), f"{error.filename}:{error.lineno}"
    where, expression = failing_line(error)
    return describe(error) + (f" ({expression})" if expression else ""), where


def failing_line(error: BaseException) -> tuple[str, str]:
    """The plugin's line that raised an exception, as `file:line`, and the expression; empty if
    there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    index = plugin_frame([frame.filename for frame in frames])
    if index is None:
        return "", ""
    frame = frames[index]
    expression = linecache.getline(frame.filename, frame.lineno or 0)
    if frame.end_lineno == frame.lineno and frame.colno is not None:  # offsets are in bytes
        expression = expression.encode()[frame.colno : frame.end_colno].decode(
            errors="replace"
        )
    shown = textwrap.shorten(one_line(expression), 80, placeholder=" …")
    return f"{frame.filename}:{frame.lineno}", shown


def plugin_frame(files: Sequence[str]) -> int | None:
    """The index of the innermost frame that belongs to a plugin; None if there is none.

    files: the file of each frame, outermost first. Installed packages are ignored, unless all files
    outside Python's library and this package are in installed packages: then the plugin is the
    outermost package.
    """
    packages = [_package(file) for file in files]
    installed = [each for each in packages if each not in (None, "", "pluggy")]
    plugin = "" if "" in packages else next(iter(installed), None)
    places = [
        place for place, each in enumerate(packages) if each is not None and each == plugin
    ]
    return places[-1] if places else None


def _package(file: str) -> str | None:
    """The installed package that contains a file, "" for any other file, None for Python's library
    and this package."""
    if file.startswith(_HERE):
        return "" if file.startswith(f"{_HERE}plugins{os.sep}") else None
    if installed := re.search(r"[\\/](?:site|dist)-packages[\\/]([^\\/]+)", file):
        return installed[1]
    return None if file.startswith(("<", _LIBRARY)) else ""


def _calling_line() -> str:
    """`file:line` of the innermost call from outside this package and Python's library; empty if
    there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame and _package(frame.f_code.co_filename) is None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
