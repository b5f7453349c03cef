"""The command `hpml`. Each command's module is imported only when it is called: `hpml list` must answer at once."""

from __future__ import annotations

import gc
import importlib
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from hpml_plugins import __version__
from hpml_plugins.errors import HpmlError, unwritable

if TYPE_CHECKING:
    from hpml_plugins.model import Finding

#: command → "module:attribute", imported when it is called
_COMMANDS = {
    "list": "hpml_plugins.cli.list_:command",
    "run": "hpml_plugins.cli.run:command",
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
    "retract": "hpml_plugins.cli.results:retract",
    "schema": "hpml_plugins.cli.small:schema",
}


@dataclass(frozen=True)
class Settings:
    """What every command gets: the registry's file, and whether to show tracebacks."""

    registry: Path
    debug: bool = False


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


def show_findings(findings: Iterable[Finding], as_json: bool, facts: Mapping[str, object] | None = None) -> int:
    """Print findings as they come, or all as JSON, beside facts where there are any. Returns how many are broken."""
    shown = []
    for finding in findings:
        shown.append(finding)
        if not as_json:
            print(f"{finding.sign} {finding.subject:14}  {finding.what}", flush=True)
            if finding.fix:
                print(f"{'':18}fix: {finding.fix}", flush=True)
    if as_json:
        print_json({**facts, "findings": shown} if facts else shown)
    return sum(finding.state == "broken" for finding in shown)


def print_json(value: object) -> None:
    """Print a value as JSON for people."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value, enc_hook=str)).decode())


def _end_cleanly(number: int, _: object) -> NoReturn:
    """End this process as an exception does: temporary folders are removed, programs that it started are ended."""
    signal.signal(number, signal.SIG_IGN)  # a second one would interrupt that
    raise SystemExit(128 + number)


def main() -> NoReturn:
    """Run the command. An error of the user's ends in one line on stderr and exit status 2."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _end_cleanly)
    try:
        status = group.main(standalone_mode=False, prog_name="hpml")
    except click.ClickException as error:
        error.show()
        status = 2
    except (click.Abort, KeyboardInterrupt):
        print("hpml: interrupted", file=sys.stderr)
        status = 130
    except BrokenPipeError:
        sys.stderr.close()  # `hpml list | head`: nobody is left to tell
        sys.exit(0)
    except (HpmlError, OSError) as error:
        refused = unwritable(error) if isinstance(error, OSError) else error
        if refused is None or "--debug" in sys.argv:
            raise
        print(f"hpml: {refused}", file=sys.stderr)
        status = 2
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stdout = sys.stderr  # what plugins print at exit is no part of the output
    sys.exit(status if isinstance(status, int) else 0)
