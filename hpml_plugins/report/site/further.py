"""Pages that plugins add to ours by the hook `hpml_pages`. One that raises loses its own page
only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, describe, explain
from hpml_plugins.host import Host
from hpml_plugins.host.loading import restored
from hpml_plugins.model.site_page import SearchEntry, SitePage
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.page import fill_text
from hpml_plugins.report.site.plugin_pages import PluginPage
from hpml_plugins.report.site.unchanged import digest_folders, take_over_folder

#: What stands in the place of a page that could not be written: all pages lead there.
_FAILED = """{% extends "base.html" %}
{% block title %}{{ title }}{% endblock %}
{% block header %}<h1>{{ title }}</h1>{% endblock %}
{% block main %}<p class="problem">{{ what }}</p>{% endblock %}"""


@dataclass(frozen=True)
class Site:
    """The site that is being published, as `SitePage.write` gets it.

    plugins: the pages of the plugins, with their figures.  problems: gets a line for each thing
    that went wrong.  folders: those of `make_folder` → a digest of what each was made of.
    written: addresses of pages.
    """

    history: History
    plugins: Sequence[PluginPage]
    html_dir: Path
    project: str
    problems: list[str]
    folders: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    def fill(self, template: str, address: str, **values: Any) -> str:
        """A Jinja template filled in: its text, which may extend `base.html`.

        address: of the page, whose entry in the navigation is marked.
        """
        return fill_text(template, address, project=self.project, **values)

    def write(self, template: str, address: str, **values: Any) -> None:
        """Write a page: `fill` into a file."""
        text = self.fill(template, address, **values)
        (self.html_dir / address).write_text(text, encoding="utf-8")
        self.written.append(address)

    def make_folder(
        self, address: str, make: Callable[[Path], None], made_of: Iterable[Path]
    ) -> Path:
        """Make a folder of the site, unless the site that is replaced has it, made of the same:
        its files are then taken over.

        make: writes the folder.  made_of: folders with all that it reads, beside this package and
        what is installed. A file that is changed afterwards has to be replaced, not written to: it
        may be one of the site that is replaced.
        """
        folder, digest = self.html_dir / address, digest_folders(made_of)
        if not take_over_folder(address, digest, self.html_dir):
            make(folder)
        self.folders[address] = digest
        return folder


def collect_pages(host: Host, problems: list[str]) -> list[SitePage]:
    """The pages that plugins add, in the registry's order. Those plugins, and no others, are
    imported into this process.

    problems: gets a line for each plugin that raises, or offers what is no SitePage.
    """
    found: list[SitePage] = []
    for name in host.offers.pages:
        with restored():
            plugin = host.load(name)
        try:
            found += plugin.offered("hpml_pages", SitePage)
        except Exception as error:
            what, where = explain(error)
            what = f"hpml_pages of plugin {name!r}: {what}"
            problems.append(str(HpmlError(what, where or plugin.where)))
    return found


def write_pages(pages: Iterable[SitePage], site: Site) -> Iterator[SearchEntry]:
    """Write them; yields what a search finds on them."""
    for page in pages:
        try:
            yield from page.write(site)
        except Exception as error:
            what = f"page {page.address} of a plugin: {describe(error)}"
            site.problems.append(what)
            site.write(_FAILED, page.address, title=page.label, what=what)
