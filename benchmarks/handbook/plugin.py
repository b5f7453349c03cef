"""The documentation as part of the published site: `docs/` of the site, built by mkdocs, and a page
that lists it."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_plugins import HpmlError, SitePage, hookimpl

if TYPE_CHECKING:
    from hpml_plugins.report import ShownFigure, Site

HERE = Path(__file__).parent
#: A paragraph that stands for a figure: its title, and the command that draws it.
_CHART = re.compile(r"<p>Chart: (.*?) \(<code>hpml plot (.*?)</code>\)</p>")
#: A drawn chart, and the paragraph that it stands for.
_DRAWN = re.compile(
    r'<figure style="overflow-x: auto">.*?</figure><!--(<p>Chart: .*?</p>)-->', re.DOTALL
)
_TEMPLATE = """{% extends "base.html" %}
{% block title %}Documentation{% endblock %}
{% block header %}<h1>Documentation</h1>{% endblock %}
{% block main %}
<ul>
{% for title, address in documents %}
  <li><a href="{{ address }}">{{ title }}</a></li>
{% endfor %}
</ul>
{% endblock %}
"""


def build(folder: Path) -> None:
    """Build the documentation into a folder. Raises HpmlError for a link that leads nowhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    done = subprocess.run(
        [*command, "--config-file", HERE / "mkdocs.yml", "--site-dir", folder.resolve()],
        env={
            **os.environ,
            "NO_MKDOCS_2_WARNING": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise HpmlError(f"the documentation: {' '.join(done.stderr.split())[-1000:]}")


def draw(folder: Path, figures: Iterable[ShownFigure]) -> None:
    """Put the charts of the published site where built documents name them, also in the place of
    those that were drawn there before."""
    drawn = {each.anchor: each for each in figures if each.chart}

    def chart(named: re.Match[str]) -> str:
        title, name = named.groups()
        if name not in drawn:
            return named[0]
        address = html.escape(f"../{drawn[name].address}")
        caption = f'<figcaption><a href="{address}">{title}</a></figcaption>'
        width, height = drawn[name].size
        picture = html.escape(f"../{drawn[name].picture}")
        embedded = f'<object type="image/svg+xml" data="{picture}" aria-hidden="true"'
        sized = f'{embedded} width="{width}" height="{height}"></object>'
        figure = f'<figure style="overflow-x: auto">{sized}{caption}</figure>'
        return f"{figure}<!--{named[0]}-->"

    for page in folder.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        if (new := _CHART.sub(chart, _DRAWN.sub(r"\1", text))) != text:
            page.unlink()
            page.write_text(new, encoding="utf-8")


def sections(folder: Path) -> Iterator[tuple[str, str]]:
    """The titles of built documents and of their sections, each with its address below the
    folder."""
    index = json.loads(
        (folder / "search" / "search_index.json").read_text(encoding="utf-8")
    )
    for each in index["docs"]:
        yield each["title"].replace("&amp;", "&"), each["location"]


def write(site: Site) -> Iterator[tuple[str, str, str, str]]:
    """Write the page and docs/; yields what a search of the site finds there."""
    folder = site.make_folder("docs", build, [HERE, HERE.parent.parent / "docs"])
    draw(folder, (figure for page in site.plugins for figure in page.figures))
    found = list(sections(folder))
    documents = [(title, f"docs/{place}") for title, place in found if "#" not in place]
    site.write(_TEMPLATE, "documentation.html", documents=documents)
    for title, place in found:
        yield "document", title, "documentation", f"docs/{place}"


@hookimpl
def hpml_pages() -> Iterable[SitePage]:
    """The documentation, where mkdocs is installed (the extra `docs`)."""
    if importlib.util.find_spec("mkdocs") is None:
        return []
    about = "tutorial, how-to, reference, explanation"
    return [SitePage("Documentation", about, "documentation.html", write)]
