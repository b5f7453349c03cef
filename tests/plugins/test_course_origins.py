"""Which Records the rows of a figure's table rest on: of one Record, of several, of none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from records import a_record

from hpml_plugins import Table
from hpml_plugins.model.record import Record
from hpml_plugins.plugins.course.origins import Origins, RecordLink


def measured(machine: str, variant: str, seconds: float, **metrics: float) -> Record:
    return a_record(
        "copy",
        {"time": seconds, **metrics},
        params={"variant": variant},
        machine=machine,
        commit="abcdef0123",
    )


PLAIN, FAST, OTHER = (
    measured("m", "plain", 2.0),
    measured("m", "fast", 1.0),
    measured("n", "plain", 4.0),
)
PUBLISHED = {"machine": "published", "time": 9.0}


def times(records: Sequence[Record]) -> Table:
    """One row of each Record, and one that somebody else published."""
    return Table.of([*Table.of_records(records, "time").rows(), PUBLISHED])


def speedups(records: Sequence[Record]) -> Table:
    """Against the plain variant of the machine; raises without any Record."""
    plain = {
        record.machine: record.value("time")
        for record in records
        if record.params["variant"] == "plain"
    }
    _ = records[0]

    def more(record: Record) -> dict[str, float | None]:
        base = plain.get(record.machine)
        return {"speedup": base and base / record.metrics["time"].value}

    return Table.of_records(records, "time", more=more)


def fastest(records: Sequence[Record]) -> Table:
    """Of all machines together."""
    return Table.of(
        [
            {
                "fastest": min(record.metrics["time"].value for record in records),
                "of": len(records),
            }
        ]
    )


def counts(records: Sequence[Record]) -> Table:
    """A row for each point, of all machines that counted it."""
    found: dict[str, list[str]] = {}
    for record in records:
        found.setdefault(str(record.params["variant"]), []).append(record.machine)
    return Table.of(
        [
            {"variant": name, "counted_on": ", ".join(machines)}
            for name, machines in found.items()
        ]
    )


Made = Callable[[Sequence[Record]], Table]


@pytest.mark.parametrize(
    ("table", "records", "expected"),
    [
        (times, [PLAIN, FAST, OTHER], [[PLAIN], [FAST], [OTHER], []]),
        # the published row is there with every Record, which is only one here
        (times, [PLAIN], [[PLAIN], []]),
        (speedups, [PLAIN, FAST, OTHER], [[PLAIN], [FAST, PLAIN], [OTHER]]),
        (fastest, [PLAIN, FAST, OTHER], [[]]),  # of several machines
        # one point on two machines: its page has both
        (counts, [PLAIN, FAST, OTHER], [[PLAIN], [FAST]]),
        (times, [], [[]]),
    ],
)
def test_a_row_rests_on_the_records_that_make_it(
    table: Made, records: list[Record], expected: list[list[Record]]
) -> None:
    origins = Origins.trace(table, records)
    assert [origins.of(row) for row in table(records).rows()] == expected


def test_a_cell_of_a_row_of_several_records_may_rest_on_one_of_them() -> None:
    origins = Origins.trace(speedups, [PLAIN, FAST])
    _, row = speedups([PLAIN, FAST]).rows()
    assert origins.of(row, ["variant", "time"]) == [FAST]
    assert origins.of(row, ["variant", "speedup"]) == [FAST, PLAIN]


def test_a_row_of_one_of_several_cards_rests_first_on_the_record_of_that_card() -> None:
    """A row of each card, all of which depend on all Records of the point."""

    def shares(records: Sequence[Record]) -> Table:
        total = sum(record.metrics["time"].value for record in records)
        return Table.of(
            [
                {
                    "machine": record.machine,
                    "card": str(record.gpus[0]["uuid"]).removeprefix("GPU-")[:8],
                    "share": record.metrics["time"].value / total,
                }
                for record in records
            ]
        )

    records = [
        msgspec.structs.replace(
            measured("m", "plain", seconds),
            node={"gpus": [{"name": "A", "uuid": f"GPU-{digits}-aaaa-bbbb"}]},
        )
        for digits, seconds in (("01234567", 1.0), ("89abcdef", 2.0), ("76543210", 5.0))
    ]
    origins = Origins.trace(shares, records)
    for row, record in zip(shares(records).rows(), records, strict=True):
        assert origins.resting_on(row) == records
        assert origins.of(row) == [record]


def test_a_link_is_to_the_history_of_the_metric_that_the_row_shows() -> None:
    record = measured("m", "fast", 1.0, total=3.0)
    # the column `time` shows the metric `total`
    row = {"variant": "fast", "time": 3.0, "kernel": 1.0}
    found = RecordLink.of(record, row, ["time"])
    assert found == (
        "copy",
        "total",
        "variant=fast",
        "m",
        "abcdef01",
        "one Record, m at abcdef01: copy · total 3.000 s",
    )
    assert RecordLink.of(record, row, ["variant", "kernel"]).metric == "time"
    assert RecordLink.of(record, row, ["variant"]).metric == "time"
