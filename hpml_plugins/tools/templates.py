"""Texts that the tools write from templates beside them."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def fill_template(tool: str, template: str, **values: object) -> str:
    """A template of a tool's folder, ended by one line break.  Raises UndefinedError for a name
    that has no value."""
    folder = PackageLoader("hpml_plugins", f"tools/{tool}")
    environment = Environment(loader=folder, undefined=StrictUndefined)
    return environment.get_template(template).render(**values).rstrip("\n") + "\n"
