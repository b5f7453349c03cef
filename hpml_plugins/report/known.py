"""Records for comparisons: a part of each, and the whole Record of the few that are needed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.reference import BENCHMARK as REFERENCE
from hpml_plugins.analysis.reference import References
from hpml_plugins.analysis.variability import Place, fill_in_spreads
from hpml_plugins.model.record import Record
from hpml_plugins.report.reading import Outcome, read_stored, stored_record
from hpml_plugins.store import DECLARATIONS, read_object_or_empty
from hpml_plugins.store.declarations import read_declarations


class Names(NamedTuple):
    """Names that can identify a side of a Record."""

    machine: str
    environment: str
    commit: str

    def may_be(self, name: str) -> bool:
        """Whether this can be the name of a side."""
        return name in (self.machine, self.environment) or self.commit.startswith(name)


class KnownRecords:
    """What is kept of Records, with the spreads of their values: a million take some hundred MB.

    Spreads are estimated from all Records of the declared versions, as on the pages; if Records of
    other versions are requested, theirs from all Records.

    names: all in scope.  records: the requested ones in scope, in the order given.
    """

    def __init__(
        self,
        kept: Iterable[tuple[Outcome, Record | None]],
        is_in_scope: Callable[[Outcome], bool],
        is_asked: Callable[[Names], bool],
        versions: Mapping[str, str] = {},
    ) -> None:
        """kept: with the whole Record if it was read; it must be given for one without a file.
        versions: the declared one of each benchmark."""
        self.records: list[Outcome] = []
        self.names: dict[Names, bool] = {}
        self._without_file: dict[int, Record] = {}
        points: dict[tuple[str, str, Place], list[MeasuredValue]] = {}
        references = References()
        for outcome, record in kept:
            if is_in_scope(outcome):
                names = Names(outcome.machine, outcome.environment, outcome.commit)
                if names not in self.names:
                    self.names[names] = is_asked(names)
                if self.names[names]:
                    self.records.append(outcome)
                    if record and not outcome.file:
                        self._without_file[id(outcome)] = record
            if outcome.benchmark == REFERENCE:
                references.add(record or stored_record(outcome))
            for name, reading in outcome.readings.items():
                place = Place(outcome.benchmark, outcome.point, name)
                key = (outcome.machine, outcome.version, place)
                points.setdefault(key, []).append(reading)

        def is_declared(benchmark: str, version: str) -> bool:
            return versions.get(benchmark, version) == version

        declared = [
            (place, readings)
            for (_, version, place), readings in points.items()
            if is_declared(place.benchmark, version)
        ]
        if not all(is_declared(each.benchmark, each.version) for each in self.records):
            every = ((place, readings) for (*_, place), readings in points.items())
            fill_in_spreads(every, references)
            for reading in itertools.chain.from_iterable(each for _, each in declared):
                reading.spread = reading.adjusted = None
        fill_in_spreads(declared, references)

    @classmethod
    def read(
        cls,
        results: Path,
        on_damage: Callable[[str], None],
        is_in_scope: Callable[[Outcome], bool],
        is_asked: Callable[[Names], bool],
    ) -> KnownRecords:
        """Those of a results folder, including those of foreign benchmarks."""
        declared = read_declarations(read_object_or_empty(results / DECLARATIONS))
        foreign = {name: each for name, each in declared.items() if not each.is_ours}
        versions = {
            each.benchmark: each.version for each in declared.values() if each.is_ours
        }
        stored = read_stored(results, foreign, on_damage, keeps=True)
        kept = ((outcome, record) for outcome, _, record in stored)
        return cls(kept, is_in_scope, is_asked, versions)

    @classmethod
    def of(cls, records: Sequence[Record], others: Sequence[Record] = ()) -> KnownRecords:
        """These Records.  others: from which spreads are estimated as well."""
        requested = [(Outcome.of(record), record) for record in records]
        further = [(Outcome.of(record), record) for record in others]
        in_scope = {id(outcome) for outcome, _ in requested}
        return cls(
            [*requested, *further], lambda each: id(each) in in_scope, lambda names: True
        )

    def whole(self, known: Outcome) -> Record:
        """The complete Record."""
        return self._without_file.get(id(known)) or stored_record(known)
