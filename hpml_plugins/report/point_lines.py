"""One line for each point of a run, and one for what a reader may doubt of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hpml_plugins.model.formatting import format_point
from hpml_plugins.model.record import Record
from hpml_plugins.report.doubts import doubts
from hpml_plugins.report.shares import Roof, describe_limit
from hpml_plugins.report.tables import spell_samples
from hpml_plugins.terminal import one_line

#: Characters of the longest name that is shown with all parameters.
LONGEST_NAME = 44


def point_lines(records: Sequence[Record], roof: Roof, width: int) -> Iterator[str]:
    """The measured and failed points, in their order: name, first metric, share of the limit; below
    it what is doubtful, cut to this width."""
    shown = [record for record in records if record.status in ("ok", "failed")]
    names = _names(shown)
    longest = max(map(len, names), default=0)
    for name, record in zip(names, shown, strict=True):
        said = f"FAILED: {record.reason}"
        if record.status == "ok":
            said = describe_first(record, roof)
        yield f"{one_line(name):{longest}}  {one_line(said)}"
        if record.status == "failed":
            continue
        if found := doubts(record):
            line = one_line(f"! {'; '.join(found)}")
            yield "    " + (line if len(line) <= width - 4 else f"{line[: width - 5]}…")


def _names(records: Sequence[Record]) -> list[str]:
    """Benchmark and point of each; of a long one only the parameters in which the points of its
    benchmark differ."""
    names = []
    for benchmark, group in itertools.groupby(records, lambda each: each.benchmark):
        points = [record.params for record in group]
        varying = {
            key
            for key in points[0]
            if len({repr(params.get(key)) for params in points}) > 1
        }
        for params in points:
            name = f"{benchmark} {format_point(params)}".rstrip()
            if len(name) > LONGEST_NAME:
                short = {key: value for key, value in params.items() if key in varying}
                name = f"{benchmark} {format_point(short)}".rstrip()
            names.append(name)
    return names


def describe_first(record: Record, roof: Roof) -> str:
    """The first metric with its interval, and the share of the limit where that is known."""
    if not record.metrics:
        return "no metric"
    name, samples = next(iter(record.metrics.items()))
    value = f"{name} {spell_samples(samples, samples.unit)}"
    return ", ".join(filter(None, [value, describe_limit(record, roof)]))
