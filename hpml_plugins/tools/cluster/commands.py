"""`hpml submit`: one job for each target of cluster.yaml, or a run here. `hpml jobs`: the state of these jobs."""

from __future__ import annotations

from pathlib import Path

import click

from hpml_plugins.cli import Settings, print_json
from hpml_plugins.terminal import say, warn

_CLUSTER = click.option(
    "--cluster", "file", type=click.Path(path_type=Path), help="The file of targets; default: cluster.yaml."
)


@click.command("submit")
@click.argument("names", nargs=-1, metavar="[TARGET]...")
@_CLUSTER
@click.option("--commits", default="", metavar="NEW|ALL|RANGE", help="Which; default: the newest of each branch.")
@click.option("--profile", default="", help="Only the points of this profile.")
@click.option("--bench", multiple=True, metavar="REGEX", help="Only these benchmarks, as asv run --bench.")
@click.option("--skip-existing", is_flag=True, help="Continue after a job that was cancelled or lost: keep its points.")
@click.option("--dry-run", is_flag=True, help="Print what would be given to sbatch; submit nothing.")
@click.pass_obj
def submit(
    settings: Settings,
    names: tuple[str, ...],
    file: Path | None,
    commits: str,
    profile: str,
    bench: tuple[str, ...],
    skip_existing: bool,
    dry_run: bool,
) -> int:
    """Measure on each TARGET of cluster.yaml (default: all): one Slurm job runs `asv run` there.

    Without a cluster.yaml it measures here. A job that meets its time limit, or whose node is preempted or fails, is
    restarted and continues where it stopped. Watch with `hpml jobs`.
    """
    from hpml_plugins.asv import read_configuration
    from hpml_plugins.errors import UsageError
    from hpml_plugins.registry import read_registry
    from hpml_plugins.tools.cluster import submit as submitting
    from hpml_plugins.tools.cluster.config import find_cluster
    from hpml_plugins.tools.cluster.job import RunRequest

    project = settings.registry.resolve().parent
    registry = read_registry(settings.registry)
    if profile and profile not in registry.profiles:
        raise UsageError(f"no profile {profile!r}; there are {', '.join(registry.profiles)}")
    conf = read_configuration(project / "asv.conf.json")
    cluster = find_cluster(project, file)
    request = RunRequest(str(project), str(project / conf.results_dir), profile, bench, skip_existing)
    failed = False
    for target in cluster.choose(names):
        measured = submitting.measured_commits(project / conf.results_dir, target.machine_name)
        chosen = submitting.commits_to_measure(project, [name or "" for name in conf.branches], commits, measured)
        title = f"{target.name}  machine {target.machine_name}, {len(chosen)} commit{'s' * (len(chosen) != 1)}"
        if not chosen:
            say(f"{title}: nothing to do")
        elif dry_run:
            folder = submitting.new_folder(Path(cluster.jobs), target.name)
            say(f"# {title}", *submitting.script(target, request, folder).split("\n"))
        else:
            try:
                folder, job = submitting.submit(target, chosen, request, Path(cluster.jobs))
            except UsageError as error:
                warn(error)
                failed = True
                continue
            say(f"{title}: job {job.job_id}, {folder}")
            if target.executor == "local" and (reason := submitting.wait_here(folder, job)):
                warn(f"{folder.name}: {reason}")
                failed = True
    return 1 if failed else 0


@click.command("jobs")
@click.argument("names", nargs=-1, metavar="[TARGET|ID]...")
@_CLUSTER
@click.option("--tail", "lines", type=click.IntRange(0), default=0, metavar="N", help="Show N lines of each log.")
@click.option("--cancel", "cancelling", is_flag=True, help="Cancel the named jobs that have not ended.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_obj
def jobs(
    settings: Settings, names: tuple[str, ...], file: Path | None, lines: int, cancelling: bool, as_json: bool
) -> int:
    """Show each job's state, progress, and the reason where it failed or waits. Exit status 1 when one failed."""
    from hpml_plugins.errors import UsageError
    from hpml_plugins.tools.cluster.config import find_cluster
    from hpml_plugins.tools.cluster.jobs import cancel, find_jobs, tail

    cluster = find_cluster(settings.registry.resolve().parent, file)
    found = [(job, {job.target, job.id, job.log.parent.name}) for job in find_jobs(Path(cluster.jobs))]
    for name in names:
        if not any(name in labels for _, labels in found):
            raise UsageError(f"no job of {name!r} in {cluster.jobs}")
    chosen = [job for job, labels in found if not names or labels.intersection(names)]
    if cancelling:
        if not names:
            raise UsageError("--cancel needs the target or the id of what to cancel")
        for job in cancel(chosen):
            say(f"cancelled {job.id} ({job.target})")
        return 0
    if as_json:
        print_json(chosen)
    else:
        width = max([len("target"), *(len(job.target) for job in chosen)])
        say(f"{'id':8}  {'target':{width}}  {'state':9}  done  tries  node      reason")
        for job in chosen:
            share = f"{job.progress:4.0%}" if job.progress is not None else "   –"
            say(
                f"{job.id or '–':8}  {job.target:{width}}  {job.state:9}  {share}  {job.attempts:5}  "
                f"{job.node or '–':8}  {job.reason}".rstrip()
            )
            for line in tail(job.log, lines):
                say(f"    {line}")
    return 1 if any(job.state in ("failed", "lost") for job in chosen) else 0
