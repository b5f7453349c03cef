"""Numbers, tables and charts quoted in Markdown: what each kind gives, on the site too, and errors
with their line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from records import a_record

from hpml_plugins import Figure, Table
from hpml_plugins.errors import HpmlError
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.plugins.course.origins import Provenance
from hpml_plugins.plugins.course.questions import write_questions
from hpml_plugins.plugins.course.quotes import Quotable, Quote, fill
from hpml_plugins.report.figures import Drawable
from hpml_plugins.report.reading import History, read_history
from hpml_plugins.report.site.further import Site
from hpml_plugins.report.site.matrix import Costs, build
from hpml_plugins.report.site.plugin_pages import ShownFigure
from hpml_plugins.store import append_record, record_file

OLD, NEW = "a" * 40, "b" * 40
DECLARED = {
    f"copy.track_{metric}": {
        "benchmark": "copy",
        "metric": metric,
        "plugin": "p",
        "direction": "lower",
        "si_unit": unit,
        "version": "1",
        "param_names": ["size", "cold"],
        "params": [["1", "2"], ["True", "False"]],
    }
    for metric, unit in (("time", "s"), ("bytes", "B"), ("hits", "1"))
}
TABLE = Table.of(
    [
        {"machine": "m", "size": 1, "rate": 2e9, "share": 0.27653},
        {"machine": "m", "size": 2, "rate": 3e9},
    ],
    {"rate": "B/s"},
)
DRAWABLE = Drawable(
    "p",
    Figure("rates", "Rates | by size", ("copy",), lambda records: TABLE, {"mark": "bar"}),
    TABLE,
)
BARE = Drawable("p", Figure("bare", "Rates", ("copy",), lambda records: TABLE), TABLE)
TIMES = Figure(
    "times", "Times", ("copy",), lambda records: Table.of_records(records, "time")
)


@pytest.fixture
def history(tmp_path: Path) -> History:
    for commit, seconds in ((OLD, 1e-3), (NEW, 2e-3)):
        metrics = {
            "time": MetricSamples(
                "s",
                "lower",
                [seconds] * 9,
                {"timer": "cuda events"},
                boost=[seconds / 2] * 9,
            ),
            "bytes": MetricSamples("B", "lower", [4096.0]),
            "hits": MetricSamples("1", "lower", [0.995]),
        }
        record = a_record(
            "copy",
            metrics,
            params={"size": 1, "cold": True},
            commit=commit,
            started=1.0,
            node={"gpus": [{"name": "H200", "uuid": "GPU-1"}]},
            duration=1.5,
        )
        append_record(record_file(tmp_path, "m", commit), record)
    return read_history(tmp_path, None, DECLARED, {OLD: 1, NEW: 2}, {}, print)


@pytest.fixture
def known(history: History) -> Quotable:
    return Quotable(history, [DRAWABLE, BARE])


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("value copy.time machine=m size=1 show=value", "2.000 ms"),
        (
            f"value copy.time machine=m size=1 cold=True commit={OLD[:8]} show=value",
            "1.000 ms",
        ),
        ("value copy.time machine=m show=boost", "1.000 ms"),
        ("value copy.time machine=m show=duration", "1.500 s"),
        ("value copy.bytes machine=m size=1", "4.096 kB"),
        ("cell p.rates column=rate size=2", "3.000 GB/s"),
        ("cell p.rates column=share% size=1", "27.65 %"),
        ("ratio p.rates column=rate size=2 over.size=1", "1.50"),
        ("ratio p.rates column=rate size=2 over.column=size", ">1000000"),
        (
            "table p.rates columns=size,share%=part",
            "\n| size | part |\n| --: | --: |\n| 1 | 27.65 % |\n| 2 | – |\n",
        ),
        ("value copy.hits machine=m show=percent", "99.5 %"),
        (
            "table p.rates columns=size,rate=speed size=1|2",
            "\n| size | speed |\n| --: | --: |\n| 1 | 2.000 GB/s |\n| 2 | 3.000 GB/s |\n",
        ),
        ("figure p.rates", "\nChart: Rates | by size (`hpml plot p.rates`)\n"),
        ("benchmark copy", "`copy`"),
        ("value copy.time machine=n show=value otherwise=unknown", "unknown"),
        ("value copy.time machine=m size=1 show=value otherwise=unknown", "2.000 ms"),
        ("value copy.time machine=n missing='Not measured.'", "Not measured."),
        ("value copy.time machine=m size=1 missing='Not measured.'", ""),
        ("cell p.rates column=rate size=3 otherwise='not measured'", "not measured"),
        ("cell p.rates column=share size=2 otherwise='no share'", "no share"),
        ("cell p.rates column=share size=2 missing='No share.'", "No share."),
        ("table p.rates size=3 otherwise='Not measured.'", "\nNot measured.\n"),
        ("ratio p.rates column=rate size=2 over.size=1 above=1.4 below=1.6", "1.50"),
        (
            "ratio p.rates column=rate size=2 over.size=1 below=1",
            "1.50 (contradicts this sentence: not below 1)",
        ),
        (
            "value copy.time machine=m show=value above=2e-3",
            "2.000 ms (contradicts this sentence: not above 2e-3)",
        ),
        ("value copy.time machine=m show=boost below=2e-3", "1.000 ms"),
        (
            f"ratio copy.time machine=m over.commit={OLD[:8]} above=3",
            "2.00 (contradicts this sentence: not above 3)",
        ),
        ("cell p.rates column=share% size=1 below=0.3", "27.65 %"),
        ("cell p.rates column=share size=2 below=0.3 otherwise='no share'", "no share"),
    ],
)
def test_a_quote_is_replaced_by_what_the_records_say_and_stays_a_quote(
    known: Quotable, quote: str, text: str
) -> None:
    written = f"It is <!--= {quote} -->stale<!--/-->."
    once = fill(written, "docs/x.md", lambda asked: known.answer(asked).text)
    assert once == f"It is <!--= {quote} -->{text}<!--/-->."
    assert fill(once, "docs/x.md", lambda asked: known.answer(asked).text) == once


@pytest.fixture
def of_two_cards(tmp_path: Path) -> Quotable:
    """A point that two cards of a type measured, on a machine each; 8 ms on the second; and one
    that only the first did."""
    for machine, size, commit, seconds in (
        ("m", 1, OLD, 2e-3),
        ("m", 2, OLD, 3e-3),
        ("n", 1, NEW, 8e-3),
    ):
        record = a_record(
            "copy",
            {"time": MetricSamples("s", "lower", [seconds] * 9, {"timer": "cuda events"})},
            machine=machine,
            params={"size": size, "cold": True},
            commit=commit,
            started=1.0,
            node={"gpus": [{"name": "H200", "uuid": f"GPU-{machine}"}]},
            source={"sha256": "a"},
            duration=1.5,
        )
        append_record(record_file(tmp_path, machine, commit), record)
    history = read_history(tmp_path, None, DECLARED, {OLD: 1, NEW: 2}, {}, print)
    records = history.current()
    rates = Drawable("p", TIMES, TIMES.table(records), records=records)
    return Quotable(history, [rates])


@pytest.mark.parametrize(
    ("quote", "text", "told"),
    [
        (
            "value copy.time machine=m size=1 show=value",
            "4.000 ms",
            "mean over 2 cards, 2 Records, the newest n at bbbbbbbb",
        ),
        (
            "value copy.time machine=n size=1 show=value",
            "4.000 ms",
            "mean over 2 cards, 2 Records, the newest n at bbbbbbbb",
        ),
        (
            "value copy.time machine=n size=2 show=value",
            "3.000 ms",
            "one Record, m at aaaaaaaa",
        ),
        (
            f"value copy.time machine=m size=1 commit={OLD[:8]} show=value",
            "2.000 ms",
            "one Record, m at aaaaaaaa",
        ),
        (
            "value copy.time machine=m size=1 show=duration",
            "1.500 s",
            "one Record, m at aaaaaaaa",
        ),
        (
            "ratio copy.time machine=m size=1 over.size=2",
            "1.33",
            "mean over 2 cards, 2 Records, the newest n at bbbbbbbb",
        ),
        (
            f"ratio copy.time machine=m size=1 over.commit={OLD[:8]}",
            "1.00",
            "one Record, m at aaaaaaaa",
        ),
        (
            "cell p.times column=time machine=n",
            "8.000 ms (one card)",
            "one Record, n at bbbbbbbb: copy · time 8.000 ms",
        ),
        (
            "ratio p.times column=time machine=n over.machine=m over.size=2",
            "2.67 (one card each)",
            "one Record, n at bbbbbbbb: copy · time 8.000 ms",
        ),
        (
            "cell p.times column=time size=2",
            "3.000 ms",
            "one Record, m at aaaaaaaa: copy · time 3.000 ms",
        ),
    ],
)
def test_a_value_is_the_mean_over_the_cards_of_a_type_and_a_cell_says_that_it_is_of_one(
    of_two_cards: Quotable, quote: str, text: str, told: str
) -> None:
    answer = of_two_cards.answer(Quote.parse(quote, "x"))
    assert answer.text == text
    assert answer.links[0][0].told.startswith(told)


def test_a_table_says_that_it_is_of_one_card_of_each_type(of_two_cards: Quotable) -> None:
    def table(more: str) -> str:
        quote = Quote.parse(f"table p.times columns=machine,time {more}", "x")
        return of_two_cards.answer(quote).text

    assert table("").endswith(" |\n\nOne card each: the newest Record.\n")
    assert table("machine=n").endswith(" |\n\nOne card: the newest Record.\n")
    assert table("size=2").endswith(" |\n")


@pytest.mark.usefixtures("of_two_cards")
def test_a_type_whose_newest_result_failed_has_no_value_as_on_its_page(
    tmp_path: Path,
) -> None:
    newest = "c" * 40
    failed = a_record(
        "copy",
        status="failed",
        reason="x",
        machine="n",
        params={"size": 1, "cold": True},
        commit=newest,
        started=2.0,
        node={"gpus": [{"name": "H200", "uuid": "GPU-n"}]},
    )
    append_record(record_file(tmp_path, "n", newest), failed)
    revisions = {OLD: 1, NEW: 2, newest: 3}
    history = read_history(tmp_path, None, DECLARED, revisions, {}, print)
    rows = build(history, Costs({})).rows
    (row,) = [each for each in rows if each.failed and each.metric.metric == "time"]
    assert (row.point, row.cells) == ("size=1, cold=True", {})
    quote = Quote.parse("value copy.time machine=m size=1", "x")
    with pytest.raises(HpmlError, match="the newest result on m has no value"):
        Quotable(history, []).answer(quote)


def test_a_timed_value_has_its_interval_and_its_regime(known: Quotable) -> None:
    text = fill("<!--= value copy.time machine=m -->", "x", str)  # no end: it is no quote
    assert text == "<!--= value copy.time machine=m -->"
    found = fill(
        "<!--= value copy.time machine=m --><!--/-->",
        "x",
        lambda asked: known.answer(asked).text,
        keep=False,
    )
    assert found.startswith("2.000 ms ± ")
    assert found.endswith(" % sustained")


@pytest.mark.parametrize(
    ("quote", "error"),
    [
        ("value copy.tim machine=m", "no metric 'copy.tim'; did you mean 'copy.time'?"),
        ("value copy.time machine=n", "copy.time machine=n : no Record"),
        ("value copy.time machine=m size=2", "no Record"),
        (
            "value copy.time machine=m show=all",
            "show=all: known: estimate, value, boost, duration",
        ),
        (
            "cell p.rates column=rate",
            "2 rows of p.rates match; name more columns: KEY=VALUE",
        ),
        ("ratio p.rates column=share size=1 over.size=2", "no ratio of 0.27653 and –"),
        ("ratio p.rates column=rate size=1 over.siz=2", "no column 'siz'"),
        (
            "value copy.time machine=m show=percent",
            "show=percent: known: estimate, value, boost, duration",
        ),
        (
            "ratio p.rates column=rate size=2 over.size=1 above=one",
            "above=one: write a number in SI base units",
        ),
        ("cell p.rates column=machine size=1 above=1", "above=1: 'm' is no number"),
        ("cell p.rates column=rat size=1", "no column 'rat'; did you mean 'rate'?"),
        ("table p.rates columns=size,speed", "no column 'speed'"),
        ("table p.rates colour=red", "no column 'colour'"),
        ("table p.rates size=3", "no row of p.rates has size=3"),
        ("figure p.rate", "no figure 'p.rate'; did you mean 'p.rates'?"),
        ("figure p.bare", "figure 'p.bare' has no chart; quote its table"),
        ("chart p.rates", "no kind of quote 'chart'"),
        ("benchmark cpy", "no benchmark 'cpy'; did you mean 'copy'?"),
        (
            "value copy.time m",
            "'value copy.time m' is no quote; write KIND NAME KEY=VALUE …",
        ),
        ("value", "'value' is no quote"),
    ],
)
def test_what_cannot_be_quoted_is_named_with_its_line(
    known: Quotable, quote: str, error: str
) -> None:
    with pytest.raises(HpmlError) as raised:
        fill(
            f"# Title\n\n<!--= {quote} --><!--/-->\n",
            "docs/x.md",
            lambda asked: known.answer(asked).text,
        )
    assert error in str(raised.value)
    assert str(raised.value).startswith("docs/x.md:3: ")


def test_a_page_links_each_number_to_its_history_and_shows_the_chart(
    history: History, tmp_path: Path
) -> None:
    questions, html_dir = tmp_path / "questions", tmp_path / "html"
    questions.mkdir()
    html_dir.mkdir()
    (questions / "000.md").write_text(
        "# Copies\n\nOn a: <!--= cell p.rates column=share size=2 'missing=None yet.' --><!--/-->"
        " On b: <!--= cell p.rates column=rate size=2 'missing=None yet.' --><!--/-->Nothing.\n\n##"
        " How fast?\n\n<script>alert(1)</script> is text. It takes <!--= value"
        " copy.time machine=m show=value --><!--/-->, at <!--= cell p.rates column=rate size=2"
        " --><!--/-->, which is <!--= ratio p.rates column=rate size=2 over.size=1 --><!--/-->"
        " times as fast; and <!--= value copy.time machine=z --><!--/-->, <!--= value copy.time"
        " machine=z otherwise=unknown --><!--/-->, <!--= cell p.none column=rate otherwise=neither"
        " --><!--/-->.\n\n<!--= table p.rates columns=size,rate --><!--/-->\n\n<!--= figure p.rates"
        " --><!--/-->\n\n## Again?\n\nSee <!--= benchmark copy --><!--/-->. <!--= cell p.times"
        " column=time size=1 --><!--/-->\n\n<!--= table p.times columns=machine,time --><!--/-->\n"
    )
    (questions / "001.md").write_text("# Wrong\n\n<!--= value -->7<!--/-->\n")
    shown = ShownFigure(
        DRAWABLE,
        "figures/p-rates.csv",
        chart="figures/p-rates.js",
        summary="Rates grow.",
        benchmark="copy",
    )
    records = history.current()
    times = ShownFigure(Drawable("p", TIMES, TIMES.table(records), records=records))
    plugin: Any = SimpleNamespace(figures=[shown, times])
    site = Site(html_dir, "project", history=history, plugins=[plugin], problems=[])
    (page,) = write_questions(questions, site, Provenance())
    assert (page.title, page.address) == ("Copies", "questions-000.html")
    assert dict(page.questions) == {"how-fast": "How fast?", "again": "Again?"}
    html = (html_dir / page.address).read_text(encoding="utf-8")
    assert (
        '<a href="workload-copy.html#time?size=1&amp;cold=True" title="one Record, m at'
        ' bbbbbbbb">2.000 ms</a>' in html
    )
    assert (
        '<a href="workload-copy.html#p.rates">3.000 GB/s</a>, which is <a'
        ' href="workload-copy.html#p.rates">1.50</a> times' in html
    )
    assert '<a href="workload-copy.html"><code>copy</code></a>' in html
    link = (
        '<a href="workload-copy.html#time?size=1&amp;cold=True" title="one Record, m at bbbbbbbb:'
        " copy · time 2.000 ms"
    )
    assert [text.partition(">")[2].partition("<")[0] for text in html.split(link)[1:]] == [
        "2.000 ms",
        "bbbbbbbb",
    ]
    assert "On a: None yet. On b: Nothing." in html
    assert "<th>Record<" in html
    assert 'questions-000.html#again">Again?' in (html_dir / "questions.html").read_text(
        encoding="utf-8"
    )
    assert 'data-chart="figures/p-rates.js"' in html
    assert html.count("<h1>") == 1
    assert '<h2 id="how-fast">How fast?</h2>' in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "style=" not in html
    assert "<em>not measured: copy.time</em>, unknown, neither.</p>" in html
    assert [problem.partition(": ")[2] for problem in site.problems] == [
        "copy.time machine=z : no Record",
        f"{questions / '001.md'}:3: 'value' is no quote; write KIND NAME KEY=VALUE …",
    ]
