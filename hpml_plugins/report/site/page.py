"""Pages from templates. Whatever a benchmark, machine or parameter is called is shown as text."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hpml_plugins.report.site.matrix import Matrix
from hpml_plugins.report.site.policy import OURS
from hpml_plugins.report.site.vendor import static

PAGE = "gpus.html"


def write_page(matrix: Matrix, html_dir: Path, project: str, published: datetime.datetime) -> Path:
    """Write `gpus.html` of a matrix, and what it loads, into the published folder; returns its path."""
    write_static(html_dir, "site.css", "gpus.js")
    page = html_dir / PAGE
    page.write_text(render(matrix, project, published), encoding="utf-8")
    return page


def write_static(html_dir: Path, *names: str) -> None:
    """Put files of our own `static/` folder into the published one."""
    for name in names:
        (html_dir / name).write_bytes(static(name))


def render(matrix: Matrix, project: str, published: datetime.datetime) -> str:
    """The page of GPU types as text."""
    return fill(PAGE, matrix=matrix, project=project, published=published)


def fill(template: str, *, here: str = "", policy: str = OURS, **values: Any) -> str:
    """A template filled in.  here: the page's own address, for the navigation.  policy: what the page may load."""
    return _templates().get_template(template).render(here=here or template, policy=Markup(policy), **values)


@functools.cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("hpml_plugins.report.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
