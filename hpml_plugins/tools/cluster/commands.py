"""`hpml submit`: one job for each target of cluster.yaml, or a run here. `hpml jobs`: the state of
these jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from hpml_plugins.cli import PATH, Settings, json_option, print_json, refuse_beside
from hpml_plugins.errors import UsageError
from hpml_plugins.host import make_host
from hpml_plugins.model import Cell, Table
from hpml_plugins.registry import EVERYTHING, read_registry
from hpml_plugins.report import as_text
from hpml_plugins.suite import PROFILE_VARIABLE
from hpml_plugins.terminal import say, warn
from hpml_plugins.tools.cluster.config import Target, find_cluster
from hpml_plugins.tools.cluster.job import RunRequest
from hpml_plugins.tools.cluster.jobs import Job, cancel, find_jobs, tail

#: The profile of the same few points at every commit: the default if a registry has it.
CORE = "core"
_CLUSTER = click.option(
    "--cluster",
    "file",
    type=PATH,
    help="The file of targets; default: cluster.yaml.",
)


@click.command("submit")
@click.argument("names", nargs=-1, metavar="[TARGET]...")
@_CLUSTER
@click.option(
    "--commits",
    default="",
    metavar="NEW|ALL|RANGE",
    help="Commits to measure; default: the newest of each branch.",
)
@click.option(
    "--profile", help="The profile to measure; default: HPML_PROFILE, else core, else full."
)
@click.option(
    "--bench",
    multiple=True,
    metavar="REGEX",
    help="Only these benchmarks, as asv run --bench.",
)
@click.option(
    "--skip-existing",
    is_flag=True,
    help="Continue after a job that was cancelled or lost: keep its points.",
)
@click.option("--dry-run", is_flag=True, help="Print the input for sbatch; submit nothing.")
@click.option(
    "--unanswered",
    is_flag=True,
    help="Submit even if Slurm does not report whether an earlier job of the machine still runs.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def submit(
    settings: Settings,
    names: tuple[str, ...],
    file: Path | None,
    commits: str,
    profile: str | None,
    bench: tuple[str, ...],
    skip_existing: bool,
    dry_run: bool,
    unanswered: bool,
    yes: bool,
) -> int:
    """Measure on each TARGET of cluster.yaml through Slurm, or here.

    One job per TARGET runs `asv run` there. Without a TARGET the command shows what it would
    measure on all of them, and asks first. Without a cluster.yaml it measures here, in this
    terminal, until it is done or interrupted. A job that meets its time limit, or whose node is
    preempted or fails, is restarted and continues where it stopped. Watch with `hpml jobs`.
    """
    # hpml jobs needs neither asv nor submitit
    from hpml_plugins.asv import read_configuration, refuse_unknown_patterns
    from hpml_plugins.tools.cluster import submit as submitting

    project = settings.registry.resolve().parent
    registry = read_registry(settings.registry)
    profile = (
        profile
        or os.environ.get(PROFILE_VARIABLE)
        or (CORE if CORE in registry.profiles else EVERYTHING)
    )
    if profile not in registry.profiles:
        raise UsageError(
            f"no profile {profile!r}; there are {', '.join(registry.profiles)}"
        )
    conf = read_configuration(project / "asv.conf.json")
    conf.benchmark_dir = str(project / conf.benchmark_dir)
    conf.results_dir = str(project / conf.results_dir)
    if bench:
        refuse_unknown_patterns(bench, conf, make_host(registry))
    results = Path(conf.results_dir)
    branches = [name or "" for name in conf.branches]
    cluster = find_cluster(project, file)
    jobs = Path(cluster.jobs)
    request = RunRequest(str(project), str(results), profile, bench, skip_existing)
    planned: list[tuple[Target, list[str]]] = []
    for target in cluster.choose(names):
        measured = submitting.measured_commits(results, target.machine_name)
        chosen = submitting.commits_to_measure(project, branches, commits, measured)
        say(f"{'# ' * dry_run}{submitting.describe_plan(target, len(chosen), request)}")
        if dry_run and chosen:
            folder = submitting.new_folder(jobs, target.name)
            say(*submitting.script(target, request, folder).split("\n"))
        elif chosen:
            planned.append((target, chosen))
    if not unanswered:
        _refuse_second_jobs([target for target, _ in planned], jobs)
    if planned and not (names or yes) and not _confirm():
        return 0
    failures = [_submit_one(target, chosen, request, jobs) for target, chosen in planned]
    return 1 if any(failures) else 0


def _refuse_second_jobs(targets: Sequence[Target], jobs: Path) -> None:
    """Raise UsageError if an earlier job of a target's machine may still wait or run: a second one
    would measure at the same time."""
    machines = {target.machine_name for target in targets if target.executor == "slurm"}
    earlier = find_jobs(jobs, warn) if machines else []
    unknown = [job for job in earlier if job.state == "unknown" and job.machine in machines]
    if unknown:
        named = ", ".join(f"{job.id} ({job.target})" for job in unknown)
        raise UsageError(
            f"Slurm does not answer, and may still hold {named}, submitted before: ask hpml jobs"
            " again later, or submit with --unanswered"
        )


def _confirm() -> bool:
    """Ask whether to go on. Raises UsageError without a terminal."""
    if not sys.stdin.isatty():
        raise UsageError(
            "no TARGET is named, so all of the above would be measured; name targets, or add --yes"
        )
    return click.confirm("Measure this?")


def _submit_one(target: Target, commits: list[str], request: RunRequest, jobs: Path) -> str:
    """Submit one job, and wait for it if it runs here. Returns why something was not measured, ""
    if everything was."""
    from hpml_plugins.tools.cluster import submit as submitting

    try:
        folder, job = submitting.submit(target, commits, request, jobs)
    except UsageError as error:
        reason = str(error)
    else:
        say(f"{target.name}: job {job.job_id}, {folder}")
        reason = submitting.wait_here(folder, job) if target.executor == "local" else ""
        reason = reason and f"{folder.name}: {reason}"
    if reason:
        warn(reason)
    return reason


@click.command("jobs")
@click.argument("names", nargs=-1, metavar="[TARGET|ID]...")
@_CLUSTER
@click.option(
    "--tail",
    "lines",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Show N lines of each log.",
)
@click.option(
    "--cancel",
    "cancelling",
    is_flag=True,
    help="Cancel the named jobs that have not ended.",
)
@json_option("Print JSON instead of a table.")
@click.pass_obj
def jobs(
    settings: Settings,
    names: tuple[str, ...],
    file: Path | None,
    lines: int,
    cancelling: bool,
    as_json: bool,
) -> int:
    """Show the state of submitted jobs.

    Shows progress too, and the reason if a job failed or waits. Exit status 1 if one failed.
    """
    cluster = find_cluster(settings.registry.resolve().parent, file)
    found = [
        (job, {job.target, job.id, job.log.parent.name})
        for job in find_jobs(Path(cluster.jobs), warn)
    ]
    for name in names:
        if not any(name in labels for _, labels in found):
            raise UsageError(f"no job of {name!r} in {cluster.jobs}")
    chosen = [job for job, labels in found if not names or labels.intersection(names)]
    if cancelling:
        refuse_beside("--cancel", "names", "file")
        if not names:
            raise UsageError("--cancel needs the target or the id of what to cancel")
        for job in cancel(chosen):
            say(f"cancelled {job.id} ({job.target})")
        return 0
    if as_json:
        refuse_beside("--json", "names", "file")
        print_json(chosen)
    elif not chosen:
        say(f"no job in {cluster.jobs}; hpml submit starts some")
    else:
        header, *rows = as_text(_table(chosen)).splitlines()
        say(header)
        for job, row in zip(chosen, rows, strict=True):
            say(row, *(f"    {line}" for line in tail(job.log, lines)))
    return 1 if any(job.state in ("failed", "lost", "unknown") for job in chosen) else 0


def _table(jobs: Sequence[Job]) -> Table:
    columns: dict[str, list[Cell]] = {
        "id": [job.id or None for job in jobs],
        "target": [job.target for job in jobs],
        "state": [job.state for job in jobs],
        "done": [None if job.progress is None else f"{job.progress:.0%}" for job in jobs],
        "tries": [job.attempts for job in jobs],
        "node": [job.node or None for job in jobs],
        "reason": [job.reason for job in jobs],
    }
    return Table(columns)
