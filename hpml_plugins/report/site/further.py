"""Pages that plugins add with the hook `hpml_pages`. If one raises, only its own page is lost."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, describe, explain
from hpml_plugins.host import Host
from hpml_plugins.host.loading import restored
from hpml_plugins.model.site_page import SearchEntry, SitePage
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.page import SiteFolder, fill_text
from hpml_plugins.report.site.plugin_pages import PluginPage
from hpml_plugins.report.site.unchanged import digest_part

#: Replaces a page that could not be written, because all pages link to it.
_FAILED = """{% extends "base.html" %}
{% block title %}{{ title }}{% endblock %}
{% block header %}<h1>{{ title }}</h1>{% endblock %}
{% block main %}<p class="problem">{{ what }}</p>{% endblock %}"""


@dataclass(frozen=True)
class Site(SiteFolder):
    """The site that is being published, as passed to `SitePage.write`.

    plugins: the pages of the plugins, with their figures.  problems: receives a line for each
    problem.  written: addresses of pages.
    """

    history: History = field(kw_only=True)
    plugins: Sequence[PluginPage] = field(kw_only=True)
    problems: list[str] = field(kw_only=True)
    written: list[str] = field(default_factory=list)

    def fill(self, template: str, address: str, **values: Any) -> str:
        """Render a Jinja template given as text, which may extend `base.html`.

        address: of the page, whose entry in the navigation is highlighted.
        """
        return fill_text(template, address, project=self.project, **values)

    def write(self, template: str, address: str, **values: Any) -> None:
        """Render a page with `fill` and write it to a file."""
        text = self.fill(template, address, **values)
        (self.html_dir / address).write_text(text, encoding="utf-8")
        self.written.append(address)

    def make_folder(
        self, address: str, make: Callable[[Path], None], made_of: Iterable[Path]
    ) -> Path:
        """Create a folder of the site, or take over its files from the replaced site if that was
        made from the same inputs.

        make: writes the folder.  made_of: folders with all its inputs, besides this package and
        installed packages. To change a file afterwards, replace it instead of writing to it: it may
        belong to the replaced site.
        """
        folder = self.html_dir / address
        if not self.takes_over(address, digest_part(folders=made_of)):
            make(folder)
        return folder


def collect_pages(host: Host, problems: list[str]) -> list[SitePage]:
    """The pages that plugins add, in the registry's order. Only these plugins are imported into
    this process.

    problems: receives a line for each plugin that raises, or returns something other than a
    SitePage.
    """
    found: list[SitePage] = []
    for name in host.offers.pages:
        with restored():
            plugin = host.load(name)
        try:
            found += plugin.offered("hpml_pages", SitePage)
        except (Exception, SystemExit) as error:
            what, where = explain(error)
            what = f"hpml_pages of plugin {name!r}: {what}"
            problems.append(str(HpmlError(what, where or plugin.where)))
    return found


def write_pages(
    pages: Iterable[SitePage], site: Site, reserved: Container[str]
) -> Iterator[SearchEntry]:
    """Write the pages; yields their search entries. reserved: addresses of the site's own pages."""
    for page in pages:
        if page.address in reserved or (site.html_dir / page.address).exists():
            site.problems.append(
                f"page {page.address} of a plugin: the site has one of that name; rename it"
            )
            continue
        try:
            yield from page.write(site)
        except (Exception, SystemExit) as error:
            what = f"page {page.address} of a plugin: {describe(error)}"
            site.problems.append(what)
            site.write(_FAILED, page.address, title=page.label, what=what)
