"""Numbers, tables and charts from Records, quoted in Markdown, so that no text repeats a number by
hand.

A quote is a pair of comments with generated text between them:

    <!--= value roof_copy.bandwidth machine=h200-x1 mebibytes=4096 -->4.282 TB/s ± 0.18 %<!--/-->

- `value BENCHMARK.METRIC machine=M KEY=VALUE …`: the current value of a point on the type of this
  machine with its interval: the mean over the cards, as on the site's pages of types. `show=value`
  leaves the interval out, `show=boost` gives the regime boost. One Record gives `show=duration`,
  the time for measuring the point, all rounds together, and `commit=C`, the value at that commit.
- `cell PLUGIN.FIGURE column=C KEY=VALUE …`: the cell of that column in the one row of the figure's
  table whose columns have these values. `KEY=A|B`: one of these.
- `ratio PLUGIN.FIGURE column=C KEY=VALUE … over.KEY=VALUE …`: the cell of that column divided by
  the one in the row where the keys behind `over.` have these values instead; `over.column=D`
  divides by another column.
- `ratio BENCHMARK.METRIC machine=M KEY=VALUE … over.KEY=VALUE …`: the value of a point divided by
  that of the one where the keys behind `over.` (a parameter, machine or commit) have these values;
  if either names a commit, both are of one Record.
- `table PLUGIN.FIGURE columns=A,B KEY=VALUE …`: the rows that have these values, as a Markdown
  table; `columns=A,B=new name` chooses and renames columns.
- `figure PLUGIN.FIGURE`: the chart.
- `benchmark NAME`: the name of a benchmark, on the site with a link to its history.

A figure's table is made of one Record of each point and machine. What is quoted from it (`cell`,
`table`, `ratio` of a figure) says "one card" (or "one node", of several GPUs or none) where the
type has a mean over several, unless the quote or a column names the card; "one Record" where that
is a mean over Records of the same card.

A share is written in per cent if `%` follows the column's name (`column=share%`), and with
`show=percent`. `otherwise=TEXT` is used if no Record has the values in the quote; without it that
is an error. `missing=TEXT` says only what is missing: it is TEXT then, and nothing once it is
measured.

`above=X` and `below=X`, in SI base units, state what the sentence around a number claims. If the
number is not so, after new measurements, it is followed by CONTRADICTS. This repository's tests
refuse that: the sentence has to be rewritten.

A line of Markdown that begins with a comment is HTML to Markdown: begin it with a word. Tables and
charts stand alone.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hpml_plugins import Table
from hpml_plugins.analysis import MeasuredValue
from hpml_plugins.errors import HpmlError, nearest
from hpml_plugins.model import (
    Cell,
    Row,
    estimate,
    format_choice,
    quantity,
    times,
    unquoted,
)
from hpml_plugins.plugins.course.origins import Provenance, RecordLink
from hpml_plugins.report import (
    Drawable,
    History,
    KnownRuns,
    Outcome,
    TrackedMetric,
    TypeValue,
    as_markdown,
    formatted,
    read_point,
)
from hpml_plugins.store import describe_outside

#: What follows a number that is not as its sentence says.
CONTRADICTS = "contradicts this sentence"
#: The options that state a claim, and whether a number fulfils it.
_CLAIMS: Mapping[str, Callable[[float, float], bool]] = {
    "above": operator.gt,
    "below": operator.lt,
}
#: The prefix of options for only the divisor of a ratio.
_OVER = "over."
_QUOTE = re.compile(r"<!--= (?P<words>[^\n]*?) -->(?P<text>.*?)<!--/-->", re.DOTALL)


class _NotMeasured(HpmlError):
    """No Record has the values that a quote names."""


@dataclass(frozen=True)
class Quote:
    """One quote. kind: see the module.  options: the words KEY=VALUE after the name.  where: file
    and line.  text: the present text."""

    kind: str
    name: str
    options: Mapping[str, str]
    where: str
    text: str = ""

    @classmethod
    def parse(cls, words: str, where: str) -> Quote:
        """The words between `<!--=` and `-->`. Raises HpmlError for an unknown kind and for words
        that are not options."""
        try:
            kind, name, *rest = shlex.split(words)
            options = dict(word.split("=", 1) for word in rest)
        except ValueError:
            raise HpmlError(f"{words!r} is no quote; write KIND NAME KEY=VALUE …", where) from None
        return cls(kind, name, options, where)


@dataclass(frozen=True)
class Answer:
    """The answer to a quote.  text: Markdown.  links: for each row, to the Records behind it.
    number: the quoted number in SI base units, if it is one."""

    text: str
    links: Sequence[Sequence[RecordLink]] = ()
    number: float | None = None


class _SingleCell(NamedTuple):
    """A cell of a figure's table.  text: as it is shown.  number: in SI base units, if it is one.
    links: to the Records behind it."""

    text: str
    number: float | None
    links: list[RecordLink]


@dataclass(frozen=True)
class _PointValue:
    """A metric of a point.  duration: of measuring it, s.  link: to what it rests on."""

    value: MeasuredValue
    unit: str
    duration: float
    link: RecordLink


@dataclass
class Quotable:
    """The sources of quotes: all Records, and the figures that plugins draw from the current
    ones."""

    history: History
    drawables: Iterable[Drawable]
    provenance: Provenance = field(default_factory=Provenance)
    figures: dict[str, Drawable] = field(init=False)
    _runs: dict[str, KnownRuns] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.figures = {f"{each.plugin}.{each.figure.name}": each for each in self.drawables}

    def answer(self, quote: Quote) -> Answer:
        """The answer to the quote. Raises HpmlError, with the quote's place, if there is none."""
        answers: dict[str, Callable[[Quote], Answer]] = {
            "value": self._value,
            "cell": self._cell,
            "ratio": self._ratio,
            "table": self._table,
            "figure": self._figure,
            "benchmark": self._benchmark,
        }
        if quote.kind not in answers:
            raise HpmlError(
                f"no kind of quote {quote.kind!r}; {nearest(quote.kind, list(answers))}",
                quote.where,
            )
        options = dict(quote.options)
        missing = options.pop("missing", "")
        otherwise = options.pop("otherwise", missing)
        claims = {name: options.pop(name) for name in _CLAIMS if name in options}
        try:
            answer = answers[quote.kind](replace(quote, options=options))
        except _NotMeasured:
            if not otherwise:
                raise
            return Answer(f"\n{otherwise}\n" if quote.kind == "table" else otherwise)
        has_none = answer.text == "–"
        if missing:
            return Answer(missing if has_none else "")
        if has_none:
            return replace(answer, text=otherwise or answer.text)
        broken = "".join(_broken(answer, *claim, quote.where) for claim in claims.items())
        return replace(answer, text=f"{answer.text}{broken}")

    def _value(self, quote: Quote) -> Answer:
        options = dict(quote.options)
        show = options.pop("show", "estimate")
        asked = replace(quote, options=options)
        is_one = show == "duration" or "commit" in options
        found = self._of_record(asked) if is_one else self._of_type(asked)
        value, unit = found.value, found.unit
        numbers = {"boost": value.boost, "duration": found.duration}
        texts = {
            "estimate": f"{estimate(value.estimate, unit)} {value.regime}".rstrip(),
            "value": quantity(value.value, unit),
            "boost": "" if value.boost is None else quantity(value.boost, unit),
            "duration": quantity(found.duration, "s"),
            "percent": str(_in_percent(value.value)) if unit == "1" else "",
        }
        if not texts.get(show):
            raise HpmlError(
                f"show={show}: {nearest(show, [name for name, text in texts.items() if text])}",
                quote.where,
            )
        return Answer(texts[show], [[found.link]], numbers.get(show, value.value))

    def _of_record(self, quote: Quote) -> _PointValue:
        """The value of the point selected by the options, of one Record."""
        machine = quote.options.get("machine", "")
        metric, label, outcome = self._selected(quote, [machine])
        at = outcome.commit[:8] or "unknown"
        told = f"one Record, {machine} at {at}"
        link = RecordLink(metric.benchmark.name, metric.metric, label, machine, at, told)
        return _PointValue(outcome.readings[metric.metric], metric.unit, outcome.duration, link)

    def _of_type(self, quote: Quote) -> _PointValue:
        """The value of the point selected by the options, on the type of its machine."""
        machine = quote.options.get("machine", "")
        metric, label, _ = self._selected(quote, self._alike(machine))
        found = self._read(metric, label, machine)
        if found is None or found.number is None:
            raise _NotMeasured(
                f"{quote.name} {label}: the newest result on {machine} has no value", quote.where
            )
        newest = max(found.records, key=metric.benchmark.index.rank)
        at = newest.commit[:8] or "unknown"
        told = f"{newest.machine} at {at}"
        if len(found.records) == 1:
            told = f"one Record, {told}"
        else:
            cards = len(found.cards)
            of_cards = f"mean over {cards} {_noun(found)}s, " if cards > 1 else ""
            told = f"{of_cards}{len(found.records)} Records, the newest {told}"
        benchmark = metric.benchmark.name
        link = RecordLink(benchmark, metric.metric, label, newest.machine, at, told)
        return _PointValue(found.number, metric.unit, found.newest.duration, link)

    def _alike(self, machine: str) -> tuple[str, ...]:
        """The machines of the same type of hardware, and this one."""
        types = self.history.types.values()
        return next((names for names in types if machine in names), (machine,))

    def _read(self, metric: TrackedMetric, label: str, machine: str) -> TypeValue | None:
        """The value of a point on the type of a machine."""
        runs = self._runs.setdefault(metric.benchmark.name, {})
        return read_point(metric, label, self._alike(machine), runs)

    def _label(self, links: Sequence[RecordLink]) -> str:
        """What a number made of one Record of each of these points rests on, in words; "" if their
        types have no means over several Records."""
        nouns = []
        for link in links:
            metric = self._metrics.get(f"{link.benchmark}.{link.metric}")
            found = metric and self._read(metric, link.label, link.machine)
            if found and len(found.records) > 1:
                nouns.append(_noun(found) if len(found.cards) > 1 else "Record")
        if not nouns:
            return ""
        noun = next((each for each in nouns if each != "Record"), "Record")
        each = " each" if len({link.machine for link in links}) > 1 else ""
        return f"one {noun}{each}"

    def _labelled(self, quote: Quote, text: str, links: Sequence[RecordLink]) -> str:
        """A number from a figure, with its label, unless it is a count."""
        is_number = text.lstrip("-−<>")[:1].isdigit() and not text.isdigit()
        label = self._label(links) if is_number and "card" not in quote.options else ""
        return f"{text} ({label})" if label else text

    @functools.cached_property
    def _metrics(self) -> dict[str, TrackedMetric]:
        """`BENCHMARK.METRIC` → the metric."""
        metrics = self.history.metrics.values()
        return {f"{each.benchmark.name}.{each.metric}": each for each in metrics}

    def _selected(
        self, quote: Quote, machines: Sequence[str]
    ) -> tuple[TrackedMetric, str, Outcome]:
        """The metric and the point selected by the options, and its Record on these machines."""
        options = dict(quote.options)
        commit = options.pop("commit", "")
        options.pop("machine", "")
        metric = self._metric(quote)
        label, outcome = self._outcome(quote, metric, machines, commit, options)
        return metric, label, outcome

    def _metric(self, quote: Quote) -> TrackedMetric:
        known = self._metrics
        if quote.name not in known:
            raise HpmlError(
                f"no metric {quote.name!r}; {nearest(quote.name, list(known))}", quote.where
            )
        return known[quote.name]

    def _outcome(
        self,
        quote: Quote,
        metric: TrackedMetric,
        machines: Sequence[str],
        commit: str,
        params: Mapping[str, str],
    ) -> tuple[str, Outcome]:
        """The point selected by the options, and its current Record, or the last one of a
        commit."""
        found: dict[str, Outcome] = {}
        benchmark = metric.benchmark
        index = benchmark.index
        for label, name in index:
            # A Record quoted by its commit need not be on the line.
            outcomes = (index.stored if commit else index.on_line)((label, name))
            texts = {key: unquoted(text) for key, text in metric.benchmark.points[label].items()}
            if name not in machines or any(
                texts.get(key) != value for key, value in params.items()
            ):
                continue
            for outcome in outcomes:  # ascending by rank
                known = (outcome.revision >= 0 or commit) and metric.metric in outcome.readings
                if known and outcome.commit.startswith(commit):
                    found[label] = outcome
        if len(found) != 1:
            points = (
                f"{len(found)} points match, for example {'; '.join(list(found)[:3])}"
                if found
                else "no Record"
            )
            left_out = describe_outside(
                self.history.outside_of({metric.benchmark.name}), self.history.branches[0]
            )
            points += f"; {left_out}" if left_out and not found else ""
            error = HpmlError if found else _NotMeasured
            machine = quote.options.get("machine", "")
            raise error(f"{quote.name} machine={machine} {_joined(params)}: {points}", quote.where)
        return next(iter(found.items()))

    def _drawable(self, quote: Quote) -> Drawable:
        if quote.name not in self.figures:  # the site omits figures without rows
            raise _NotMeasured(
                f"no figure {quote.name!r}; {nearest(quote.name, list(self.figures))}", quote.where
            )
        drawable = self.figures[quote.name]
        if drawable.error:
            raise drawable.error
        return drawable

    def _rows(self, quote: Quote) -> Table:
        """The rows of the figure's table whose columns have the values that the options name."""
        wanted = {
            key: value for key, value in quote.options.items() if key not in ("column", "columns")
        }
        table = self._drawable(quote).table
        if len(table) and (unknown := [key for key in wanted if key not in table.columns]):
            raise HpmlError(
                f"no column {unknown[0]!r}; {nearest(unknown[0], list(table.columns))}", quote.where
            )

        def matches(row: Row) -> bool:
            return all(_is_named(row[key], value.split("|")) for key, value in wanted.items())

        found = table.filtered(matches)
        if not len(found):
            raise _NotMeasured(f"no row of {quote.name} has {_joined(wanted)}", quote.where)
        return found

    def _only(self, quote: Quote) -> _SingleCell:
        """The column of the single row selected by the options."""
        rows = self._rows(quote)
        column = quote.options.get("column", "")
        shown, links = self._chosen(quote, rows, [column])
        if len(shown) > 1:
            raise HpmlError(
                f"{len(shown)} rows of {quote.name} match; name more columns: KEY=VALUE",
                quote.where,
            )
        row = next(rows.rows())
        value = row[column if column in row else column.removesuffix("%")]
        number = value if isinstance(value, int | float) else None
        return _SingleCell(formatted(shown)[0][0], number, links[0])

    def _chosen(
        self, quote: Quote, rows: Table, names: Sequence[str]
    ) -> tuple[Table, list[list[RecordLink]]]:
        """The named columns of these rows, and the links of each row."""
        chosen, columns = _columns(rows, names, quote.where)
        columns += [key for key in quote.options if key in rows.columns]
        origins = self.provenance.of(self._drawable(quote))
        return chosen, [
            [RecordLink.of(each, row, columns) for each in origins.of(row, columns)]
            for row in rows.rows()
        ]

    def _cell(self, quote: Quote) -> Answer:
        cell = self._only(quote)
        return Answer(self._labelled(quote, cell.text, cell.links), [cell.links], cell.number)

    def _ratio(self, quote: Quote) -> Answer:
        options = {key: value for key, value in quote.options.items() if not key.startswith(_OVER)}
        instead = {
            key.removeprefix(_OVER): value
            for key, value in quote.options.items()
            if key.startswith(_OVER)
        }
        if quote.name not in self.figures:
            return self._ratio_of_points(quote, options, options | instead)
        above, below = (
            self._only(replace(quote, options=each)) for each in (options, options | instead)
        )
        if above.number is None or not below.number:
            raise HpmlError(f"no ratio of {above.text} and {below.text}", quote.where)
        ratio = above.number / below.number
        links = list(dict.fromkeys((*above.links, *below.links)))
        return Answer(self._labelled(quote, times(ratio), links), [links], ratio)

    def _ratio_of_points(
        self, quote: Quote, above: Mapping[str, str], below: Mapping[str, str]
    ) -> Answer:
        is_one = "commit" in above or "commit" in below
        read = self._of_record if is_one else self._of_type
        one, other = (read(replace(quote, options=options)) for options in (above, below))
        divided, divisor = one.value.value, other.value.value
        if not divisor:
            raise HpmlError(f"no ratio of {divided!r} and {divisor!r}", quote.where)
        ratio = divided / divisor
        return Answer(times(ratio), [list(dict.fromkeys((one.link, other.link)))], ratio)

    def _table(self, quote: Quote) -> Answer:
        rows = self._rows(quote)
        names = (
            quote.options["columns"].split(",")
            if "columns" in quote.options
            else list(rows.columns)
        )
        chosen, links = self._chosen(quote, rows, names)
        label = self._label(list(itertools.chain(*links)))
        which = label.removesuffix(" each").removeprefix("one ")
        newest = "the newest" if which == "Record" else "the newest Record"
        noted = f"\nO{label[1:]}: {newest}.\n" if label else ""
        is_of_cards = "card" in chosen.columns
        return Answer(f"\n{as_markdown(chosen)}{'' if is_of_cards else noted}", links)

    def _figure(self, quote: Quote) -> Answer:
        drawable = self._drawable(quote)
        title, drawn = drawable.figure.title, drawable.picture or drawable.picture_error
        if drawable.figure.chart is None and not drawn:
            raise HpmlError(f"figure {quote.name!r} has no chart; quote its table", quote.where)
        return Answer(f"\nChart: {title} (`hpml plot {quote.name}`)\n")

    def _benchmark(self, quote: Quote) -> Answer:
        names = [each.name for each in self.history.benchmarks]
        if quote.name not in names:
            raise HpmlError(
                f"no benchmark {quote.name!r}; {nearest(quote.name, names)}", quote.where
            )
        return Answer(f"`{quote.name}`", [[RecordLink(quote.name, "", "", "", "", "")]])


def _broken(answer: Answer, name: str, bound: str, where: str) -> str:
    """What to add to an answer that is not as its sentence claims, else "".  name, bound: of the
    option."""
    try:
        claimed = float(bound)
    except ValueError:
        raise HpmlError(f"{name}={bound}: write a number in SI base units", where) from None
    if answer.number is None:
        raise HpmlError(f"{name}={bound}: {answer.text.strip()!r} is no number", where)
    fulfilled = _CLAIMS[name](answer.number, claimed)
    return "" if fulfilled else f" ({CONTRADICTS}: not {name} {bound})"


def _columns(rows: Table, names: Iterable[str], where: str) -> tuple[Table, list[str]]:
    """The named columns, and their old names: `NAME`, `NAME%` for a share in per cent,
    `NAME=another name`."""
    shares, chosen = {}, {}
    for name in names:
        old, _, new = name.partition("=")
        column = old.removesuffix("%") if old not in rows.columns else old
        if column not in rows.columns:
            raise HpmlError(f"no column {column!r}; {nearest(column, list(rows.columns))}", where)
        chosen[new or column] = column
        if column != old:
            shares[new or column] = "1"  # so that the text is right-aligned, like a number
    picked = rows.select(**chosen)
    if shares:
        picked = picked.extended(
            lambda row: {name: _in_percent(row[name]) for name in shares}, shares
        )
    return picked, list(chosen.values())


def _is_named(cell: Cell, texts: Sequence[str]) -> bool:
    """Whether an option selects the cell, by its text in the table or in the form of `-p`."""
    return cell in texts or format_choice(cell) in texts


def _noun(value: TypeValue) -> str:
    """The noun for counting what measured a value."""
    card = value.newest.card
    return "card" if card.startswith(("GPU-", "MIG-")) and "," not in card else "node"


def _joined(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in options.items())


def _in_percent(share: Cell) -> Cell:
    return f"{share * 100:.4g} %" if isinstance(share, int | float) else share


def fill(markdown: str, name: str, text: Callable[[Quote], str], *, keep: bool = True) -> str:
    """The Markdown with the text of every quote regenerated.

    name: of the file, for errors.  text: a quote's.  keep: whether the comments stay, so that it
    can be filled again. Raises HpmlError for a quote that cannot be answered.
    """

    def replaced(match: re.Match[str]) -> str:
        where = f"{name}:{markdown.count(chr(10), 0, match.start()) + 1}"
        made = text(replace(Quote.parse(match["words"], where), text=match["text"]))
        return f"<!--= {match['words']} -->{made}<!--/-->" if keep else made

    return _QUOTE.sub(replaced, markdown)
