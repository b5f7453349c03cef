"""Writes `questions.html`, and of each Markdown file of questions a page with the numbers and charts that it quotes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from hpml_plugins.errors import HpmlError
from hpml_plugins.report.quotes import Quotable, Quote, fill
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.page import fill as fill_template
from hpml_plugins.report.site.page import history_link, write_page
from hpml_plugins.report.site.plugin_pages import PluginPage, ShownFigure

#: The Markdown files, below the project's folder.
FOLDER = Path("docs/questions")
#: Stands in Markdown where a chart goes: the name of the figure.
_CHART = re.compile(r"<p>chart-of:([\w.-]+)</p>")


@dataclass(frozen=True)
class QuestionPage:
    """One page. title: the file's first heading.  questions: the headings of the second level, with their anchors."""

    title: str
    address: str
    questions: Mapping[str, str]


def write_questions(
    folder: Path, history: History, plugins: Sequence[PluginPage], html_dir: Path, project: str, problems: list[str]
) -> list[QuestionPage]:
    """Write a page of each file of the folder, and their list.

    problems: gets a line for each quote of what is not there.
    """
    shown = {
        f"{each.drawable.plugin}.{each.drawable.figure.name}": (page, each) for page in plugins for each in page.figures
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
            markdown = fill(path.read_text(encoding="utf-8", errors="replace"), str(path), text, keep=False)
        except HpmlError as error:  # words that are no quote
            problems.append(f"no page of questions: {error}")
            continue
        tokens = _parser().parse(markdown)
        headings = _name_headings(tokens)
        for cell in tokens:
            if cell.attrs.pop("style", None) == "text-align:right":  # the policy allows no inline style
                cell.attrSet("class", "number")
        if tokens and tokens[0].tag == "h1":  # the template has the title
            del tokens[:3]
        body = _parser().renderer.render(tokens, _parser().options, {})
        body = _CHART.sub(lambda match: _chart(*shown[match[1]]), body)
        title = next((text for level, text, _ in headings if level == "h1"), path.stem)
        questions = {anchor: text for level, text, anchor in headings if level == "h2"}
        page = QuestionPage(title, f"questions-{path.stem}.html", questions)
        write_page(html_dir, "question.html", page.address, page=page, body=Markup(body), project=project)
        written.append(page)
    write_page(html_dir, "questions.html", written=written, project=project)
    return written


def _parser() -> MarkdownIt:
    # HTML in the Markdown is shown as text: what is quoted may be of any origin.
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _linked(quote: Quote, quotable: Quotable, shown: Mapping[str, tuple[PluginPage, ShownFigure]]) -> str:
    """The text of a quote with a link to what it rests on: the point's history, or the figure."""
    answer = quotable.answer(quote)
    if quote.kind == "figure":
        return f"\n\nchart-of:{quote.name}\n\n"
    if answer.point:
        origin = f' "{answer.origin}"' if answer.origin else ""
        return f"[{answer.text}]({history_link(*answer.point)}{origin})"
    if quote.name not in shown:  # not measured
        return answer.text
    link = f"{shown[quote.name][0].address}#{quote.name.partition('.')[2]}"
    if quote.kind in ("cell", "ratio"):
        return f"[{answer.text}]({link})"
    return f"{answer.text}\n[The whole table, and its chart]({link})\n"


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
