"""The roof of a machine: the highest rates that it was seen to reach."""

from __future__ import annotations

from collections.abc import Iterable

from hpml_plugins.model.record import Record
from hpml_plugins.model.work import DeclaredWork, Limit


class Roof:
    """The measured roof of a machine: the highest rates in its Records of steps that were declared
    to look for them."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._highest: dict[tuple[bool, str], float] = {}
        for record in records:
            for name, work in record.work.items():
                if work.roof and (seconds := record.median(name)):
                    for kind, amount in ((work.dtype, work.flop), ("bytes", work.bytes)):
                        key, rate = (work.gpus > 0, kind), amount / seconds / max(1, work.gpus)
                        self._highest[key] = max(self._highest.get(key, 0.0), rate)

    def limit(self, work: DeclaredWork) -> Limit:
        """That of the device that the work ran on."""
        return Limit(*(self._highest.get((work.gpus > 0, kind)) for kind in (work.dtype, "bytes")))
