"""Versions of a built-in plugin's files that measure a benchmark in the same way.

A Record has the digest of all files of its plugin, and values with equal digests are repetitions. A
new legend or an added benchmark would change the digest and so separate the cards of a type.
alike_code.json has, by benchmark, groups of digests whose files differ only in comments, layout,
charts or modules that the benchmark does not use. `tests/alike_code.py` finds them in the history
of this repository (`make docs`).
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpml_plugins.model.record import Record

ALIKE = Path(__file__).with_name("alike_code.json")
#: Characters of a digest that identify it.
SHORT = 16


def measuring_code(record: Record) -> str:
    """An identifier of the plugin's code, equal for code that measures in the same way; the commit
    if the Record has no digest."""
    if not (digest := record.source.get("sha256", "")[:SHORT]):
        return record.commit
    return _first_alike().get((record.benchmark, digest), digest)


@functools.cache
def _first_alike() -> dict[tuple[str, str], str]:
    groups: dict[str, list[list[str]]] = json.loads(ALIKE.read_text(encoding="utf-8"))
    first: dict[tuple[str, str], str] = {}
    for benchmark, found in groups.items():
        for group in found:
            first |= {(benchmark, digest): group[0] for digest in group}
    return first
