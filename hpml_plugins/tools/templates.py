"""Renders the tools' templates, which are in the tools' folders."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from hpml_plugins.terminal import printable


def fill_template(tool: str, template: str, **values: object) -> str:
    """Render a template of a tool's folder, ending in one line break; texts in HTML and SVG are
    escaped. Raises UndefinedError for a name that has no value."""
    environment = Environment(
        loader=PackageLoader("hpml_plugins", f"tools/{tool}"),
        undefined=StrictUndefined,
        autoescape=select_autoescape(("html.jinja", "svg.jinja")),
    )
    environment.filters["printable"] = printable
    return environment.get_template(template).render(**values).rstrip("\n") + "\n"
