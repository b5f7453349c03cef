"""A full disk and a folder that may not be written to end asv's commands in one line, not in a traceback."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any, NoReturn

from asv import runner, util
from asv.commands import Command
from asv.console import log

from hpml_plugins.errors import HpmlError, Unwritable, unwritable
from hpml_plugins.suite.functions import UNWRITABLE


def end(error: HpmlError, status: int = 2) -> NoReturn:
    """End asv with one line on stderr."""
    log.flush()
    print(f"hpml: {error}", file=sys.stderr)
    sys.exit(status)


def say_refusals_in_one_line() -> None:
    """Let each of asv's commands that meets a file system which refuses to write say so, and end with status 2.

    asv has no hook around a command; its own errors, which it shows as a line, end it with status 1.
    """
    for command in util.iter_subclasses(Command):
        command.run_from_conf_args = classmethod(_guarded(command.run_from_conf_args.__func__))


def _guarded(original: Any) -> Any:
    @functools.wraps(original)
    def run_from_conf_args(cls: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(cls, *args, **kwargs)
        except Unwritable as error:
            end(error)
        except OSError as error:
            refused = unwritable(error)
            if refused is None:
                raise
            end(refused)

    return run_from_conf_args


def stop_when_records_are_refused(scratch: Path) -> None:
    """End the run after a point whose Record could not be stored: the next ones would be measured for nothing.

    asv has saved nothing of this commit then, so that `--skip-existing` measures what is missing. scratch: the run's.
    """
    original = runner._run_benchmark_single_param
    told = scratch / UNWRITABLE

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if told.exists():
            reason = told.read_text(encoding="utf-8")
            end(Unwritable(f"{reason}; the points before it are kept, asv run --skip-existing goes on after them"))
        return result

    runner._run_benchmark_single_param = run
