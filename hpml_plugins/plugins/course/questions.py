"""Writes `questions.html`, and for each Markdown file of questions or results a page with its
quoted numbers and charts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from hpml_plugins.errors import HpmlError, needs_extra
from hpml_plugins.model import Link, SearchEntry
from hpml_plugins.plugins.course.origins import Provenance, RecordLink
from hpml_plugins.plugins.course.quotes import Answer, Quotable, Quote, fill
from hpml_plugins.report import Drawable, PluginPage, ShownFigure, Site

with needs_extra("publish"):
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

#: The Markdown files, below the project's folder.
FOLDER = Path("benchmarks/pages")
#: The kind of quote for which `make docs` needs more than the Records of a site.
BACK_TEST = "backtest"
#: A link from these files to another one of them, or to a document.
_MARKDOWN_LINK = re.compile(r"^(?P<docs>\.\./\.\./docs/)?(?P<stem>[\w/-]+)\.md(?P<anchor>#.*)?$")
#: The placeholder of a chart in Markdown: the name of the figure.
_CHART = re.compile(r"<p>chart-of:([\w.-]+)</p>")
#: The tags whose ends HTML allows to leave out.
_LEFT_OUT = ("td", "th", "tr", "thead", "tbody")
_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class QuestionPage:
    """One page. title: the file's first heading.  questions: the headings of the second level, with
    their anchors."""

    title: str
    address: str
    questions: Mapping[str, str]


class Questions:
    """The pages of questions of one site. The origins of a figure's rows are found once."""

    def __init__(self) -> None:
        self._provenance = Provenance()

    def row_links(self, drawable: Drawable) -> list[list[Link]]:
        """The links from each row of a figure's table to the Records behind it."""
        origins, columns = self._provenance.of(drawable), drawable.table.columns
        found = []
        for row in drawable.table.rows():
            links = [RecordLink.of(record, row, columns) for record in origins.of(row)]
            found.append([(link.commit, link.address, link.told) for link in links])
        return found

    def write(self, site: Site) -> Iterator[SearchEntry]:
        """Write the pages of the project's questions; yields their search entries."""
        for page in write_questions(FOLDER, site, self._provenance):
            for anchor, question in page.questions.items():
                yield "question", question, page.title, f"{page.address}#{anchor}"


def write_questions(folder: Path, site: Site, provenance: Provenance) -> list[QuestionPage]:
    """Write a page for each file of the folder, and their list.

    A quote that cannot be answered becomes a line of the site's problems.
    """
    shown = {
        f"{each.drawable.plugin}.{each.drawable.figure.name}": (page, each)
        for page in site.plugins
        for each in page.figures
    }
    quotable = Quotable(site.history, [each.drawable for _, each in shown.values()], provenance)

    def text(quote: Quote) -> str:
        if quote.kind == BACK_TEST:
            return quote.text
        try:
            return _linked(quote, quotable, shown)
        except HpmlError as error:
            site.problems.append(str(error))
            return f"*not measured: {quote.name}*"

    written: list[QuestionPage] = []
    for path in sorted(folder.glob("*.md")):
        try:
            markdown = fill(
                path.read_text(encoding="utf-8", errors="replace"), str(path), text, keep=False
            )
        except HpmlError as error:  # words that are not a quote
            site.problems.append(f"no page of questions: {error}")
            continue
        tokens = _parser().parse(markdown)
        headings = _name_headings(tokens)
        _mark_numbers(tokens)
        for token in tokens:
            for child in token.children or ():
                _lead_on_the_site(child)
        if tokens and tokens[0].tag == "h1":  # the template has the title
            del tokens[:3]
        body = _CHART.sub(lambda match: _chart(site, *shown[match[1]]), _fold(tokens))
        title = next((text for level, text, _ in headings if level == "h1"), path.stem)
        questions = {anchor: text for level, text, anchor in headings if level == "h2"}
        page = QuestionPage(title, f"questions-{path.stem}.html", questions)
        site.write(_template("question"), page.address, page=page, body=Markup(body))
        written.append(page)
    site.write(_template("questions"), "questions.html", written=written)
    return written


def _mark_numbers(tokens: Sequence[Token]) -> None:
    """Name the columns of numbers on their table, as other pages do: the policy allows no inline
    style, and a class on each cell would make long pages larger."""
    table, column = None, 0
    for token in tokens:
        if token.type == "table_open":
            table = token
        elif token.type == "tr_open":
            column = 0
        elif token.type in ("th_open", "td_open"):
            column += 1
            is_number = token.attrs.pop("style", None) == "text-align:right"
            if table is not None and is_number and token.type == "th_open":
                table.attrJoin("class", f"n{column}")


def _lead_on_the_site(token: Token) -> None:
    """Replace a link to a Markdown file by one to its page."""
    found = _MARKDOWN_LINK.match(str(token.attrs.get("href", "")))
    if found:
        prefix = "docs/" if found["docs"] else "questions-"
        token.attrSet("href", f"{prefix}{found['stem']}.html{found['anchor'] or ''}")


def _fold(tokens: Sequence[Token]) -> str:
    """The page as HTML: each question with its first paragraph, which answers it, and the rest
    folded."""
    parser = _parser()

    def render(part: Sequence[Token]) -> str:
        return str(parser.renderer.render(part, parser.options, {}))

    starts = [
        place
        for place, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag == "h2"
    ]
    parts = [render(tokens[: starts[0]] if starts else tokens)]
    for first, end in itertools.pairwise([*starts, len(tokens)]):
        answers = (
            place + 1
            for place in range(first, end)
            if tokens[place].type == "paragraph_close" and not tokens[place].level
        )
        answer = next(answers, end)
        parts.append(render(tokens[first:answer]))
        if answer < end:
            rest = render(tokens[answer:end])
            parts.append(f"<details><summary>Charts, tables and how</summary>{rest}</details>")
    return "".join(parts)


def _template(name: str) -> str:
    return (_TEMPLATES / f"{name}.html").read_text(encoding="utf-8")


def _parser() -> MarkdownIt:
    # HTML in the Markdown is shown as text: quoted text may be of any origin.
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    for tag in _LEFT_OUT:
        parser.add_render_rule(f"{tag}_close", lambda *_: "")
    return parser


def _linked(
    quote: Quote, quotable: Quotable, shown: Mapping[str, tuple[PluginPage, ShownFigure]]
) -> str:
    """The text of a quote with links to its origins: the histories of its points, or else the
    figure."""
    answer = quotable.answer(quote)
    if "missing" in quote.options:  # a sentence without a number
        return answer.text
    if quote.kind == "figure":
        return f"\n\nchart-of:{quote.name}\n\n"
    figure = shown[quote.name][1].address if quote.name in shown else ""
    if quote.kind == "table" and figure:
        return f"{_with_records(answer)}\n[The whole table, and its chart]({figure})\n"
    if answer.links and answer.links[0]:
        first, *others = answer.links[0]
        more = (_link(f"\\[{number}\\]", each, "also ") for number, each in enumerate(others, 2))
        return _link(answer.text, first) + "".join(more)
    return f"[{answer.text}]({figure})" if figure else answer.text


def _with_records(table: Answer) -> str:
    """A Markdown table with one more column, with links to the points of each row."""
    if not any(table.links):
        return table.text
    links = (", ".join(_link(each.commit, each) for each in row) or "–" for row in table.links)
    rows = [line for line in table.text.splitlines() if line.startswith("|")]
    label = [line for line in table.text.splitlines() if line and not line.startswith("|")]
    lines = zip(rows, ("Record", "---", *links), strict=True)
    cells = "".join(f"{line} {cell} |\n" for line, cell in lines)
    return f"\n{cells}\n{''.join(label)}\n" if label else f"\n{cells}"


def _link(text: str, to: RecordLink, prefix: str = "") -> str:
    """A link to the history of a point, with the description of the Record as its title."""
    title = re.sub(r'["|\\]', "'", f"{prefix}{to.told}") if to.told else ""
    return f"[{text}](<{to.address}>" + (f' "{title}")' if title else ")")


def _name_headings(tokens: Sequence[Token]) -> list[tuple[str, str, str]]:
    """Gives every heading an anchor; returns (level, text, anchor) of each."""
    found = []
    for opening, content in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(child.content for child in content.children or ())
            anchor = re.sub(r"[^a-z0-9]+", "-", text.lower().replace("'", "")).strip("-")
            opening.attrSet("id", anchor)
            found.append((opening.tag, text, anchor))
    return found


def _chart(site: Site, page: PluginPage, shown: ShownFigure) -> str:
    return site.fill(_template("chart"), shown.address, shown=shown, drawable=shown.drawable)
