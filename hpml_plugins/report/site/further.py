"""Pages that plugins add to ours by the hook `hpml_pages`. One that raises loses its own page
only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, describe, explain
from hpml_plugins.host import LoadedPlugin
from hpml_plugins.model.site_page import SearchEntry, SitePage
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.page import fill_text
from hpml_plugins.report.site.plugin_pages import PluginPage


@dataclass(frozen=True)
class Site:
    """The site that is being published, as `SitePage.write` gets it.

    plugins: the pages of the plugins, with their figures.  problems: gets a line for each thing
    that went wrong.
    """

    history: History
    plugins: Sequence[PluginPage]
    html_dir: Path
    project: str
    problems: list[str]

    def fill(self, template: str, address: str, **values: Any) -> str:
        """A Jinja template filled in: its text, which may extend `base.html`.

        address: of the page, whose entry in the navigation is marked.
        """
        return fill_text(template, address, project=self.project, **values)

    def write(self, template: str, address: str, **values: Any) -> None:
        """Write a page: `fill` into a file."""
        text = self.fill(template, address, **values)
        (self.html_dir / address).write_text(text, encoding="utf-8")


def collect_pages(plugins: Iterable[LoadedPlugin], problems: list[str]) -> list[SitePage]:
    """The pages that these plugins add, in the registry's order.

    problems: gets a line for each plugin that raises, or offers what is no SitePage.
    """
    found: list[SitePage] = []
    for plugin in plugins:
        try:
            found += plugin.offered("hpml_pages", SitePage)
        except Exception as error:
            what, where = explain(error)
            what = f"hpml_pages of plugin {plugin.entry.name!r}: {what}"
            problems.append(str(HpmlError(what, where or plugin.where)))
    return found


def write_pages(pages: Iterable[SitePage], site: Site) -> Iterator[SearchEntry]:
    """Write them; yields what a search finds on them."""
    for page in pages:
        try:
            yield from page.write(site)
        except Exception as error:
            site.problems.append(f"page {page.address} of a plugin: {describe(error)}")
