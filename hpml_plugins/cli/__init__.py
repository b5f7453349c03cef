"""The command `hpml`. Each command's module is imported only when it is called: `hpml list` must
answer at once."""

from __future__ import annotations

import gc
import importlib
import math
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from hpml_plugins import __version__
from hpml_plugins.errors import LONGEST, HpmlError, describe, unwritable
from hpml_plugins.terminal import escape_unencodable, one_line, printable, printable_json, say, warn

if TYPE_CHECKING:
    from hpml_plugins.model import Finding

#: command → "module:attribute", imported when it is called
_COMMANDS = {
    "list": "hpml_plugins.cli.list_:command",
    "run": "hpml_plugins.cli.run:command",
    "init": "hpml_plugins.tools.init.command:command",
    "gate": "hpml_plugins.tools.gate.command:command",
    "new": "hpml_plugins.tools.scaffold.command:command",
    "check": "hpml_plugins.tools.check.command:command",
    "publish": "hpml_plugins.cli.small:publish",
    "table": "hpml_plugins.cli.results:table",
    "plot": "hpml_plugins.cli.results:plot",
    "compare": "hpml_plugins.cli.results:compare",
    "export": "hpml_plugins.cli.results:export",
    "machine": "hpml_plugins.cli.small:machine",
    "doctor": "hpml_plugins.tools.doctor.command:command",
    "bundle": "hpml_plugins.tools.bundle.command:command",
    "data": "hpml_plugins.workloads.datasets.command:command",
    "submit": "hpml_plugins.tools.cluster.commands:submit",
    "jobs": "hpml_plugins.tools.cluster.commands:jobs",
    "merge": "hpml_plugins.cli.results:merge",
    "pull": "hpml_plugins.tools.pull.command:command",
    "retract": "hpml_plugins.cli.results:retract",
    "schema": "hpml_plugins.cli.small:schema",
}


@dataclass(frozen=True)
class Settings:
    """What every command gets: the registry's file, and whether to show tracebacks."""

    registry: Path
    debug: bool = False


class Positive(click.FloatRange):
    """A positive number up to a maximum (default: the longest time, s); never NaN, which click
    admits."""

    def __init__(self, most: float = LONGEST) -> None:
        super().__init__(0, most, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; ends the command with a usage error for anything else."""
        found: float = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is not a number.", param, ctx) if math.isnan(found) else found


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help page."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, or None, on which click says so."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        gc.disable()  # imports allocate much and free little
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        finally:
            gc.freeze()  # nor need they be looked at again
            gc.enable()
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--registry",
    type=click.Path(path_type=Path),
    default=Path("registry.yaml"),
    show_default=True,
    help="The registry file.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(__version__, prog_name="hpml")
@click.pass_context
def group(context: click.Context, registry: Path, debug: bool) -> None:
    """GPU benchmarks from plugins: list them, run one now, check this node.

    To measure over commits and machines, use asv: `asv run`, `asv publish`, `asv preview`.
    """
    context.obj = Settings(registry, debug)


def show_findings(
    findings: Iterable[Finding], as_json: bool, facts: Mapping[str, object] | None = None
) -> Counter[str]:
    """Print findings as they come, or all as JSON, beside facts where there are any. Returns how
    many have which state."""
    shown = []
    for finding in findings:
        shown.append(finding)
        if not as_json:
            say(f"{finding.sign} {finding.subject:14}  {finding.what}")
            if finding.fix:
                say(f"{'':18}fix: {finding.fix}")
    if as_json:
        print_json({**facts, "findings": shown} if facts else shown)
    return Counter(finding.state for finding in shown)


def print_json(value: object) -> None:
    """Print a value as JSON for people."""
    import msgspec

    # a file's name need not be UTF-8
    text = msgspec.json.encode(value, enc_hook=lambda path: printable(str(path)))
    say(*printable_json(msgspec.json.format(text).decode()).split("\n"))


def _explain(error: Exception) -> str:
    """An error in one line: a user's as it is, with the file's name in front where there is one."""
    found = unwritable(error) if isinstance(error, OSError) else error
    if isinstance(found, HpmlError):
        return str(found)
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        return str(HpmlError(error.strerror or describe(error), os.fsdecode(error.filename)))
    if isinstance(error, UnicodeEncodeError):
        return str(
            HpmlError(
                f"{error.object[error.start : error.end]!r} is not UTF-8; rename what is called so"
            )
        )
    return f"{describe(error)}; this is a fault of hpml-plugins, and hpml --debug shows where it is"


def _end_cleanly(number: int, _: object) -> NoReturn:
    """End this process as an exception does: temporary folders are removed, programs that it
    started are ended."""
    signal.signal(number, signal.SIG_IGN)  # a second one would interrupt that
    raise SystemExit(128 + number)


def main() -> NoReturn:
    """Run the command. An error ends in one line on stderr and exit status 2; `--debug` shows its
    traceback."""
    escape_unencodable()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _end_cleanly)
    try:
        status = group.main(standalone_mode=False, prog_name="hpml")
    except click.ClickException as error:
        command = getattr(error, "ctx", None) or click.Context(group, info_name="hpml")
        warn(f"{one_line(error.format_message()).rstrip('.')}; see {command.command_path} --help")
        status = 2
    except (click.Abort, KeyboardInterrupt):
        warn("interrupted")
        status = 130
    except BrokenPipeError:
        sys.stderr.close()  # `hpml list | head`: nobody is left to tell
        sys.exit(0)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        warn(_explain(error))
        status = 2
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stdout = sys.stderr  # what plugins print at exit is no part of the output
    sys.exit(status if isinstance(status, int) else 0)
