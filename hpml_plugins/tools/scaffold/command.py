"""`hpml new`: writes a working plugin to start from."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import click

from hpml_plugins.asv import plugins_folder
from hpml_plugins.cli import PATH, Settings
from hpml_plugins.errors import RegistryError, UsageError
from hpml_plugins.host import make_host
from hpml_plugins.registry import read_registry
from hpml_plugins.store import atomic_write
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import say
from hpml_plugins.tools.templates import fill_template
from hpml_plugins.version import __version__

_PACKAGE = {
    "pyproject.toml": "pyproject.toml.jinja",
    "README.md": "README.md.jinja",
    "hpml_{name}/__init__.py": "benchmark.py.jinja",
    "tests/test_{name}.py": "test.py.jinja",
}


def write_plugin(name: str, folder: Path, *, single_file: bool) -> Path:
    """Write the plugin into a folder; returns its file or its package's folder. It measures with
    torch if that is installed, else with NumPy.

    Raises UsageError for an invalid plugin name, and if a file is in the way: nothing is
    overwritten.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UsageError(
            f"{name!r} cannot name a plugin; use lower-case letters, digits and _, such as"
            " 'row_sum'"
        )
    target = folder / (f"{name}.py" if single_file else f"hpml-{name.replace('_', '-')}")
    if target.exists():
        raise UsageError(f"{target} already exists; remove it or choose another name")
    files = {"": "benchmark.py.jinja"} if single_file else _PACKAGE
    values = {"name": name, "hpml_version": __version__, "torch": bool(find_spec("torch"))}
    for place, template in files.items():
        file = target / place.format(name=name) if place else target
        file.parent.mkdir(parents=True, exist_ok=True)
        text = fill_template("scaffold", template, **values)
        file.write_text(text, encoding="utf-8")
    return target


def refuse_taken(name: str, registry: Path, *, single_file: bool) -> None:
    """Raise UsageError if a plugin or benchmark of the registry, or an installed package, already
    has this name."""
    if not single_file and name.isidentifier() and find_spec(f"hpml_{name}"):
        raise UsageError(f"a package hpml_{name} is installed already; choose another name")
    if not registry.is_file():
        return
    read = read_registry(registry)
    for entry in read.plugins:
        if entry.name == name:
            where = read.at(name)
            raise UsageError(
                f"the plugin {name!r} is there already; choose another name", where
            )
    for benchmark in make_host(read).benchmarks():
        if benchmark.name == name:
            raise UsageError(
                f"the plugin {benchmark.plugin.name!r} has a benchmark {name!r} already; choose"
                " another name"
            )


def register(registry: Path, line: str) -> None:
    """Append an entry to the registry, as text: comments and layout are kept. Raises RegistryError
    if the result is invalid.

    The file is replaced atomically once the result is known to be valid; the error names the line
    to write by hand.
    """
    read_registry(registry)
    empty = re.sub(
        r"(?m)^plugins: *\[ *\] *$", "plugins:", registry.read_text(encoding="utf-8")
    )
    text = f"{empty.rstrip()}\n\n  {line}\n"
    try:
        with temporary_folder("hpml-new-") as scratch:
            tried = scratch / registry.name
            tried.write_text(text, encoding="utf-8")
            read_registry(tried)
        atomic_write(registry.resolve(), text.encode())
    except RegistryError as error:
        raise RegistryError(
            f"cannot be appended to ({error.what}); write it there by hand: {line}",
            str(registry),
        ) from None


@click.command("new")
@click.argument("name")
@click.option("--single-file", is_flag=True, help="One file instead of a package.")
@click.option(
    "--to",
    "folder",
    type=PATH,
    help="Where to write it.  [default: a file beside the asv benchmarks, a package here]",
)
@click.option(
    "--register", "registering", is_flag=True, help="Add its line to the registry."
)
@click.pass_obj
def command(
    settings: Settings, name: str, single_file: bool, folder: Path | None, registering: bool
) -> int:
    """Write a working plugin NAME to start from.

    It is a package with an entry point, a test and a README, or a single file. It measures with
    torch if that is installed, else with NumPy. An existing name is refused.
    """
    project = settings.registry.parent
    if registering:
        read_registry(settings.registry)  # before anything is written
    refuse_taken(name, settings.registry, single_file=single_file)
    if folder is None:
        folder = plugins_folder(project) if single_file else Path()
    written = write_plugin(name, folder, single_file=single_file)
    source = os.path.relpath(written, project)
    if single_file:
        line = f"- {{name: {name}, path: {source}}}"
    else:
        line = f"- {{name: {name}, entry_point: {name}}}"
    say(f"wrote {written}")
    if registering:
        register(settings.registry, line)
    if not single_file:
        say(f"install it:  pip install --no-deps --no-build-isolation -e {written}")
    if registering:
        say(f"added to {settings.registry}:  {line}")
        say(
            f"then:  hpml check {name};  hpml run {name};  asv run --bench {name};  asv publish"
        )
        return 0
    if single_file:
        say(f"measure it now:  hpml run {written}")
    if settings.registry.is_file():
        say(f"for asv run, add to {settings.registry}:  {line}")
    else:
        say("asv run needs a project: hpml init in a git repository makes one")
    return 0
