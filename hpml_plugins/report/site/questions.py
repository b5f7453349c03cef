"""Writes `questions.html`, and of each Markdown file of questions a page with the numbers and
charts that it quotes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from hpml_plugins.errors import HpmlError, needs_extra
from hpml_plugins.report.origins import RecordLink
from hpml_plugins.report.quotes import Answer, Quotable, Quote, fill
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.page import fill as fill_template
from hpml_plugins.report.site.page import history_link, write_page
from hpml_plugins.report.site.plugin_pages import PluginPage, ShownFigure

with needs_extra("publish"):
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

#: The Markdown files, below the project's folder.
FOLDER = Path("docs/questions")
#: Stands in Markdown where a chart goes: the name of the figure.
_CHART = re.compile(r"<p>chart-of:([\w.-]+)</p>")


@dataclass(frozen=True)
class QuestionPage:
    """One page. title: the file's first heading.  questions: the headings of the second level, with
    their anchors."""

    title: str
    address: str
    questions: Mapping[str, str]


def write_questions(
    folder: Path,
    history: History,
    plugins: Sequence[PluginPage],
    html_dir: Path,
    project: str,
    problems: list[str],
) -> list[QuestionPage]:
    """Write a page of each file of the folder, and their list.

    problems: gets a line for each quote of what is not there.
    """
    shown = {
        f"{each.drawable.plugin}.{each.drawable.figure.name}": (page, each)
        for page in plugins
        for each in page.figures
    }
    quotable = Quotable(history, [each.drawable for _, each in shown.values()])

    def text(quote: Quote) -> str:
        try:
            return _linked(quote, quotable, shown)
        except HpmlError as error:
            problems.append(str(error))
            return f"*not measured: {quote.name}*"

    written: list[QuestionPage] = []
    for path in sorted(folder.glob("*.md")):
        try:
            markdown = fill(
                path.read_text(encoding="utf-8", errors="replace"), str(path), text, keep=False
            )
        except HpmlError as error:  # words that are no quote
            problems.append(f"no page of questions: {error}")
            continue
        tokens = _parser().parse(markdown)
        headings = _name_headings(tokens)
        for cell in tokens:
            # the policy allows no inline style
            if cell.attrs.pop("style", None) == "text-align:right":
                cell.attrSet("class", "number")
        if tokens and tokens[0].tag == "h1":  # the template has the title
            del tokens[:3]
        body = _parser().renderer.render(tokens, _parser().options, {})
        body = _CHART.sub(lambda match: _chart(*shown[match[1]]), body)
        title = next((text for level, text, _ in headings if level == "h1"), path.stem)
        questions = {anchor: text for level, text, anchor in headings if level == "h2"}
        page = QuestionPage(title, f"questions-{path.stem}.html", questions)
        write_page(
            html_dir, "question.html", page.address, page=page, body=Markup(body), project=project
        )
        written.append(page)
    write_page(html_dir, "questions.html", written=written, project=project)
    return written


def _parser() -> MarkdownIt:
    # HTML in the Markdown is shown as text: what is quoted may be of any origin.
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _linked(
    quote: Quote, quotable: Quotable, shown: Mapping[str, tuple[PluginPage, ShownFigure]]
) -> str:
    """The text of a quote with links to what it rests on: the histories of its points, or else the
    figure."""
    answer = quotable.answer(quote)
    if quote.kind == "figure":
        return f"\n\nchart-of:{quote.name}\n\n"
    figure = (
        f"{shown[quote.name][0].address}#{quote.name.partition('.')[2]}"
        if quote.name in shown
        else ""
    )
    if quote.kind == "table" and figure:
        return f"{_with_records(answer)}\n[The whole table, and its chart]({figure})\n"
    if answer.links and answer.links[0]:
        first, *others = answer.links[0]
        more = (_link(f"\\[{number}\\]", each, "also ") for number, each in enumerate(others, 2))
        return _link(answer.text, first) + "".join(more)
    return f"[{answer.text}]({figure})" if figure else answer.text


def _with_records(table: Answer) -> str:
    """A Markdown table with one more column, which leads to the points of each row."""
    if not any(table.links):
        return table.text
    links = (", ".join(_link(each.commit, each) for each in row) or "–" for row in table.links)
    lines = zip(table.text.strip().splitlines(), ("Record", "---", *links), strict=True)
    return "\n" + "".join(f"{line} {cell} |\n" for line, cell in lines)


def _link(text: str, to: RecordLink, prefix: str = "") -> str:
    """A link to the history of a point; what is told of the Record is its title."""
    title = re.sub(r'["|\\]', "'", f"{prefix}{to.told}") if to.told else ""
    return f"[{text}](<{history_link(to.metric, to.label)}>" + (f' "{title}")' if title else ")")


def _name_headings(tokens: Sequence[Token]) -> list[tuple[str, str, str]]:
    """Gives every heading an anchor; returns (level, text, anchor) of each."""
    found = []
    for opening, content in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(child.content for child in content.children or ())
            anchor = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
            opening.attrSet("id", anchor)
            found.append((opening.tag, text, anchor))
    return found


def _chart(page: PluginPage, shown: ShownFigure) -> str:
    address = f"{page.address}#{shown.drawable.figure.name}"
    return fill_template("chart.html", address=address, shown=shown, drawable=shown.drawable)
