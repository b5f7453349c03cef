"""What all pages share: templates, the content security policy, addresses. Names of any origin are
shown as text."""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import re
import shlex
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from hpml_plugins.model.formatting import (
    estimate,
    format_choice,
    quantity,
    shown_unit,
    times,
)
from hpml_plugins.model.validation import hide_homes
from hpml_plugins.published import PRECISION_SYNONYMS
from hpml_plugins.report.reading import TrackedBenchmark
from hpml_plugins.report.site.reported import reported
from hpml_plugins.report.site.svg import marker
from hpml_plugins.report.site.unchanged import take_over_made
from hpml_plugins.report.tables import formatted, numeric
from hpml_plugins.store.declarations import asv_name, value_of
from hpml_plugins.terminal import escape_direction

#: The content security policy: scripts are files of the site, and nothing is loaded from
#: elsewhere. It is part of each page, so that it works on any web server. It is a second line of
#: defence after escaping text.
POLICY = (
    "default-src 'none'; script-src 'self'; base-uri 'none'; form-action 'self'; "
    "img-src 'self'"
)
#: The policy of our own pages.
OURS = f"{POLICY}; style-src 'self'; object-src 'self'; frame-src 'self'"

#: B from which data of a script are deflated.
LEAST_PACKED = 4096
#: Number of cached day texts: each Record's day is used in many places.
_KNOWN = 1 << 16
#: zlib level: 9 takes three times as long as 3, and makes the data of points a fifth smaller.
_LEVEL = 9

#: Word → another spelling of it, for every search and filter.
SYNONYMS = {
    **PRECISION_SYNONYMS,
    "gemm": "matmul",
    "allreduce": "all-reduce",
    "joule": "energy",
    "joules": "energy",
    "speed": "rate",
    "throughput": "rate",
    "latency": "time",
    "int4": "4-bit",
}

#: (label, search words, address)
NavigationEntry = tuple[str, str, str]
#: Our pages, in the order of the navigation.
PAGES: tuple[NavigationEntry, ...] = (
    ("Compare", "first page: which GPU for what, how close to its limit", "index.html"),
    (
        "Changes",
        "what got worse or better: regressions, improvements, by code or by circumstances",
        "changes.html",
    ),
    (
        "Workloads",
        "every benchmark: values, history, cards, Records, charts of plugins",
        "workloads.html",
    ),
    (
        "Evidence",
        "machines, nodes, cards, coverage, skipped, failed, error rates",
        "evidence.html",
    ),
)
#: The entries of pages that plugins add.
_FURTHER: ContextVar[Sequence[NavigationEntry]] = ContextVar("pages of plugins", default=())


def navigation() -> list[NavigationEntry]:
    """The entries of all pages, those of plugins last."""
    return [*PAGES, *_FURTHER.get()]


@contextmanager
def add_to_navigation(entries: Sequence[NavigationEntry]) -> Iterator[None]:
    """Add these entries to the navigation of pages written in this block."""
    token = _FURTHER.set(entries)
    try:
        yield
    finally:
        _FURTHER.reset(token)


@dataclass(frozen=True)
class SiteFolder:
    """The folder into which a site is published.  project: its name.  commit_url: see
    `commit_links`.  made: the address of each file and folder that the next publish may take over →
    a digest of all its inputs."""

    html_dir: Path
    project: str
    commit_url: str = ""
    made: dict[str, str] = field(default_factory=dict)

    def takes_over(self, address: str, digest: str) -> bool:
        """Take over a file or a folder from the replaced site if it was made of the same inputs;
        returns whether it was. Otherwise the caller makes it.

        digest: see `digest_part`; empty if the inputs have none.
        """
        self.made[address] = digest
        return take_over_made(address, digest, self.html_dir)

    def write_page(self, template: str, address: str = "", **values: Any) -> None:
        """Write a page.  address: by default that of the template's name."""
        text = fill(template, project=self.project, **values)
        (self.html_dir / (address or template)).write_text(text, encoding="utf-8")

    def write_data(self, address: str, value: Any) -> None:
        """Write data for a page's script, read by `hpml.read(address)` of `data.js`; deflated if
        that saves much."""
        path = self.html_dir / address
        path.parent.mkdir(parents=True, exist_ok=True)
        data = escape_direction(hide_homes(msgspec.json.encode(value).decode())).encode()
        call = b"hpml.put(%b,%b)"
        if len(data) > LEAST_PACKED:
            packer = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
            packed = base64.b64encode(packer.compress(data) + packer.flush())
            call = b"hpml.unpack(%b,%b)"
            data = b'"%b"' % packed
        path.write_bytes(call % (msgspec.json.encode(address), data))


def fill(template: str, **values: Any) -> str:
    """Render a template, without home folders and characters that change the direction of text."""
    filled = _template(template).render(here=template, **values)
    return escape_direction(hide_homes(filled))


def fill_text(template: str, here: str, **values: Any) -> str:
    """Render a template given as text, which may extend ours.  here: the address of the page."""
    return escape_direction(_templates().from_string(template).render(here=here, **values))


def _as_code(text: str) -> Markup:
    """Text of which what stands between backticks is code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


@functools.cache  # Jinja's own lookup is a sixteenth of the time of rendering
def _template(name: str) -> Template:
    return _templates().get_template(name)


@functools.cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("hpml_plugins.report.site"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,  # otherwise each template and macro is looked up at each use
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (
        asv_name,
        day,
        estimate,
        formatted,
        graph_link,
        point_link,
        quantity,
        quote_fragment,
        navigation,
        numeric,
        reported,
        shown_unit,
        times,
    )
    made.filters["as_code"] = _as_code
    made.filters["px"] = "{:g}".format
    made.globals |= {
        "marker": marker,
        "policy": Markup(OURS),
        "synonyms": SYNONYMS,
        **{each.__name__: each for each in functions},
    }
    return made


def graph_link(name: str, selection: Mapping[str, str]) -> str:
    """The address of asv's own graph. selection: asv's parameters, and `p-NAME` for a benchmark's
    own."""
    chosen = "&".join(
        f"{_quoted(key)}={_quoted(value)}" for key, value in selection.items()
    )
    return f"asv.html#{_quoted(name)}" + (f"?{chosen}" if chosen else "")


def workload_address(benchmark: str) -> str:
    """The page of a benchmark. A name that is not a plain file name gets a digest, so that pages
    are distinct."""
    plain = re.sub(r"[^a-z0-9_]+", "-", benchmark.lower()).strip("-")[:60]
    digest = hashlib.sha256(benchmark.encode("utf-8", "replace")).hexdigest()[:8]
    if plain == benchmark:
        return f"workload-{plain}.html"
    return f"workload-{plain}-{digest}.html"


def point_anchor(metric: str, point: str, regime: str = "") -> str:
    """The id of a point's row on its page: `bandwidth?mebibytes=4096&memory=pinned`.  regime: as
    in a TaskRow."""
    anchor = metric + ("?" + point.replace(", ", "&") if point else "")
    return f"{anchor}&regime=boost" if regime == "boost" else anchor


def point_link(benchmark: str, metric: str = "", point: str = "", regime: str = "") -> str:
    """The address of a benchmark, of a metric of it, or of a point.  metric: as named in Records.
    point: as formatted by `format_point`.  regime: as in a TaskRow."""
    place = quote_fragment(point_anchor(metric, point, regime))
    return workload_address(benchmark) + (f"#{place}" if metric else "")


def quote_fragment(anchor: str) -> str:
    """Quote an id for use after "#" in an address."""
    return quote(anchor, safe="-_.!~*'()?&=,:/")


def run_command(benchmark: TrackedBenchmark, point: str) -> str:
    """The `hpml run` command that measures a point again; "" for one that no plugin declares any
    more."""
    if not benchmark.plugin or point not in benchmark.declared:
        return ""
    choices = [
        f"{name}={format_choice(value_of(text))}"
        for name, text in benchmark.points[point].items()
    ]
    options = [word for choice in choices for word in ("-p", choice)]
    return shlex.join(["hpml", "run", benchmark.file or benchmark.name, *options])


def _quoted(text: str) -> str:
    # Like encodeURIComponent, because asv's script uses decodeURIComponent.
    return quote(text, safe="-_.!~*'()")


def commit_links(url: str) -> str:
    """The prefix of commit addresses: asv.conf.json's `show_commit_url`, "" if that is not a web
    address."""
    return url if urlsplit(url).scheme in ("http", "https") else ""


@functools.lru_cache(maxsize=_KNOWN)
def day(date: float, form: str = "%Y-%m-%d") -> str:
    """The day of a commit or a Record: ms since 1970 as 2026-01-31, UTC; "unknown" if out of
    range."""
    try:
        return datetime.datetime.fromtimestamp(date / 1000, datetime.UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "unknown"


def minute(started: float) -> str:
    """The minute in which a Record was started: s since 1970 as 2026-01-31 12:59, UTC."""
    return day(1000 * started, "%Y-%m-%d %H:%M")
