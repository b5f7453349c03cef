"""`hpml jobs`: what became of what was submitted."""

from __future__ import annotations

from pathlib import Path

import click

from hpml_plugins.cli import Settings


@click.command("jobs")
@click.argument("names", nargs=-1, metavar="[TARGET|ID]...")
@click.option("--cluster", "file", type=click.Path(path_type=Path), help="The targets; cluster.yaml when left out.")
@click.option("--tail", "lines", type=click.IntRange(0), default=0, metavar="N", help="Show so many lines of each log.")
@click.option("--cancel", "ending", is_flag=True, help="Cancel the named jobs that have not ended.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_obj
def command(
    settings: Settings, names: tuple[str, ...], file: Path | None, lines: int, ending: bool, as_json: bool
) -> int:
    """Show each job's state, progress, and the reason where it failed or waits. Exit status 1 when one failed."""
    from hpml_plugins.errors import UsageError
    from hpml_plugins.tools.cluster.places import find_cluster
    from hpml_plugins.tools.cluster.watch import cancel, jobs_in, tail

    cluster = find_cluster(settings.registry.resolve().parent, file)
    found = jobs_in(cluster.jobs)
    known = {name for job in found for name in (job.order.target, job.order.id, job.folder.name)}
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"no job of {unknown[0]!r} in {cluster.jobs}")
    found = [job for job in found if not names or {job.order.target, job.order.id, job.folder.name}.intersection(names)]
    if ending:
        if not names:
            raise UsageError("--cancel needs the target or the id of what to cancel")
        for job in cancel(found):
            print(f"cancelled {job.order.id} ({job.order.target})")
        return 0
    if as_json:
        import json

        rows = [
            {
                "id": job.order.id,
                "target": job.order.target,
                "machine": job.order.machine,
                "state": job.state,
                "reason": job.reason,
                "node": job.node,
                "attempts": job.attempts,
                "progress": job.progress,
                "log": str(job.log),
            }
            for job in found
        ]
        print(json.dumps(rows, indent=2))
    else:
        width = max([len("target"), *(len(job.order.target) for job in found)])
        print(f"{'id':8}  {'target':{width}}  {'state':9}  done  tries  node      reason")
        for job in found:
            share = f"{job.progress:4.0%}" if job.progress is not None else "   –"
            print(
                f"{job.order.id or '–':8}  {job.order.target:{width}}  {job.state:9}  {share}  {job.attempts:5}  "
                f"{job.node or '–':8}  {job.reason}".rstrip()
            )
            for path in (job.log, job.errors):
                for line in tail(path, lines):
                    print(f"    {line}")
    return 1 if any(job.state in ("failed", "lost") for job in found) else 0
