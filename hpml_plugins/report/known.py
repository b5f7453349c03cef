"""All Records as `hpml compare` needs them: a part of each, and the whole Record of the few that
are needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hpml_plugins.analysis.measured import MeasuredValue, Values
from hpml_plugins.analysis.reference import BENCHMARK as REFERENCE
from hpml_plugins.analysis.reference import References
from hpml_plugins.analysis.variability import Place, fill_in_spreads
from hpml_plugins.model.record import Record
from hpml_plugins.report.reading import Outcome, read_stored, stored_record
from hpml_plugins.store import foreign_declarations


class Names(NamedTuple):
    """Names that can identify a side of a Record."""

    machine: str
    environment: str
    commit: str

    def may_be(self, name: str) -> bool:
        """Whether this can be the name of a side."""
        return name in (self.machine, self.environment) or self.commit.startswith(name)


class KnownRecords:
    """The Records of a results folder, including those of foreign benchmarks, with the spreads of
    their values, estimated from all Records: a million take some hundred MB.

    names: all in scope.  records: the requested ones in scope, in the order stored.
    """

    def __init__(
        self,
        results: Path,
        on_damage: Callable[[str], None],
        is_in_scope: Callable[[Outcome], bool],
        is_asked: Callable[[Names], bool],
    ) -> None:
        self.records: list[Outcome] = []
        self.names: dict[Names, bool] = {}
        self._foreign: dict[int, Record] = {}
        points: dict[tuple[str, Place], list[MeasuredValue]] = {}
        references = References()
        declared = foreign_declarations(results)
        for outcome, _, record in read_stored(results, declared, on_damage, keeps=True):
            if is_in_scope(outcome):
                names = Names(outcome.machine, outcome.environment, outcome.commit)
                if names not in self.names:
                    self.names[names] = is_asked(names)
                if self.names[names]:
                    self.records.append(outcome)
                    if record and not outcome.file:
                        self._foreign[id(outcome)] = record
            if outcome.benchmark == REFERENCE:
                references.add(record or stored_record(outcome))
            for name, reading in outcome.readings.items():
                place = Place(outcome.benchmark, outcome.point, name)
                points.setdefault((outcome.machine, place), []).append(reading)
        fill_in_spreads(
            ((place, readings) for (_, place), readings in points.items()), references
        )

    def values(self, known: Outcome) -> Values:
        """The values of every metric by which it is compared, with their spreads."""
        return known.readings

    def code(self, known: Outcome) -> str:
        """See `measured.code_of`; "" for a Record without a value."""
        return next((each.code for each in known.readings.values()), "")

    def whole(self, known: Outcome) -> Record:
        """The complete Record."""
        return self._foreign.get(id(known)) or stored_record(known)
