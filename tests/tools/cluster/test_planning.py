from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from cluster_site import Site
from repositories import git, make_repository

from hpml_plugins.cli import Settings
from hpml_plugins.errors import UsageError
from hpml_plugins.tools.cluster.commands import submit
from hpml_plugins.tools.cluster.config import Python, Target
from hpml_plugins.tools.cluster.job import RunRequest
from hpml_plugins.tools.cluster.jobs import JobOrder, write_file
from hpml_plugins.tools.cluster.submit import commits_to_measure, measured_commits, script


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, list[str]]:
    """Four commits on main, the newest first."""

    make_repository(tmp_path)
    for number in range(4):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", str(number))
    return tmp_path, git(tmp_path, "rev-list", "main").split()


def test_commits_are_the_newest_all_the_new_ones_or_a_range(
    repository: tuple[Path, list[str]],
) -> None:
    root, commits = repository

    def wanted(spec: str, measured: list[str]) -> list[str]:
        return commits_to_measure(root, ["main"], spec, measured)

    assert wanted("", []) == commits[:1]
    assert wanted("ALL", [commits[1][:8]]) == commits
    # the machine has measured the second newest: only the newest is new to it, older ones it passed
    # over
    assert wanted("NEW", [commits[1][:8]]) == commits[:1]
    assert wanted("NEW", []) == commits
    assert wanted("main~3..main~1", []) == commits[1:3]
    for wrong in ("nowhere", "--all"):
        with pytest.raises(UsageError, match=f"--commits '{wrong}': git knows no such"):
            wanted(wrong, [])
    with pytest.raises(UsageError, match=r"git knows no branch 'gone'.*or name commits"):
        commits_to_measure(root, ["gone"], "", [])


def test_a_machine_has_measured_what_it_has_files_of(tmp_path: Path) -> None:
    for name in (
        "a/01234567-env.json",
        "a/machine.json",
        "a/records/4567cdef0123.jsonl",
        "b/89abcdef-env.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert measured_commits(tmp_path, "a") == {"01234567", "4567cdef"}
    assert measured_commits(tmp_path, "c") == set()


def test_the_script_asks_slurm_for_what_the_target_says(tmp_path: Path) -> None:
    target = Target(
        "h100",
        machine="h100-x8",
        partition="gpu",
        constraint="h100",
        account="proj",
        gpus=8,
        hours=1.5,
        python=Python(modules=["cuda/13.0"], venv="envs/torch"),
        options={"mem": "100G", "exclusive": True},
    )
    lines = script(
        target,
        RunRequest(str(tmp_path), str(tmp_path / "results")),
        tmp_path / "jobs" / "one",
    ).splitlines()
    wanted = {
        "partition=gpu",
        "constraint=h100",
        "account=proj",
        "gpus-per-node=8",
        "time=90",
        "mem=100G",
    }
    wanted |= {
        "exclusive",
        "requeue",
        "dependency=singleton",
        "job-name=hpml-h100-x8",
        "signal=USR2@90",
    }
    assert {f"#SBATCH --{option}" for option in wanted} <= set(lines)
    assert f"#SBATCH --chdir={tmp_path}" in lines
    assert (
        "module load cuda/13.0 || { echo 'hpml: failed: module load cuda/13.0' >&2; exit 1; }"
        in lines
    )
    assert any(
        f"{tmp_path}/envs/torch/bin/python -u -m submitit.core._submit" in line
        for line in lines
    )


def test_a_container_sees_the_project_the_jobs_and_the_gpus(tmp_path: Path) -> None:
    target = Target("a100", gpus=1, python=Python(container="hpml.sif"))
    text = script(
        target,
        RunRequest(str(tmp_path), str(tmp_path / "results")),
        Path("/shared/jobs/one"),
    )
    assert (
        f"apptainer exec --nv --bind {tmp_path} --bind /shared/jobs --pwd {tmp_path}"
        f" {tmp_path}/hpml.sif python3 -u" in text
    )


def test_a_dry_run_prints_the_scripts_and_submits_nothing(site: Site) -> None:
    targets = "\n".join(f"  - {{name: t{number}, partition: p}}" for number in range(3))
    site.cluster(f"version: 1\ntargets:\n{targets}\n")
    settings = Settings(site.project.path / "registry.yaml")
    done = CliRunner().invoke(
        submit, ["--dry-run", "--commits", "ALL", "t0", "t2"], obj=settings
    )
    assert done.exit_code == 0, done.output
    assert done.output.count("#!/bin/bash") == 2
    assert "# t2  machine t2, 2 commits" in done.output
    assert not (site.project.path / "cluster-jobs").exists()


@pytest.mark.parametrize(
    ("pattern", "refused"),
    [
        ("slow", ""),
        ("slaw", "no benchmark matches 'slaw'; did you mean 'slow'?"),
        ("(", "--bench '(' is not a regular expression"),
    ],
)
def test_a_pattern_that_matches_no_benchmark_is_refused_before_the_job(
    site: Site, pattern: str, refused: str
) -> None:
    site.cluster("version: 1\ntargets:\n  - {name: t, partition: p}\n")
    settings = Settings(site.project.path / "registry.yaml")
    done = CliRunner().invoke(submit, ["--dry-run", "--bench", pattern, "t"], obj=settings)
    assert refused in str(done.exception or "")
    assert bool(done.exception) == bool(refused)


@pytest.mark.parametrize(
    ("named", "variable", "in_registry", "chosen"),
    [
        ((), "", "core", "core"),
        ((), "", "quick", "full"),
        ((), "quick", "core: {}, quick", "quick"),
        (("--profile", "full"), "quick", "core: {}, quick", "full"),
    ],
)
def test_the_profile_is_core_unless_another_is_named(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    named: tuple[str, ...],
    variable: str,
    in_registry: str,
    chosen: str,
) -> None:
    registry = site.project.path / "registry.yaml"
    entry = f"{{name: slow, path: slow.py, profiles: {{{in_registry}: {{}}}}}}"
    registry.write_text(f"version: 1\nplugins:\n  - {entry}\n")
    site.cluster(
        "version: 1\ntargets:\n  - {name: h100, partition: p}\n  - {name: desk, executor: local}\n"
    )
    monkeypatch.setenv("HPML_PROFILE", variable)
    done = CliRunner().invoke(
        submit, ["--dry-run", *named, "h100", "desk"], obj=Settings(registry)
    )
    assert done.exit_code == 0, done.output
    assert done.output.count(f"all benchmarks, profile {chosen}: ") == 2
    assert f"\nenv HPML_PROFILE={chosen} " in done.output


@pytest.mark.parametrize(
    ("machine", "options", "refused"),
    [("h100", [], True), ("h100", ["--unanswered"], False), ("h200", [], False)],
)
def test_no_second_job_is_submitted_while_slurm_does_not_answer(
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine: str,
    options: list[str],
    refused: bool,
) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("sacct", "squeue", "sbatch", "srun"):
        (commands / name).write_text(f"#!/bin/sh\ntouch {commands}/asked-{name}\nexit 1\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/bin:/usr/bin")
    site.cluster("version: 1\ntargets:\n  - {name: h100, partition: p}\n")
    before = site.project.path / "cluster-jobs" / "before"
    before.mkdir(parents=True)
    write_file(before, JobOrder("h100", machine, "slurm", "login", "7"))
    settings = Settings(site.project.path / "registry.yaml")
    done = CliRunner().invoke(submit, [*options, "h100"], obj=settings)
    said = str(done.exception)
    assert (
        isinstance(done.exception, UsageError) and "hold 7 (h100)" in said
    ) == refused, said
    assert (commands / "asked-squeue").exists() == (not options)
    assert (commands / "asked-sbatch").exists() != refused
