"""The command `hpml`. The module of a command is imported only when it is called, so that `hpml
list` responds quickly."""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import io
import itertools
import math
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from hpml_plugins.errors import (
    LONGEST,
    HpmlError,
    UsageError,
    describe,
    nearest,
    unwritable,
)
from hpml_plugins.terminal import (
    escape_unencodable,
    one_line,
    printable,
    printable_json,
    say,
    warn,
)
from hpml_plugins.version import __version__

if TYPE_CHECKING:
    from hpml_plugins.model import Finding

#: The core's own commands: name → its location, and the first sentence of its help.
_COMMANDS = {
    "list": (
        "hpml_plugins.cli.list_:command",
        "Show plugins, benchmarks and points, and how many of them this node can measure.",
    ),
    "run": (
        "hpml_plugins.cli.run:command",
        "Measure NAME now: a benchmark, a plugin, or a plugin's file.",
    ),
    "publish": (
        "hpml_plugins.cli.asv_commands:publish",
        "Write the site, as `asv publish` does, with its options.",
    ),
    "preview": (
        "hpml_plugins.cli.preview:command",
        "Show the site of plugin FILE.py for the Records of `hpml run FILE.py --record`.",
    ),
    "table": (
        "hpml_plugins.cli.figures:table",
        "Print the tables of plugin NAME.",
    ),
    "plot": (
        "hpml_plugins.cli.figures:plot",
        "Write the charts of plugin NAME as files.",
    ),
    "compare": (
        "hpml_plugins.cli.compare:compare",
        "Compare the Records of B with those of A.",
    ),
    "export": (
        "hpml_plugins.cli.results:export",
        "Write all Records to FILE as Parquet.",
    ),
    "machine": (
        "hpml_plugins.cli.asv_commands:machine",
        "Record this node in ~/.asv-machine.json, with its GPUs.",
    ),
    "merge": (
        "hpml_plugins.cli.results:merge",
        "Add the results of each DIR to those of this project.",
    ),
    "retract": (
        "hpml_plugins.cli.results:retract",
        "Retract a Record of benchmark NAME that is known to be wrong.",
    ),
}
#: The extension of a file of Records outside a results folder.
RECORDS_OF_RUN = ".jsonl"
#: The lines of a file that are looked at for a Record: the first may be torn.
LOOKED_AT = 100
#: The package whose folders add their commands with the hook `hpml_commands`.
_TOOLS = "hpml_plugins.tools"


@dataclass(frozen=True)
class Settings:
    """Settings for every command: the registry's file, and whether to show tracebacks."""

    registry: Path
    debug: bool = False

    @property
    def results(self) -> Path:
        """The project's results folder."""
        from hpml_plugins.store.files import results_folder

        return results_folder(self.registry.parent)


def choose_results(context: click.Context, _: click.Parameter, named: Path | None) -> Path:
    """The results folder given by an option, else the project's."""
    settings: Settings = context.obj
    return named or settings.results


class _PathType(click.Path):
    """A path whose names the file system can hold."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """The path. An empty name, and one that is too long, is refused before the command
        begins."""
        if value == "":
            self.fail("the name is empty", param, ctx)
        path = super().convert(value, param, ctx)
        try:
            os.lstat(path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                self.fail(f"{error.strerror}: {one_line(str(path))[:80]!r}…", param, ctx)
        return path


#: Parameter types: a file or a folder, and a file only.
PATH = _PathType(path_type=Path)
FILE = _PathType(path_type=Path, dir_okay=False)
#: Options of the commands that add results to the project's.
INTO = click.option(
    "--into",
    type=PATH,
    callback=choose_results,
    help="Where to merge them.  [default: results_dir of asv.conf.json]",
)
DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Show what would be written; write nothing."
)
#: Of the commands that measure, and whose results are not added to the project's.


def records_file(
    _: click.Context, parameter: click.Parameter, path: Path | None
) -> Path | None:
    """A file to which Records are appended: a new one, or one that holds nothing else. Raises
    BadParameter for a file of something else."""
    if path is None or not path.is_file() or not os.access(path, os.R_OK):
        return path
    with path.open("rb") as file:
        lines = [line for line in itertools.islice(file, LOOKED_AT) if line.strip()]
    if lines and not any(line.startswith(b'{"benchmark"') for line in lines):
        raise click.BadParameter(
            f"{path} holds something else than Records; name another file", param=parameter
        )
    return path


RECORD = click.option(
    "--record", type=FILE, callback=records_file, help="Append all Records to this file."
)


def json_option(text: str = "Print JSON.") -> Callable[[Any], Any]:
    """The option --json of a command, as its argument `as_json`.  text: its help."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def refuse_beside(mode: str, *used: str) -> None:
    """Raise UsageError for what the current command was given beside the option `mode` and would
    ignore.

    mode: such as "--list".  used: the names of the parameters that count beside it.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in (*used, "debug") or mode in parameter.opts:
            continue
        source = context.get_parameter_source(name)
        if context.params.get(name) and source is ParameterSource.COMMANDLINE:
            what = "a NAME" if isinstance(parameter, click.Argument) else parameter.opts[-1]
            raise UsageError(f"{mode} does not use {what}; leave out one of them")


def read_results(
    context: click.Context, option: click.Parameter, named: Path | None
) -> Path:
    """The same for a command that only reads: a file of Records is accepted too, and if NAME is a
    plugin's FILE.py, the default is the file of Records beside it."""
    name = context.params.get("name") or ""
    if named is None and name.endswith(".py"):
        beside = records_beside(name)
        named = beside if beside.is_file() else None
    found = choose_results(context, option, named)
    if found.suffix != RECORDS_OF_RUN or not found.is_file():
        return found
    from hpml_plugins.store import unpack_records
    from hpml_plugins.temporary import temporary_folder

    folder: Path = context.with_resource(temporary_folder("hpml-records-"))
    unpack_records(found, folder, warn)
    return folder


def records_beside(name: str) -> Path:
    """The default file of `hpml run NAME --record`: beside FILE.py, else in this folder."""
    return Path(name).with_suffix(RECORDS_OF_RUN)


class Positive(click.FloatRange):
    """A positive number up to a maximum (default: the longest time, s); excludes NaN, which click
    accepts."""

    def __init__(self, most: float = LONGEST) -> None:
        super().__init__(0, most, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert the number; anything else ends the command with a usage error."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            return self.fail(f"{value!r} is not a number.", param, ctx)
        return found


def _show_tracebacks(context: click.Context, _: click.Parameter, debug: bool) -> None:
    if debug:
        context.obj = replace(context.obj, debug=True)


#: `hpml run NAME --debug` is the same as `hpml --debug run NAME`.
_DEBUG = click.Option(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    callback=_show_tracebacks,
    help="Show tracebacks.",
)


def _accept_debug(command: click.Command) -> None:
    """Add --debug to a command and to its subcommands."""
    if _DEBUG not in command.params:
        command.params.append(_DEBUG)
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        _accept_debug(below)


class LazyCommand(click.Command):
    """A command whose module is imported when it is called; `hpml --help` only needs its name and
    help.

    place: "module:attribute" of the click command.  help: the first sentence of its docstring.
    """

    def __init__(self, name: str, place: str, help: str) -> None:
        super().__init__(name, help=help)
        self._place = place

    def load(self) -> click.Command:
        """The command itself."""
        module, _, attribute = self._place.partition(":")
        gc.disable()  # imports allocate much and free little
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        finally:
            gc.freeze()  # and their objects need not be scanned again
            gc.enable()
        _accept_debug(command)
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """The context of the command itself, which click then invokes. Raises UsageError for an
        empty text: an unset variable of a shell would mean the default, or everything."""
        context = self.load().make_context(info_name, args, parent, **extra)
        for parameter in context.command.params:
            value = context.params.get(parameter.name or "")
            values = value if isinstance(value, tuple) else (value,)
            source = context.get_parameter_source(parameter.name or "")
            if "" in values and source is ParameterSource.COMMANDLINE:
                raise UsageError(f"{parameter.get_error_hint(context)} is empty")
        return context


def adds_commands(*commands: tuple[str, str, str]) -> Callable[[click.Group], None]:
    """The hook `hpml_commands` of a folder of tools.  commands: see `LazyCommand`."""
    from hpml_plugins.hookspecs import hookimpl

    @hookimpl
    def hpml_commands(cli: click.Group) -> None:
        for name, place, text in commands:
            cli.add_command(LazyCommand(name, place, text))

    return hpml_commands


class _CommandGroup(click.Group):
    """The commands of the core, and those of the tools, whose modules are imported when needed."""

    _has_tools = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help page."""
        self._add_tools()
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None if unknown, which click reports."""
        if cmd_name not in self.commands:
            self._add_tools()
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The name, the command and its arguments. Raises UsageError, with the nearest name, for an
        unknown command."""
        name = args[0]
        is_option = name.startswith("-")
        if not (is_option or ctx.resilient_parsing or self.get_command(ctx, name)):
            raise UsageError(f"no command {name!r}; {nearest(name, self.commands)}")
        return super().resolve_command(ctx, args)

    def _add_tools(self) -> None:
        """Import every folder of the tools, once, and have it add its commands."""
        if self._has_tools:
            return
        self._has_tools = True
        import pkgutil

        import pluggy

        from hpml_plugins import hookspecs

        manager = pluggy.PluginManager(hookspecs.PROJECT)
        manager.add_hookspecs(hookspecs)
        found = pkgutil.iter_modules(importlib.import_module(_TOOLS).__path__, f"{_TOOLS}.")
        # packages only, not shared modules
        folders = [each.name for each in found if each.ispkg]
        # the one registered last is called first
        for name in sorted(folders, reverse=True):
            manager.register(importlib.import_module(name), name)
        manager.hook.hpml_commands(cli=self)


@click.group(
    cls=_CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--registry",
    type=PATH,
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
    if context.invoked_subcommand is None:  # as uv does
        say(*context.get_help().splitlines(), error=True)
        context.exit(2)


for _name, (_place, _help) in _COMMANDS.items():
    group.add_command(LazyCommand(_name, _place, _help))


def show_findings(
    findings: Iterable[Finding], as_json: bool, facts: Mapping[str, object] | None = None
) -> Counter[str]:
    """Print findings as they arrive, or all as JSON, together with facts if there are any. Returns
    the count of each state."""
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


def status_of_findings(counts: Counter[str]) -> int:
    """The exit status: 1 if something is broken, 3 if something could not be judged."""
    return 1 if counts["broken"] else 3 if counts["not judged"] else 0


def print_json(value: object) -> None:
    """Print a value as formatted JSON."""
    import msgspec

    # a file name need not be UTF-8
    text = msgspec.json.encode(value, enc_hook=lambda path: printable(str(path)))
    say(*printable_json(msgspec.json.format(text).decode()).split("\n"))


def _explain(error: Exception) -> str:
    """Describe an error in one line: user errors unchanged, preceded by the file name if there is
    one."""
    found = unwritable(error) if isinstance(error, OSError) else error
    if isinstance(found, HpmlError):
        return str(found)
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        return str(
            HpmlError(error.strerror or describe(error), os.fsdecode(error.filename))
        )
    if isinstance(error, UnicodeEncodeError):
        return str(
            HpmlError(
                f"{error.object[error.start : error.end]!r} is not UTF-8; rename what is called so"
            )
        )
    return f"{describe(error)}; this is a bug in hpml-plugins; hpml --debug shows the traceback"


def _end_cleanly(number: int, _: object) -> NoReturn:
    """End this process as an exception does, so that temporary folders are removed and started
    programs ended."""
    signal.signal(number, signal.SIG_IGN)  # a second signal would interrupt that
    raise SystemExit(128 + number)


def main() -> NoReturn:
    """Run the command. An error prints one line on stderr and gives exit status 2; `--debug` shows
    its traceback."""
    # `hpml list >&-`: the shell has closed the stream
    sys.stdout, sys.stderr = sys.stdout or io.StringIO(), sys.stderr or io.StringIO()
    escape_unencodable()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _end_cleanly)
    debug = "--debug" in sys.argv  # asv's commands replace sys.argv
    try:
        status = group.main(standalone_mode=False, prog_name="hpml")
    except click.ClickException as error:
        command = getattr(error, "ctx", None) or click.Context(group, info_name="hpml")
        warn(
            f"{one_line(error.format_message()).rstrip('.')}; see {command.command_path} --help"
        )
        status = 2
    except (click.Abort, KeyboardInterrupt):
        warn("interrupted")
        status = 130
    except SystemExit as ended:  # `_end_cleanly`, or asv
        status = ended.code
        if isinstance(status, str):
            warn(one_line(status))
            status = 2
    except Exception as error:
        if debug:
            say(*"".join(traceback.format_exception(error)).splitlines(), error=True)
        warn(_explain(error))
        status = 2
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stdout = sys.stderr  # output of plugins at exit is not part of the result
    _end(status if isinstance(status, int) else 0)


def _end(status: int) -> NoReturn:
    """End this process. Python would wait for other threads, and those that a plugin starts at its
    import, or asv's for a process that is not ended, may never end."""
    if any(
        not each.daemon
        for each in threading.enumerate()
        if each is not threading.main_thread()
    ):
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
