"""The questions of the course documents: pages of the site with numbers quoted from Records.

Start reading with `questions`, which writes the pages; `quotes` defines how a text quotes a number,
and `origins` finds the Records behind a number. Uses what hpml_plugins, its model, report and store
export. `make docs` quotes numbers in README.md and docs/ in the same way.
"""

from collections.abc import Iterable

from hpml_plugins import SitePage, hookimpl


@hookimpl
def hpml_pages() -> Iterable[SitePage]:
    """The pages of questions, and the Records behind the rows of all figures."""
    from hpml_plugins.plugins.course.origins import trace
    from hpml_plugins.plugins.course.questions import Questions

    questions = Questions()
    return [
        SitePage(
            "Course",
            "what the Records answer, with links to them",
            "questions.html",
            questions.write,
            trace,
            questions.row_links,
        )
    ]
