"""submitit's executors for a target: Slurm's, with the sbatch script that it writes, and the local one."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from submitit import LocalExecutor, SlurmExecutor

from hpml_plugins.errors import UsageError
from hpml_plugins.tools.cluster.job import AsvRun
from hpml_plugins.tools.cluster.plan import Order
from hpml_plugins.tools.cluster.schema import Target


class _Writer(SlurmExecutor):  # type: ignore[misc]
    """Writes scripts where there is no Slurm."""

    @classmethod
    def affinity(cls) -> int:
        return 2


def slurm_executor(target: Target, order: Order, folder: Path, *, only_script: bool = False) -> Any:
    """submitit's Slurm executor for a target. Raises UsageError where there is no Slurm, or an option is not sbatch's.

    Jobs of one machine run one after the other (`singleton` of the job's name): two would write the same files.
    """
    if not only_script and (shutil.which("sbatch") is None or shutil.which("srun") is None):
        raise UsageError(
            f"target {target.name!r} needs Slurm, and there is no sbatch and srun here; run this on a login node, or "
            "give the target `executor: local`"
        )
    executor = _Writer(folder, max_num_timeout=target.restarts, python=python_command(target, order.project, folder))
    given = {
        "partition": target.partition,
        "constraint": target.constraint,
        "account": target.account,
        "qos": target.qos,
        "gpus_per_node": target.gpus,
        "cpus_per_task": target.cpus,
    }
    executor.update_parameters(
        job_name=f"hpml-{target.machine_name}",
        time=max(1, round(60 * target.hours)),
        nodes=target.nodes,
        signal_delay_s=target.warning,
        dependency="singleton",
        wckey="hpml",
        # asv runs once, on the first node, and leaves the job's nodes to what it starts there
        srun_args=["--nodes=1", "--ntasks=1", "--overlap"],
        setup=setup_lines(target, order.project),
        additional_parameters={"requeue": True, "chdir": str(order.project), **target.options},
        **{key: value for key, value in given.items() if value is not None},
    )
    return executor


def local_executor(target: Target, order: Order, folder: Path) -> Any:
    """submitit's executor for this machine."""
    python = python_command(target, order.project, folder)
    if entering := setup_lines(target, order.project):
        python = shlex.join(["bash", "-c", "\n".join([*entering, f'exec {python} "$@"']), "bash"])
    executor = LocalExecutor(folder, max_num_timeout=target.restarts, python=python)
    gpus = {} if target.gpus is None else {"gpus_per_node": target.gpus}
    # the warning comes in any case before the end, however short the time
    executor.update_parameters(
        timeout_min=60 * target.hours, signal_delay_s=min(target.warning, int(1800 * target.hours)), **gpus
    )
    return executor


def asv_run(target: Target, order: Order, folder: Path) -> AsvRun:
    """What the job calls."""
    local = target.executor == "local" and target.gpus is None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "") if local else None
    what = (str(folder), str(order.project), target.machine_name, order.profile, order.bench, visible, order.keep)
    if target.side_by_side:
        from hpml_plugins.tools.cluster.side_by_side import SideBySide

        return SideBySide(*what, results=str(order.results), probe=target.probe)
    return AsvRun(*what)


def script(target: Target, order: Order, folder: Path) -> str:
    """What would be given to sbatch, or run here."""
    if target.executor == "local":
        words = asv_run(target, order, folder).command()
        if order.profile:
            words = ["env", f"HPML_PROFILE={order.profile}", *words]
        lines = [*setup_lines(target, order.project), shlex.join(words)]
        if target.side_by_side:
            lines.insert(0, "# one such process for each GPU, side by side, each with a part of the work")
        return "\n".join(["# here, one after the other, by submitit's local executor", *lines, ""])
    executor = slurm_executor(target, order, folder, only_script=True)
    return str(executor._make_submission_file_text(executor._submitit_command_str, ""))


def setup_lines(target: Target, project: Path) -> list[str]:
    """The lines of bash before the Python: each must succeed, or the job ends with its words."""
    python = target.python
    lines = [f"module load {shlex.quote(name)}" for name in python.modules] + python.setup
    return [f"{line} || {{ echo {shlex.quote('hpml: failed: ' + line)} >&2; exit 1; }}" for line in lines]


def python_command(target: Target, project: Path, folder: Path) -> str:
    """How the node calls its Python, as words of a shell."""
    python = target.python
    if python.container:
        binds = dict.fromkeys([project, folder.parent])
        words = ["apptainer", "exec", *(["--nv"] if target.gpus else [])]
        words += [word for path in binds for word in ("--bind", str(path))]
        words += ["--pwd", str(project), str(Path(project, python.container)), python.command or "python3"]
        return shlex.join(words)
    if python.venv:
        return shlex.quote(str(Path(project, python.venv, "bin", "python")))
    return shlex.join(shlex.split(python.command)) if python.command else shlex.quote(sys.executable)
