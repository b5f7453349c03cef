"""The shape of cluster.yaml, as msgspec types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="letters, digits, _ . and -")]


class Python(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a job gets to the Python that has torch, in this order: modules, shell lines, then venv or container."""

    modules: Annotated[list[str], Meta(description="for `module load`")] = []
    setup: Annotated[list[str], Meta(description="lines of bash, run before")] = []
    venv: Annotated[str, Meta(description="a virtual environment's folder, as the node sees it")] | None = None
    container: (
        Annotated[str, Meta(description="an Apptainer image; runs with --nv where GPUs are asked for")] | None
    ) = None
    command: Annotated[str, Meta(description="the Python itself; the one that submits when all is left out")] | None = (
        None
    )


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where one job runs, and under which machine name its results are filed (the target's own when left out)."""

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
    probe: Annotated[
        str,
        Meta(description="for side_by_side: NAME [-p KEY=VALUE]..., a short point to measure interference"),
    ] = ""
    hours: Annotated[float, Meta(gt=0, description="the job's time limit; it is started again when it ends")] = 24.0
    restarts: Annotated[int, Meta(ge=0, description="after the time limit, at most")] = 20
    warning: Annotated[int, Meta(ge=1, description="s before the time limit at which the job stops by itself")] = 90
    python: Python = Python()
    options: Annotated[
        dict[str, str | int | bool], Meta(description="more of sbatch's options, without the two hyphens")
    ] = {}

    @property
    def machine_name(self) -> str:
        """The name under which results are filed."""
        return self.machine or self.name


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. jobs: a folder that the nodes share, relative to the file; logs and states of jobs are there."""

    version: Literal[1]
    targets: Annotated[list[Target], Meta(min_length=1)]
    jobs: str = "cluster-jobs"


def json_schema() -> dict[str, Any]:
    """The JSON schema of cluster.yaml, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(ClusterFile)}
