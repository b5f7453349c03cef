"""`hpml new`: writes a working plugin to start from."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import click
from jinja2 import Environment, PackageLoader, StrictUndefined

from hpml_plugins import __version__
from hpml_plugins.cli import Settings
from hpml_plugins.errors import RegistryError, UsageError
from hpml_plugins.registry import read_registry
from hpml_plugins.store import atomic_write
from hpml_plugins.terminal import say

_PACKAGE = {
    "pyproject.toml": "pyproject.toml.jinja",
    "README.md": "README.md.jinja",
    "hpml_{name}/__init__.py": "benchmark.py.jinja",
    "tests/test_{name}.py": "test.py.jinja",
}


def write_plugin(name: str, folder: Path, *, single_file: bool) -> Path:
    """Write the plugin into a folder; returns its file or its package's folder.

    Raises UsageError for a name that no plugin can have, and where something is in the way: nothing
    is overwritten.
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
    templates = Environment(
        loader=PackageLoader("hpml_plugins", "tools/scaffold"), undefined=StrictUndefined
    )
    for place, template in files.items():
        file = target / place.format(name=name) if place else target
        file.parent.mkdir(parents=True, exist_ok=True)
        text = templates.get_template(template).render(name=name, hpml_version=__version__)
        file.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    return target


def register(registry: Path, line: str) -> None:
    """Append an entry to the registry, as text: comments and layout stay. Raises RegistryError
    where that is no entry.

    The file is replaced in one step once the result is known to be valid; the error says which line
    to write by hand.
    """
    read_registry(registry)
    empty = re.sub(r"(?m)^plugins: *\[ *\] *$", "plugins:", registry.read_text(encoding="utf-8"))
    text = f"{empty.rstrip()}\n\n  {line}\n"
    try:
        with tempfile.TemporaryDirectory(prefix="hpml-new-") as scratch:
            tried = Path(scratch, registry.name)
            tried.write_text(text, encoding="utf-8")
            read_registry(tried)
        atomic_write(registry.resolve(), text.encode())
    except RegistryError as error:
        raise RegistryError(
            f"cannot be appended to ({error.what}); write it there by hand: {line}", str(registry)
        ) from None


@click.command("new")
@click.argument("name")
@click.option("--single-file", is_flag=True, help="One file instead of a package.")
@click.option(
    "--to", "folder", type=click.Path(path_type=Path), default=Path(), help="Where to write it."
)
@click.option("--register", "registering", is_flag=True, help="Add its line to the registry.")
@click.pass_obj
def command(
    settings: Settings, name: str, single_file: bool, folder: Path, registering: bool
) -> int:
    """Write a working plugin NAME to start from.

    It is a package with an entry point, a test and a README, or a single file.
    """
    written = write_plugin(name, folder, single_file=single_file)
    source = os.path.relpath(written, settings.registry.parent)
    line = (
        f"- {{name: {name}, path: {source}}}"
        if single_file
        else f"- {{name: {name}, entry_point: {name}}}"
    )
    say(f"wrote {written}")
    if registering:
        register(settings.registry, line)
    say(f"{'is' if registering else 'add'} in {settings.registry}:  {line}")
    if not single_file:
        say(f"install it:  pip install --no-deps --no-build-isolation -e {written}")
    say(f"then:  hpml check {name};  hpml run {name};  asv run --bench {name};  asv publish")
    return 0
