"""Writes `gpus.html` and the two files it loads."""

from __future__ import annotations

import datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from hpml_plugins.site.matrix import Matrix
from hpml_plugins.site.vendor import static

PAGE = "gpus.html"
FILES = ("gpus.css", "gpus.js")


def write_page(matrix: Matrix, html_dir: Path, project: str, published: datetime.datetime) -> Path:
    """Write the page of a matrix into the published folder; returns its path."""
    for name in FILES:
        (html_dir / name).write_bytes(static(name))
    page = html_dir / PAGE
    page.write_text(render(matrix, project, published), encoding="utf-8")
    return page


def render(matrix: Matrix, project: str, published: datetime.datetime) -> str:
    """The page as text. Whatever a benchmark, machine or parameter is called is shown as text."""
    pages = Environment(
        loader=PackageLoader("hpml_plugins.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template(PAGE).render(matrix=matrix, project=project, published=published)
