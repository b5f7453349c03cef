"""SitePage: a page that a plugin adds to the published site."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hpml_plugins.errors import DefinitionError
from hpml_plugins.model.checking import check_fields

#: A link to a Record: (text, address, title).
Link = tuple[str, str, str]
#: A search entry: (kind, title, more words, address).
SearchEntry = tuple[str, str, str, str]


@dataclass(frozen=True)
class SitePage:
    """A page of the published site, with an entry in its navigation.

    label, about: of the entry; the search finds it by the words of both.  address: `NAME.html`.
    write: called with the site (`report.Site`) when the plugins' pages are written; writes this
    page and its subpages, and returns their search entries.  trace: called with each figure and its
    table (`report.Drawable`) in the process in which its plugin draws; its result, plain data,
    becomes the figure's `traced`.  row_links: called with a figure; returns for each row the links
    to the Records on which it is based, which are shown beside the row. Raises DefinitionError for
    a value of another type.
    """

    label: str
    about: str
    address: str
    write: Callable[[Any], Iterable[SearchEntry]]
    trace: Callable[[Any], Any] | None = None
    row_links: Callable[[Any], Sequence[Sequence[Link]]] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "page", self.label)
        if not re.fullmatch(r"\w[\w-]*\.html", self.address):
            raise DefinitionError(
                f"page {self.label!r}: address {self.address!r} is not NAME.html"
            )
