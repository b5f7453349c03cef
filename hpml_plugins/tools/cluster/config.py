"""cluster.yaml: the targets that jobs run on. Every error names its line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from hpml_plugins.errors import RegistryError, UsageError, nearest
from hpml_plugins.registry import read_yaml

#: Hours of a year.
MAX_HOURS = 8784
FILE = "cluster.yaml"
#: Characters that no value may contain: values are put into a script, one line each.
_BREAKING = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

#: Options of sbatch → the key of a target that gives it.
_KEYS = {
    "partition": "partition",
    "constraint": "constraint",
    "account": "account",
    "qos": "qos",
    "gpus-per-node": "gpus",
    "cpus-per-task": "cpus",
    "nodes": "nodes",
    "time": "hours",
    "signal": "warning",
}
#: Options on whose values `hpml jobs` relies.
_OWN_OPTIONS = ("job-name", "output", "error", "dependency", "array", "chdir")

Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$(?!\n)",
        description="letters, digits, _ . and -",
    ),
]


class Python(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a job gets to the Python that has torch, in this order: modules, shell lines, then venv
    or container."""

    modules: Annotated[list[str], Meta(description="for `module load`")] = []
    setup: Annotated[list[str], Meta(description="lines of bash that run first")] = []
    venv: (
        Annotated[
            str, Meta(description="a virtual environment's folder, as the node sees it")
        ]
        | None
    ) = None
    container: (
        Annotated[
            str,
            Meta(description="an Apptainer image; runs with --nv where GPUs are requested"),
        ]
        | None
    ) = None
    command: (
        Annotated[str, Meta(description="the Python itself; default: the one that submits")]
        | None
    ) = None


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
    side_by_side: Annotated[
        bool, Meta(description="a queue for each GPU of the node, each measuring a part")
    ] = False
    hours: Annotated[
        float,
        Meta(gt=0, le=MAX_HOURS, description="of each start, after which it is restarted"),
    ] = 24.0
    restarts: Annotated[int, Meta(ge=0, description="after the time limit, at most")] = 20
    warning: Annotated[
        int,
        Meta(ge=1, description="s before the time limit at which the job stops by itself"),
    ] = 90
    python: Python = Python()
    options: Annotated[
        dict[str, str | int | bool],
        Meta(description="more options of sbatch, without the two hyphens"),
    ] = {}

    @property
    def machine_name(self) -> str:
        """The machine name of its results."""
        return self.machine or self.name


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. jobs: a folder that the nodes share, for logs and states of jobs; once read,
    an absolute path."""

    version: Literal[1]
    targets: Annotated[list[Target], Meta(min_length=1)]
    jobs: str = "cluster-jobs"

    def choose(self, names: tuple[str, ...]) -> list[Target]:
        """The named targets, or all of them. Raises UsageError for an unknown name."""
        known = {target.name: target for target in self.targets}
        for name in names:
            if name not in known:
                raise UsageError(f"no target {name!r}; {nearest(name, known)}")
        return [target for name, target in known.items() if not names or name in names]

    def within(self, root: Path) -> Cluster:
        """A copy with the folder of jobs below that folder, unless it is absolute."""
        return replace(self, jobs=str((root / self.jobs).resolve()))


def find_cluster(project: Path, file: Path | None = None) -> Cluster:
    """The targets of the named file or of the project's cluster.yaml; this machine if there is
    neither."""
    path = file or project / FILE
    if file or path.exists():
        return read_cluster(path, project)
    from hpml_plugins.node import detect_node, machine_name

    return Cluster(1, [Target(machine_name(detect_node()), executor="local")]).within(
        project
    )


def read_cluster(path: Path, root: Path) -> Cluster:
    """The targets in that file. Raises RegistryError, with file and line, for anything invalid."""
    cluster, lines = read_yaml(path, Cluster)
    first: dict[tuple[str, str], int] = {}
    for index, target in enumerate(cluster.targets):
        for key, value in (("name", target.name), ("machine", target.machine_name)):
            if (other := first.setdefault((key, value), index)) != index:
                what = (
                    f"{key} {value!r} is taken by {lines.at(('targets', other))}; one machine has"
                    " one target"
                )
                raise RegistryError(what, lines.at(("targets", index, key)))
        for key, what in _faults(target):
            raise RegistryError(what, lines.at(("targets", index, key)))
    if _BREAKING.search(str((within := cluster.within(root)).jobs)):
        raise RegistryError(
            "a folder with a line break in its name is no place for jobs",
            lines.at(("jobs",)),
        )
    return within


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _faults(target: Target) -> Iterator[tuple[str, str]]:
    """(key, problem) of every rule that the types do not express."""
    for key, value in msgspec.to_builtins(target).items():
        if any(_BREAKING.search(text) for text in _texts(value)):
            yield (
                key,
                (
                    f"{key} holds a line break or another control character, which a job's script"
                    " cannot"
                ),
            )
    yield from _faults_of_options(target)
    try:
        shlex.split(target.python.command or "")
    except ValueError as error:
        yield (
            "python",
            f"command {target.python.command!r} is not words of a shell: {error}",
        )
    if target.python.venv and (other := target.python.container or target.python.command):
        what = "container" if other == target.python.container else "command"
        yield "python", f"either a venv or a {what}, not both"
    yield from _contradictions(target)


def _faults_of_options(target: Target) -> Iterator[tuple[str, str]]:
    """Options that are none, and those that `hpml submit` gives sbatch itself."""
    for option, value in target.options.items():
        if option in _KEYS:
            yield "options", f"{option}: write the target's key {_KEYS[option]} instead"
        if option in _OWN_OPTIONS:
            yield "options", f"{option}: hpml submit gives sbatch its own"
        if value is False:
            yield "options", f"{option}: false is no value for sbatch; leave the option out"
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", option):
            yield (
                "options",
                f"{option!r} is no option of sbatch; write it without the two hyphens",
            )


def _contradictions(target: Target) -> Iterator[tuple[str, str]]:
    """Keys that exclude one another."""
    if target.side_by_side and target.nodes > 1:
        yield "nodes", "side_by_side is for one node"
    if target.side_by_side and target.gpus == 0:
        yield "gpus", "side_by_side needs a GPU"
    if target.executor == "local":
        for key in ("partition", "constraint", "account", "qos", "options", "cpus"):
            if getattr(target, key):
                yield key, f"a local target has no {key}"
        if target.nodes > 1:
            yield "nodes", "a local target has one node"
    elif target.warning >= 3600 * target.hours:
        yield (
            "hours",
            f"the warning, {target.warning} s before the end, would come before the start of a job"
            f" of {target.hours:g} hours",
        )
