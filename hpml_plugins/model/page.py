"""Page: a page of a plugin's own, made from its Records."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpml_plugins.errors import DefinitionError

if TYPE_CHECKING:
    from hpml_plugins.model.record import Record


@dataclass(frozen=True)
class Page:
    """A page beside the plugin's own, which links to it.

    name: lower-case letters, digits and `_`; unique in its plugin.  benchmarks: whose Records are handed over: on each
    machine the newest measured one of every point.  body: called with them; returns what stands below the title, as
    HTML, with whatever is not the plugin's own text escaped. It may load nothing from another host.
    """

    name: str
    title: str
    benchmarks: tuple[str, ...]
    body: Callable[[Sequence[Record]], str]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise DefinitionError(f"page name {self.name!r} must be lower-case letters, digits and _")
