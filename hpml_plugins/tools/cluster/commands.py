"""`hpml submit`: one job for each target of cluster.yaml, or a run here where there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hpml_plugins.cli import Settings


@click.command("submit")
@click.argument("names", nargs=-1, metavar="[TARGET]...")
@click.option("--cluster", "file", type=click.Path(path_type=Path), help="The targets; cluster.yaml when left out.")
@click.option("--commits", default="", metavar="NEW|ALL|RANGE", help="Which; the newest of each branch when left out.")
@click.option("--profile", default="", help="Only the points of this profile.")
@click.option("--bench", multiple=True, metavar="REGEX", help="Only these benchmarks, as asv run --bench.")
@click.option("--skip-existing", is_flag=True, help="Go on after a job that was cancelled or lost: keep its points.")
@click.option("--dry-run", is_flag=True, help="Print what would be given to sbatch, submit nothing.")
@click.pass_obj
def command(
    settings: Settings,
    names: tuple[str, ...],
    file: Path | None,
    commits: str,
    profile: str,
    bench: tuple[str, ...],
    skip_existing: bool,
    dry_run: bool,
) -> int:
    """Measure on each TARGET of cluster.yaml (all when none is named): one Slurm job runs `asv run` there.

    Without a cluster.yaml it measures here. A job that meets its time limit, or whose node is wanted or dies, is
    started again and goes on where it stopped. Watch with `hpml jobs`.
    """
    from hpml_plugins.asv.configuration import NAME, read_configuration
    from hpml_plugins.errors import UsageError
    from hpml_plugins.registry import read_registry
    from hpml_plugins.tools.cluster.commits import History
    from hpml_plugins.tools.cluster.places import find_cluster
    from hpml_plugins.tools.cluster.plan import Order, plan

    project = settings.registry.resolve().parent
    registry = read_registry(settings.registry)
    if profile and profile not in registry.profiles:
        raise UsageError(f"no profile {profile!r}; there are {', '.join(registry.profiles)}")
    conf = read_configuration(project / NAME)
    cluster = find_cluster(project, file)
    order = Order(project, project / conf.results_dir, commits, profile, bench, skip_existing)
    planned = plan(cluster.choose(names), order, History(project, conf.branches))

    from hpml_plugins.tools.cluster import executors, submit

    failed = 0
    for item in planned:
        target, count = item.target, len(item.commits)
        title = f"{target.name}  machine {target.machine_name}, {count} commit{'s' * (count != 1)}"
        if not count:
            print(f"{title}: nothing to do")
            continue
        if dry_run:
            folder = submit.new_folder(cluster.jobs, target.name)
            print(f"# {title}\n{executors.script(target, order, folder)}")
            continue
        try:
            folder, job = submit.submit(item, order, cluster.jobs)
        except UsageError as error:
            print(f"hpml: {error}", file=sys.stderr)
            failed += 1
            continue
        print(f"{title}: job {job.job_id}, {folder}", flush=True)
        if target.executor == "local":
            submit.wait_here(job)
            failed += not _ended_well(folder)
    return 1 if failed else 0


def _ended_well(folder: Path) -> bool:
    from hpml_plugins.tools.cluster.state import read_state

    state = read_state(folder)
    if state is None or state.phase != "done":
        reason = state.reason if state else "it never started asv; its log says why"
        print(f"hpml: {folder.name}: {reason}", file=sys.stderr)
        return False
    return not state.reason
