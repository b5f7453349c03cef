"""Reading cluster.yaml. Every error names its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from hpml_plugins.errors import RegistryError, UsageError, nearest
from hpml_plugins.registry import Lines, explain
from hpml_plugins.tools.cluster.schema import ClusterFile, Target

#: Hours of a year.
LONGEST = 8784
DEFAULT_PATH = Path("cluster.yaml")


@dataclass(frozen=True)
class Cluster:
    """A valid cluster.yaml, or what stands in for one. jobs: the folder of jobs, absolute."""

    targets: tuple[Target, ...]
    jobs: Path

    def choose(self, names: tuple[str, ...]) -> list[Target]:
        """The named targets, all of them where none is named. Raises UsageError for a name that there is not."""
        known = {target.name: target for target in self.targets}
        for name in names:
            if name not in known:
                raise UsageError(f"no target {name!r}; {nearest(name, list(known))}")
        return [target for name, target in known.items() if not names or name in names]


def read_cluster(path: Path, root: Path) -> Cluster:
    """The targets in that file. Raises RegistryError, with file and line, for anything it cannot mean."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(f"cannot be read: {error}", str(path)) from None
    lines = Lines(text, str(path))
    try:
        file = msgspec.convert(lines.document, ClusterFile)
    except msgspec.ValidationError as error:
        raise explain(error, lines, ClusterFile) from None
    _check(file, lines)
    return Cluster(tuple(file.targets), (root / file.jobs).resolve())


def here(root: Path, machine: str) -> Cluster:
    """Where there is no cluster.yaml: this machine, now."""
    return Cluster((Target(machine, executor="local"),), (root / "cluster-jobs").resolve())


def _check(file: ClusterFile, lines: Lines) -> None:
    names: dict[str, int] = {}
    machines: dict[str, int] = {}
    for index, target in enumerate(file.targets):
        for key, value, taken in (("name", target.name, names), ("machine", target.machine_name, machines)):
            if value in taken:
                other = lines.at(("targets", taken[value]))
                where = lines.at(("targets", index, key))
                raise RegistryError(f"{key} {value!r} is taken by {other}; one machine has one target", where)
            taken[value] = index
        if not 0 < target.hours <= LONGEST:
            where = lines.at(("targets", index, "hours"))
            raise RegistryError(f"hours is {target.hours}, not above 0 and at most {LONGEST}", where)
        python = target.python
        if sum(bool(way) for way in (python.venv, python.container)) > 1:
            raise RegistryError("either a venv or a container, not both", lines.at(("targets", index, "python")))
        if target.side_by_side and not target.probe:
            where = lines.at(("targets", index, "side_by_side"))
            raise RegistryError("side_by_side needs a probe, as in `probe: vecadd_cuda -p millions=10`", where)
        if target.side_by_side and target.nodes > 1:
            raise RegistryError("side_by_side is for one node", lines.at(("targets", index, "nodes")))
        if target.probe and not target.side_by_side:
            raise RegistryError("a probe is for side_by_side alone", lines.at(("targets", index, "probe")))
        slurms = ("partition", "constraint", "account", "qos", "options")
        given = [key for key in slurms if getattr(target, key)]
        if target.executor == "local" and given:
            raise RegistryError(f"a local target has no {given[0]}", lines.at(("targets", index, given[0])))
