"""All Records as `hpml compare` needs them: a part of each, and the whole Record of the few that
are needed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_plugins.analysis.measured import MeasuredValue, Values
from hpml_plugins.analysis.reference import BENCHMARK as REFERENCE
from hpml_plugins.analysis.reference import References
from hpml_plugins.analysis.variability import Place, fill_in_spreads
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.record import Record, Status, point_key
from hpml_plugins.report.reading import Outcome, read_stored, stored_record
from hpml_plugins.store import foreign_declarations


class KnownRecord(msgspec.Struct, gc=False):
    """The part of a Record that is kept, with the same attribute names. point: see
    `Record.point`."""

    machine: str
    benchmark: str
    version: str
    params: Params
    point: str
    outcome: Outcome

    @property
    def commit(self) -> str:
        """The full hash; empty for none."""
        return self.outcome.commit

    @property
    def environment(self) -> str:
        """See `Record.environment`."""
        return self.outcome.environment

    @property
    def status(self) -> Status:
        """See `Record.status`."""
        return self.outcome.status

    @property
    def started(self) -> float:
        """Unix time, s."""
        return self.outcome.started

    @property
    def of_stack(self) -> bool:
        """See `Record.of_stack`."""
        return self.outcome.of_stack


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
        is_in_scope: Callable[[KnownRecord], bool],
        is_asked: Callable[[Names], bool],
    ) -> None:
        self.records: list[KnownRecord] = []
        self.names: dict[Names, bool] = {}
        self._foreign: dict[int, Record] = {}
        points: dict[tuple[str, Place], list[MeasuredValue]] = {}
        references = References()
        # keep one copy of each point's parameters
        shared: dict[bytes, tuple[Params, str]] = {}
        declared = foreign_declarations(results)
        for stored, _, record in read_stored(results, declared, on_damage, keeps=True):
            of_point = stored.benchmark, stored.version, stored.params
            key = msgspec.json.encode(of_point)
            if key not in shared:
                shared[key] = stored.params, point_key(*of_point)
            machine = sys.intern(stored.machine)
            benchmark = sys.intern(stored.benchmark)
            version = sys.intern(stored.version)
            known = KnownRecord(machine, benchmark, version, *shared[key], stored.outcome)
            if is_in_scope(known):
                names = Names(machine, known.environment, known.commit)
                if names not in self.names:
                    self.names[names] = is_asked(names)
                if self.names[names]:
                    self.records.append(known)
                    if record and not stored.outcome.file:
                        self._foreign[id(known)] = record
            if benchmark == REFERENCE:
                references.add(record or stored_record(stored.outcome))
            for name, reading in stored.outcome.readings.items():
                place = Place(benchmark, known.point, name)
                points.setdefault((machine, place), []).append(reading)
        fill_in_spreads(
            ((place, readings) for (_, place), readings in points.items()), references
        )

    def values(self, known: KnownRecord) -> Values:
        """The values of every metric by which it is compared, with their spreads."""
        return known.outcome.readings

    def code(self, known: KnownRecord) -> str:
        """See `measured.code_of`; "" for a Record without a value."""
        return next((each.code for each in known.outcome.readings.values()), "")

    def whole(self, known: KnownRecord) -> Record:
        """The complete Record."""
        return self._foreign.get(id(known)) or stored_record(known.outcome)
