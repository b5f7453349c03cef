"""SitePage: a page that a plugin adds to the published site."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hpml_plugins.model.checking import check_fields

#: What leads to a Record: (text, address, title).
Link = tuple[str, str, str]
#: What a search finds: (kind, title, more words, address).
SearchEntry = tuple[str, str, str, str]


@dataclass(frozen=True)
class SitePage:
    """A page of the published site, with an entry in its navigation.

    label, about: of the entry, which a search finds by the words of both.  address: `NAME.html`.
    write: called with the site (`report.Site`) when the pages of the plugins are written; writes
    this page and those that it leads to, and returns what a search finds on them.
    trace: called with each figure and its table (`report.Drawable`), in the process that its plugin
    draws in; what it returns, plain data, is the figure's `traced` from then on.
    row_links: called with a figure; returns for each row what leads to the Records that it rests
    on, which is shown beside the row. Raises DefinitionError for a value of another type.
    """

    label: str
    about: str
    address: str
    write: Callable[[Any], Iterable[SearchEntry]]
    trace: Callable[[Any], Any] | None = None
    row_links: Callable[[Any], Sequence[Sequence[Link]]] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "page", self.label)
