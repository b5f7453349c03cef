"""Pages that plugins make themselves (`hpml_pages`): put into our frame, kept from running or loading anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from hpml_plugins.errors import PluginError, describe
from hpml_plugins.host import LoadedPlugin
from hpml_plugins.host.offers import items
from hpml_plugins.model.page import Page
from hpml_plugins.model.record import Record
from hpml_plugins.report.site.active import active
from hpml_plugins.report.site.loads import loads, style_addresses
from hpml_plugins.report.site.page import fill
from hpml_plugins.report.site.policy import PLUGINS


def write_own_pages(
    plugin: LoadedPlugin, records: Sequence[Record], html_dir: Path, project: str
) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Write the plugin's pages; (title, address) of each that was written, and what went wrong, one line each."""
    written: dict[str, tuple[str, str]] = {}
    problems: list[str] = []
    name = plugin.entry.name
    try:
        pages = list(items(plugin, "hpml_pages"))
    except Exception as error:
        return (), [str(PluginError(f"hpml_pages of plugin {name!r}: {describe(error)}", plugin.where))]
    for page in pages:
        try:
            if not isinstance(page, Page):
                raise PluginError(f"returned {type(page).__name__}, not Pages")
            if page.name in written:
                raise PluginError(f"two pages called {page.name!r}; the first stands")
            address = f"plugin-{name}-{page.name}.html"
            body = page.body([record for record in records if record.benchmark in page.benchmarks])
            _check_local(page, body)
            text = fill(
                "own.html", here=address, policy=PLUGINS, page=page, plugin=name, body=Markup(body), project=project
            )
            (html_dir / address).write_text(text, encoding="utf-8")
            written[page.name] = (page.title, address)
        except Exception as error:
            problems.append(str(PluginError(f"hpml_pages of plugin {name!r}: {describe(error)}", plugin.where)))
    return tuple(written.values()), problems


def _check_local(page: Page, body: str) -> None:
    remote = [load.address for load in loads(body) if load.remote] + list(style_addresses(body))
    if remote:
        raise PluginError(f"page {page.name!r} would load {remote[0]} from the network; left out")
    if runs := active(body, frames_too=True):
        raise PluginError(f"page {page.name!r} has {runs[0]}; pages run nothing, left out")
