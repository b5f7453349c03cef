"""registry.yaml: its schema as msgspec types, its JSON schema, and reading it. Every error names
its line."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hpml_plugins.errors import LONGEST, RegistryError, UsageError
from hpml_plugins.model.benchmark import Value
from hpml_plugins.registry.lines import YamlLines, read_yaml

DEFAULT_PATH = Path("registry.yaml")
#: The profile that always means every point.
EVERYTHING = "full"
# Python's `$` also matches before a trailing line break; `\Z`, which does not, is unknown to JSON
# schema.
Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9_]*$(?!\n)", description="lower-case letters, digits and _"
    ),
]
Version = Annotated[
    str,
    Meta(
        description="pin: the installed distribution's version, in quotes; checked before import"
    ),
]
Hash = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-f]{64}$(?!\n)",
        description="pin: the code's SHA-256; checked before import",
    ),
]
Precision = Annotated[
    float,
    Meta(
        gt=0, lt=1, description="half-width of the median's 95 % interval, as a share of it"
    ),
]
Budget = Annotated[
    float, Meta(gt=0, lt=LONGEST, description="s of sampling, at most, for each timed step")
]
Rounds = Annotated[
    int, Meta(ge=1, le=100, description="fresh processes in which a point is measured")
]
Percent = Annotated[float, Meta(gt=0, lt=1000, description="%")]
Values = Annotated[list[Value], Meta(min_length=1)]
#: benchmark → parameter → values
GridChoice = dict[str, dict[str, Values]]
#: In a profile: every benchmark of the plugin that it does not name.
OTHERS = "*"
#: The same in a profile; false for no points of a benchmark.
ProfileChoice = dict[str, dict[str, Values] | bool]
Profiles = Annotated[
    dict[str, ProfileChoice],
    Meta(
        description=(
            "profile → benchmark (*: the others) → parameter → the values that are measured; false:"
            " none"
        )
    ),
]

GateBudgets = Annotated[
    dict[str, dict[str, Percent] | Percent],
    Meta(
        description="benchmark → the slow-down in % that `hpml gate` allows, or metric → %"
    ),
]


class PluginSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plugin's name and its single source. Unknown fields are accepted: newer suites may have
    more."""

    name: Name
    module: Annotated[str, Meta(description="an importable module")] | None = None
    entry_point: (
        Annotated[str, Meta(description="a name in the entry point group 'hpml'")] | None
    ) = None
    path: (
        Annotated[str, Meta(description="a Python file, relative to registry.yaml")] | None
    ) = None
    version: Version | None = None
    sha256: Hash | None = None

    @property
    def sources(self) -> dict[str, str]:
        """The given sources; a valid entry has exactly one."""
        given = {"module": self.module, "entry_point": self.entry_point, "path": self.path}
        return {kind: name for kind, name in given.items() if name is not None}

    @property
    def source(self) -> PluginSource:
        """Only the source, including pins, for a suite."""
        return PluginSource(
            self.name, self.module, self.entry_point, self.path, self.version, self.sha256
        )


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long a plugin's steps are sampled; defaults are those of `measure.SamplingPlan`.

    precision, budget: of all rounds together.  rounds: of benchmarks that have several.
    """

    precision: Precision | None = None
    budget: Budget | None = None
    rounds: Rounds | None = None


class PluginEntry(
    PluginSource, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One plugin of the registry: where it comes from and how it is run."""

    enabled: bool = True
    grid: Annotated[
        GridChoice,
        Meta(description="benchmark → parameter → values that replace the plugin's own"),
    ] = {}
    timeout: (
        Annotated[float, Meta(gt=0, lt=LONGEST, description="s, for each point")] | None
    ) = None
    sampling: Sampling = Sampling()
    profiles: Profiles = {}
    gate: GateBudgets = {}

    def choice(self, profile: str, benchmark: str) -> dict[str, Values] | None:
        """Parameter → the values that a profile measures; all values of parameters that are not
        named. None: no point of the benchmark."""
        choice = self.profiles.get(profile, {})
        chosen = choice.get(benchmark, choice.get(OTHERS, True))
        if isinstance(chosen, bool):
            return {} if chosen else None
        return chosen


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A question to a machine, and the value that answers it.

    task: in the reader's words.  metric: `benchmark.metric`.  point: parameters of the point; those
    omitted must leave exactly one point.
    """

    task: Annotated[str, Meta(min_length=1, max_length=80)]
    metric: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$(?!\n)")]
    point: dict[str, Value] = {}


class TaskEntry(Question, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A question to a GPU: a row of the site's first page, and a line at the end of a run.

    regime: which rate of a throttled step is meant: the settled one, or the initial boost.  on_cpu:
    the question used instead at the end of a run on a node without a GPU.
    """

    regime: Literal["settled", "boost"] = "settled"
    on_cpu: Question | None = None


#: Heading → rows, in the order of the page.
Tasks = Annotated[
    dict[str, list[TaskEntry]],
    Meta(description="rows of the site's first page: heading → tasks"),
]


class RegistryFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    version: Literal[1]
    plugins: list[PluginEntry]
    tasks: Tasks = {}


@dataclass(frozen=True)
class Registry:
    """A valid registry: its file, its plugins in order, and the line of each of its values."""

    path: Path
    plugins: tuple[PluginEntry, ...]
    lines: YamlLines
    tasks: Tasks = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of the file: its paths are relative to this folder."""
        return self.path.parent.resolve()

    @property
    def enabled(self) -> list[PluginEntry]:
        """The enabled plugins."""
        return [entry for entry in self.plugins if entry.enabled]

    @property
    def profiles(self) -> list[str]:
        """The names of the profiles, `full` (every point) first."""
        named = (name for entry in self.plugins for name in entry.profiles)
        return list(dict.fromkeys([EVERYTHING, *named]))

    def entry_of(self, file: Path) -> PluginEntry | None:
        """The enabled plugin that is this file, if any."""
        for entry in self.enabled:
            if entry.path and (self.folder / entry.path).resolve() == file.resolve():
                return entry
        return None

    def at(self, plugin: str, *path: str) -> str:
        """`file:line` of a plugin's entry, or of the value at that path in it."""
        return self.lines.at(("plugins", self._places[plugin], *path))

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {entry.name: index for index, entry in enumerate(self.plugins)}


def read_registry(path: Path | str = DEFAULT_PATH) -> Registry:
    """Read the registry in that file. Raises RegistryError, with file and line, if it is
    invalid."""
    path = Path(path)
    file, lines = read_yaml(path, RegistryFile)
    _check_entries(file.plugins, lines)
    return Registry(path, tuple(file.plugins), lines, file.tasks)


def registry_of(file: Path, path: Path = DEFAULT_PATH) -> Registry:
    """A registry with only this plugin file, in place of the one at `path`: paths are relative to
    the same folder."""
    relative = os.path.relpath(file.resolve(), path.parent.resolve())
    return Registry(
        path,
        (PluginEntry(name_of_file(file), path=relative),),
        YamlLines("", str(file)),
    )


def registry_with(file: Path, path: Path) -> tuple[Registry, PluginEntry]:
    """The registry at `path` if this plugin file is enabled in it, else one with only the file; and
    the plugin's entry. Raises UsageError for a file that does not exist."""
    if not file.is_file():
        raise UsageError("no such file", str(file))
    if path.is_file():
        registry = read_registry(path)
        if entry := registry.entry_of(file):
            return registry, entry
    alone = registry_of(file, path)
    return alone, alone.plugins[0]


def is_one_of(value: object, values: Iterable[object]) -> bool:
    """Membership that distinguishes True from 1: YAML's `yes` must not select a batch of one."""
    return any(
        value == other and isinstance(value, bool) == isinstance(other, bool)
        for other in values
    )


def plugin_name(text: str) -> str:
    """Convert any text to a valid name of an entry: `hpml-softmax` becomes `hpml_softmax`."""
    return re.sub(r"^[^a-z]+", "", re.sub(r"[^a-z0-9_]+", "_", text.lower())) or "plugin"


def name_of_file(file: Path) -> str:
    """The name of the plugin in this file; for the `__init__.py` of a package, the package's
    name."""
    file = file.resolve()
    return plugin_name(file.parent.name if file.stem == "__init__" else file.stem)


def json_schema(shape: type[msgspec.Struct] = RegistryFile) -> dict[str, Any]:
    """The JSON schema of registry.yaml, or of a file with another shape, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **msgspec.json.schema(shape),
    }


def _check_entries(entries: Sequence[PluginEntry], lines: YamlLines) -> None:
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        where = lines.at(("plugins", index, "name"))
        if entry.name in first:
            other = lines.at(("plugins", first[entry.name], "name"))
            raise RegistryError(
                f"plugin name {entry.name!r} is already used by {other}; rename one of them",
                where,
            )
        first[entry.name] = index
        if len(entry.sources) != 1:
            given = " and ".join(entry.sources) or "none"
            raise RegistryError(
                f"plugin {entry.name!r} needs exactly one of module, entry_point, path; {given}"
                " given",
                where,
            )
        if entry.path is not None and entry.version is not None:
            raise RegistryError(
                f"plugin {entry.name!r}: a file has no version to pin; pin it by sha256:"
                f" (`sha256sum {entry.path}`)",
                lines.at(("plugins", index, "version")),
            )
        if EVERYTHING in entry.profiles:
            raise RegistryError(
                f"profile {EVERYTHING!r} always means every point and cannot be redefined",
                lines.at(("plugins", index, "profiles", EVERYTHING)),
            )
