"""The command `hpml`. Each command's module is imported only when it is called: `hpml list` must answer at once."""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from hpml_plugins import __version__
from hpml_plugins.errors import HpmlError, unwritable

#: command → module of this package, whose function of the same name is the command
_COMMANDS = {
    "list": "list_",
    "run": "run",
    "new": "new",
    "check": "check",
    "publish": "publish",
    "table": "table",
    "plot": "plot",
    "compare": "compare",
    "export": "export",
    "machine": "machine",
    "doctor": "doctor",
    "bundle": "bundle",
    "data": "data",
    "submit": "submit",
    "jobs": "jobs",
    "merge": "merge",
    "schema": "schema",
}


@dataclass(frozen=True)
class Settings:
    """What every command gets: the registry's file, and whether tracebacks are wanted."""

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
        module = importlib.import_module(f"hpml_plugins.cli.{_COMMANDS[cmd_name]}")
        command: click.Command = module.command
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
    """GPU benchmarks from plugins: list them, run one now, see what this node has.

    Over commits and machines it is asv that runs them: `asv run`, `asv publish`, `asv preview`.
    """
    context.obj = Settings(registry, debug)


def main() -> NoReturn:
    """Run the command. An error of the user's ends in one line on stderr and exit status 2."""
    try:
        status = group.main(standalone_mode=False, prog_name="hpml")
    except HpmlError as error:
        if "--debug" in sys.argv:
            raise
        print(f"hpml: {error}", file=sys.stderr)
        status = 2
    except click.ClickException as error:
        error.show()
        status = 2
    except (click.Abort, KeyboardInterrupt):
        print("hpml: interrupted", file=sys.stderr)
        status = 130
    except BrokenPipeError:
        sys.stderr.close()  # `hpml list | head`: nobody is left to tell
        sys.exit(0)
    except OSError as error:
        refused = unwritable(error)
        if refused is None or "--debug" in sys.argv:
            raise
        print(f"hpml: {refused}", file=sys.stderr)
        status = 2
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stdout = sys.stderr  # what plugins say at exit is no part of the answer
    sys.exit(status if isinstance(status, int) else 0)
