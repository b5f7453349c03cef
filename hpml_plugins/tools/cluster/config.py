"""cluster.yaml: the targets that jobs run on. Every error names its line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hpml_plugins.errors import RegistryError, UsageError, nearest
from hpml_plugins.registry import YamlLines, explain

#: Hours of a year.
MAX_HOURS = 8784
FILE = "cluster.yaml"

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="letters, digits, _ . and -")]


class Python(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a job gets to the Python that has torch, in this order: modules, shell lines, then venv or container."""

    modules: Annotated[list[str], Meta(description="for `module load`")] = []
    setup: Annotated[list[str], Meta(description="lines of bash that run first")] = []
    venv: Annotated[str, Meta(description="a virtual environment's folder, as the node sees it")] | None = None
    container: (
        Annotated[str, Meta(description="an Apptainer image; runs with --nv where GPUs are requested")] | None
    ) = None
    command: Annotated[str, Meta(description="the Python itself; default: the one that submits")] | None = None


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where one job runs, and the machine name of its results (default: the target's own)."""

    name: Name
    machine: Name | None = None
    executor: Literal["slurm", "local"] = "slurm"
    partition: str | None = None
    constraint: str | None = None
    account: str | None = None
    qos: str | None = None
    gpus: Annotated[int, Meta(ge=0, description="on each node")] | None = None
    cpus: Annotated[int, Meta(ge=1)] | None = None
    nodes: Annotated[int, Meta(ge=1)] = 1
    side_by_side: Annotated[bool, Meta(description="a queue for each GPU of the node, each measuring a part")] = False
    hours: Annotated[float, Meta(gt=0, description="the job's time limit; it is restarted when it ends")] = 24.0
    restarts: Annotated[int, Meta(ge=0, description="after the time limit, at most")] = 20
    warning: Annotated[int, Meta(ge=1, description="s before the time limit at which the job stops by itself")] = 90
    python: Python = Python()
    options: Annotated[
        dict[str, str | int | bool], Meta(description="more options of sbatch, without the two hyphens")
    ] = {}

    @property
    def machine_name(self) -> str:
        """The machine name of its results."""
        return self.machine or self.name


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. jobs: a folder that the nodes share, relative to the file, for logs and states of jobs."""

    version: Literal[1]
    targets: Annotated[list[Target], Meta(min_length=1)]
    jobs: str = "cluster-jobs"


@dataclass(frozen=True)
class Cluster:
    """The targets, and the absolute path of the folder of jobs."""

    targets: tuple[Target, ...]
    jobs: Path

    def choose(self, names: tuple[str, ...]) -> list[Target]:
        """The named targets, or all of them. Raises UsageError for an unknown name."""
        known = {target.name: target for target in self.targets}
        for name in names:
            if name not in known:
                raise UsageError(f"no target {name!r}; {nearest(name, known)}")
        return [target for name, target in known.items() if not names or name in names]


def find_cluster(project: Path, file: Path | None = None) -> Cluster:
    """The targets of the named file or of the project's cluster.yaml; this machine where there is neither."""
    path = file or project / FILE
    if file or path.exists():
        return read_cluster(path, project)
    from hpml_plugins.node import detect_node, machine_name

    target = Target(machine_name(detect_node()), executor="local")
    return Cluster((target,), (project / "cluster-jobs").resolve())


def read_cluster(path: Path, root: Path) -> Cluster:
    """The targets in that file. Raises RegistryError, with file and line, for anything invalid."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(f"cannot be read: {error}", str(path)) from None
    lines = YamlLines(text, str(path))
    try:
        file = msgspec.convert(lines.document, ClusterFile)
    except msgspec.ValidationError as error:
        raise explain(error, lines, ClusterFile) from None
    first: dict[tuple[str, str], int] = {}
    for index, target in enumerate(file.targets):
        for key, value in (("name", target.name), ("machine", target.machine_name)):
            if (other := first.setdefault((key, value), index)) != index:
                what = f"{key} {value!r} is taken by {lines.at(('targets', other))}; one machine has one target"
                raise RegistryError(what, lines.at(("targets", index, key)))
        for key, what in _faults(target):
            raise RegistryError(what, lines.at(("targets", index, key)))
    return Cluster(tuple(file.targets), (root / file.jobs).resolve())


def _faults(target: Target) -> Iterator[tuple[str, str]]:
    """(key, what is wrong with it), of all that the types do not say."""
    if not 0 < target.hours <= MAX_HOURS:
        yield "hours", f"hours is {target.hours}, not above 0 and at most {MAX_HOURS}"
    if target.python.venv and target.python.container:
        yield "python", "either a venv or a container, not both"
    if target.side_by_side and target.nodes > 1:
        yield "nodes", "side_by_side is for one node"
    if target.executor == "local":
        for key in ("partition", "constraint", "account", "qos", "options"):
            if getattr(target, key):
                yield key, f"a local target has no {key}"


def json_schema() -> dict[str, Any]:
    """The JSON schema of cluster.yaml, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(ClusterFile)}
