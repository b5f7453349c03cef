"""What is checked, and what the worker saw, as plain values that go from process to process as JSON."""

from __future__ import annotations

import msgspec

from hpml_plugins.model import Value
from hpml_plugins.registry import PluginSource


class CheckedPlugin(msgspec.Struct, frozen=True):
    """A plugin's source, and the folder that its path is relative to, which is also where results/ may be."""

    source: PluginSource
    folder: str


class Declared(msgspec.Struct, frozen=True):
    """A benchmark as it was declared. metrics: name, unit, direction."""

    name: str
    version: str
    metrics: list[tuple[str, str, str]]
    grid: dict[str, list[Value]]
    description: str


class Loaded(msgspec.Struct, frozen=True):
    """What loading gave.

    seconds: CPU time.  effects: what it did to the process.  problems: of its hooks.  constant: where bench.check is
    called with a constant.
    """

    error: str
    seconds: float
    heavy: list[str]
    effects: list[str]
    benchmarks: list[Declared]
    problems: list[str]
    constant: list[str]


class Observed(msgspec.Struct, frozen=True):
    """What a point did. undeclared: not in `Requires`.  results: how many values went through `bench.result`."""

    undeclared_imports: list[str] = []
    undeclared_programs: list[str] = []
    results: int = 0


class Tried(msgspec.Struct, frozen=True):
    """One point measured. fault: which was injected, or "".  relaxed: without the GPUs that it asks for.

    status: a Record's, or "unfinished" where the check's time ended it and not its own timeout.
    """

    benchmark: str
    params: dict[str, Value]
    fault: str
    status: str
    reason: str
    checks: list[str]
    observed: Observed | None
    relaxed: bool
