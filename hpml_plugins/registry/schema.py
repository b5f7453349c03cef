"""The shape of registry.yaml, as msgspec types: what is checked, and what editors get as a JSON schema."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from hpml_plugins.model.benchmark import Value

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*$", description="lower-case letters, digits and _")]
Values = Annotated[list[Value], msgspec.Meta(min_length=1)]
#: benchmark → parameter → values
GridChoice = dict[str, dict[str, Values]]
#: The same of a profile, or false for none of a benchmark's points.
ProfileChoice = dict[str, dict[str, Values] | bool]


class PluginSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plugin's name and the one place it comes from. Unknown fields pass: newer suites may carry more."""

    name: Name
    module: Annotated[str, msgspec.Meta(description="an importable module")] | None = None
    entry_point: Annotated[str, msgspec.Meta(description="a name in the entry point group 'hpml'")] | None = None
    path: Annotated[str, msgspec.Meta(description="a Python file, relative to registry.yaml")] | None = None
    version: (
        Annotated[
            str, msgspec.Meta(description="pin: the installed distribution's version, in quotes; checked before import")
        ]
        | None
    ) = None
    sha256: (
        Annotated[
            str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$", description="pin: the code's SHA-256; checked before import")
        ]
        | None
    ) = None

    @property
    def sources(self) -> dict[str, str]:
        """The given sources; a valid entry has exactly one."""
        given = {"module": self.module, "entry_point": self.entry_point, "path": self.path}
        return {kind: name for kind, name in given.items() if name is not None}

    @property
    def source(self) -> PluginSource:
        """Only where it comes from, pins included: what a suite carries."""
        return PluginSource(self.name, self.module, self.entry_point, self.path, self.version, self.sha256)

    @property
    def entry(self) -> PluginEntry:
        """An entry that says no more than the source."""
        return PluginEntry(self.name, self.module, self.entry_point, self.path, self.version, self.sha256)


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long a plugin's steps are sampled; what is left out is the default of `measuring.sampling.Plan`."""

    precision: (
        Annotated[
            float, msgspec.Meta(gt=0, lt=1, description="half-width of the median's 95 % interval, as a share of it")
        ]
        | None
    ) = None
    budget: Annotated[float, msgspec.Meta(gt=0, description="s of sampling, at most, for each timed step")] | None = (
        None
    )


class PluginEntry(PluginSource, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One plugin of the registry: where it comes from and what it runs with."""

    enabled: bool = True
    grid: Annotated[
        GridChoice, msgspec.Meta(description="benchmark → parameter → values that replace the plugin's own")
    ] = {}
    timeout: Annotated[float, msgspec.Meta(gt=0, description="s, for each point")] | None = None
    sampling: Sampling = Sampling()
    profiles: Annotated[
        dict[str, ProfileChoice],
        msgspec.Meta(
            description="profile → benchmark → parameter → the values that the profile measures; false: none of them"
        ),
    ] = {}

    def choice(self, profile: str, benchmark: str) -> dict[str, Values] | None:
        """Parameter → the values that a profile measures, all of those not named; None: no point of the benchmark."""
        chosen = self.profiles.get(profile, {}).get(benchmark, True)
        if isinstance(chosen, bool):
            return {} if chosen else None
        return chosen


class RegistryFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    version: Literal[1]
    plugins: list[PluginEntry]


def plugin_name(text: str) -> str:
    """A name that an entry may have, made of any text: `hpml-softmax` becomes `hpml_softmax`."""
    return re.sub(r"^[^a-z]+", "", re.sub(r"[^a-z0-9_]+", "_", text.lower())) or "plugin"


def json_schema() -> dict[str, Any]:
    """The JSON schema of registry.yaml, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(RegistryFile)}
