"""asv's own commands on a small project, as its manual says and with no wrapper of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from asv_project import Project
from repositories import git

from hpml_plugins.model.record import Record
from hpml_plugins.run import MEASURED_NOTHING
from hpml_plugins.store import read_file

REGISTRY = """
version: 1
plugins:
  - name: toy
    path: toy.py
    profiles: {quick: {toy: {size: [10]}}}
  - name: faulty
    path: faulty.py
"""

FAULTY = """
    import ctypes, time
    from pathlib import Path
    from hpml_plugins import Benchmark, Metric, Requires, hookimpl

    def note(name, text):
        with open(Path(__file__).with_name(name), "a") as file:
            file.write(text + "\\n")
        return 7

    def measure(bench, *, how):
        note("asked.txt", how)
        if how == "raises":
            raise ValueError("no such thing")
        if how == "segfaults":
            ctypes.string_at(0)
        if how == "hangs":
            time.sleep(60)
        return {"time": bench.time(lambda: None), "count": bench.once("count", lambda: note("counted.txt", how))}

    METRICS = [Metric("time", "s", "lower"), Metric("count", "1", None)]
    GRID = {"how": ["works", "raises", "segfaults", "hangs"]}

    @hookimpl
    def hpml_benchmarks():
        return [
            Benchmark("faulty", measure, METRICS, grid=GRID, timeout=2),
            Benchmark("on_gpu", measure, METRICS, grid=GRID, requires=Requires(gpus=1)),
        ]
"""  # noqa: E501


@pytest.fixture(scope="module")
def project(make_project: Callable[[str], Project]) -> Project:
    """Three commits, of which the first lacks the plugin `faulty`; run over all of them, quick
    profile apart."""
    project = make_project(REGISTRY.replace("  - name: faulty\n    path: faulty.py\n", ""))
    project.write("registry.yaml", REGISTRY)
    project.write("faulty.py", FAULTY)
    project.commit("second")
    version = project.path / "hpml_plugins" / "version.py"
    version.write_text(version.read_text().replace('__version__ = "', '__version__ = "9.'))
    project.commit("third")
    return project


@pytest.fixture(scope="module")
def ran(project: Project) -> Project:
    """The project after `asv run ALL`."""
    done = project.asv("run", "ALL")
    (project.path / "log.txt").write_text(done.stdout + done.stderr)
    assert done.returncode == 2, (
        done.stdout + done.stderr
    )  # asv's status when a benchmark failed
    return project


def machine(project: Project) -> Path:
    (folder,) = [path.parent for path in project.path.glob("results/*/machine.json")]
    return folder


def records(project: Project, commit: str = "") -> list[Record]:
    return [
        record
        for path in sorted(machine(project).glob(f"records/{commit[:8]}*.jsonl"))
        for record in read_file(path)
    ]


def results(project: Project) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in machine(project).glob("*-node-*.json")]


def test_every_commit_has_results_and_records(ran: Project) -> None:
    assert len(results(ran)) == 3
    assert len({record.commit for record in records(ran)}) == 3
    assert len({record.run for record in records(ran)}) == 1


def test_each_point_is_measured_once_for_all_its_metrics(ran: Project) -> None:
    asked = (ran.path / "asked.txt").read_text().split()
    # Three rounds of three commits; a point that failed has no second round.
    assert sorted(asked) == sorted(["works"] * 9 + ["raises", "segfaults", "hangs"] * 3)
    # What is computed once is so for each commit.
    assert (ran.path / "counted.txt").read_text().split() == ["works"] * 3
    keys = [(record.commit, record.point) for record in records(ran)]
    assert len(keys) == len(set(keys))


def test_failures_are_recorded_with_their_reason_and_the_run_goes_on(ran: Project) -> None:
    found = {
        str(record.params["how"]): record.reason
        for record in records(ran)
        if record.benchmark == "faulty"
    }
    crash = found.pop("segfaults")
    assert crash.startswith(
        "died of SIGSEGV (segmentation fault) in string_at (__init__.py:"
    )
    assert crash.endswith(" of measure (faulty.py:15)")
    assert found == {
        "works": "",
        "raises": 'ValueError: no such thing (faulty.py:13: raise ValueError("no such thing"))',
        "hangs": "timed out after 2 s in measure (faulty.py:17)",
    }
    log = (ran.path / "log.txt").read_text()
    assert re.search("faulty how=raises +FAILED: ValueError: no such thing", log)
    assert "Traceback" not in log


def test_asv_gets_samples_with_a_real_interval_and_failures_as_failures(
    ran: Project,
) -> None:
    for result in results(ran):
        columns = result["result_columns"]
        row = dict(zip(columns, result["results"]["faulty.track_time"], strict=False))  # type: ignore[index,call-overload]
        assert row["result"][1:] == [None, None, None]
        low, high = row["stats_ci_99_a"][0], row["stats_ci_99_b"][0]
        assert 0 < low <= row["result"][0] <= high < 1e-3
        count = dict(zip(columns, result["results"]["faulty.track_count"], strict=False))  # type: ignore[index,call-overload]
        assert count["result"][0] == 7


def test_what_the_node_lacks_is_listed_and_skipped_with_the_reason(ran: Project) -> None:
    assert "on_gpu.track_time" in json.loads(
        (ran.path / "results" / "benchmarks.json").read_text()
    )
    skipped = [record for record in records(ran) if record.benchmark == "on_gpu"]
    assert {(record.status, record.reason) for record in skipped} == {
        ("skipped", "needs 1 GPU, this node has no GPU")
    }


def test_the_commits_own_package_is_measured(ran: Project) -> None:
    (env,) = [path for path in (ran.path / "env").iterdir() if (path / "site").exists()]
    # ALL ends with the oldest
    assert '__version__ = "9.' not in (env / "site/hpml_plugins/version.py").read_text()


def test_the_environment_is_named_by_versions_and_holds_no_path(ran: Project) -> None:
    (name,) = {str(result["env_name"]) for result in results(ran)}
    assert re.fullmatch(r"node-py3\.\d+(-torch[\d.]+(-cuda[\d.]+)?)?", name)


def test_the_machine_has_gpu_and_num_gpu_beside_asvs_six(ran: Project) -> None:
    facts = json.loads((machine(ran) / "machine.json").read_text())
    assert set(facts) == {
        "machine",
        "os",
        "arch",
        "cpu",
        "num_cpu",
        "ram",
        "gpu",
        "num_gpu",
        "version",
    }
    assert facts["machine"] == machine(ran).name


def test_declarations_carry_direction_and_unit(ran: Project) -> None:
    entries = json.loads((ran.path / "results" / "benchmarks.json").read_text())
    entry, count = entries["faulty.track_time"], entries["faulty.track_count"]
    assert (count["direction"], count["si_unit"]) == ("none", "1")
    (stored,) = {
        record.metrics["count"].direction
        for record in records(ran)
        if "count" in record.metrics
    }
    assert stored is None
    wanted = {
        "unit": "seconds",
        "si_unit": "s",
        "direction": "lower",
        "plugin": "faulty",
        "benchmark": "faulty",
    }
    assert {key: entry[key] for key in wanted} == wanted


def test_show_compare_and_publish_work_as_they_are(ran: Project) -> None:
    shown = ran.asv("show", "main").stdout
    assert "faulty.track_time" in shown
    assert "3/4 failed" in shown
    assert re.search(r"works +[\d.]+±[\d.]+[nμ]s", shown), shown
    compared = ran.asv("compare", "main~2", "main").stdout
    value = r"[\d.]+±[\d.]+[nμ]s"
    assert re.search(
        rf"\| {value} +\| {value} +\| \S+ +\| toy.track_time\(10\)", compared
    ), compared
    done = ran.asv("publish")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (ran.path / "html" / "index.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bench", "tyo"], "--bench: no benchmark matches 'tyo'; did you mean 'toy'?"),
        (["--bench", "^toy$", "--bench", "x", "main"], "--bench: no benchmark matches 'x'"),
        (["COMMIT"], "no results at commit COMMIT; asv show lists the commits that have"),
        (["--durations", "COMMIT"], "no results at commit COMMIT"),
        (
            ["--bench", "^toy$", "-E", "node", "COMMIT"],
            "no results of benchmarks that match '^toy$' at commit COMMIT in environment node",
        ),
    ],
)
def test_show_says_what_it_does_not_find(ran: Project, words: list[str], said: str) -> None:
    commit = git(ran.path, "commit-tree", "main^{tree}", "-p", "main", "-m", "not measured")
    done = ran.asv("show", *(word.replace("COMMIT", commit) for word in words))
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"hpml: {said}".replace("COMMIT", commit))


def test_show_finds_the_environment_of_a_type(ran: Project) -> None:
    assert "faulty.track_time" in ran.asv("show", "-E", "node", "main").stdout


def test_a_quick_run_keeps_what_a_full_one_found(ran: Project) -> None:
    before = {
        str(result["commit_hash"]): result["results"]["toy.track_time"][0]
        for result in results(ran)
    }  # type: ignore[index]
    done = ran.asv("run", "main^!", "--bench", "toy", HPML_PROFILE="quick")
    assert done.returncode == 0, done.stdout + done.stderr
    after = {
        str(result["commit_hash"]): result["results"]["toy.track_time"][0]
        for result in results(ran)
    }  # type: ignore[index]
    (head,) = {commit for commit in before if before[commit] != after[commit]}
    assert before[head][1] == after[head][1]
    assert before[head][0] != after[head][0]


def test_a_run_that_measured_nothing_ends_with_that_and_a_status_of_its_own(
    ran: Project,
) -> None:
    done = ran.asv("run", "main^!", "--bench", "on_gpu", "--dry-run")
    assert done.returncode == MEASURED_NOTHING, done.stdout + done.stderr
    last = [line for line in done.stdout.splitlines() if line][-1]
    assert last.startswith("Measured nothing: 4 points skipped: needs more GPUs, ")
    assert "nothing to compare with" not in done.stdout

    before = len(records(ran))
    done = ran.asv("run", "main^!", "--bench", "on_gpu", "--skip-existing")
    assert done.returncode == MEASURED_NOTHING, done.stdout + done.stderr
    last = [line for line in done.stdout.splitlines() if line][-1]
    nothing = "Measured nothing: 4 points of an earlier run, skipped: needs more GPUs, "
    assert last.startswith(nothing)
    assert len(records(ran)) == before


def test_a_dry_run_stores_nothing(ran: Project) -> None:
    before = len(records(ran))
    done = ran.asv("run", "main^!", "--bench", "toy", "--dry-run")
    assert done.returncode == 0
    assert "Nothing is stored" in done.stdout and "Stored in" not in done.stdout
    assert len(records(ran)) == before


@pytest.mark.slow
def test_spawned_processes_give_the_same_as_forked_ones(ran: Project) -> None:
    before = len(records(ran))
    done = ran.asv("run", "main^!", "--bench", "toy", "--launch-method", "spawn")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(records(ran)) == before + 2


def test_a_named_machine_keeps_its_name(ran: Project) -> None:
    assert ran.asv("run", "main^!", "--bench", "toy", "--machine", "mine").returncode == 0
    assert json.loads((ran.path / "results/mine/machine.json").read_text())["gpu"]
    assert (ran.path / "results/mine/records").is_dir()


def test_a_machine_that_nothing_was_measured_on_leaves_no_folder(ran: Project) -> None:
    before = {each.name for each in (ran.path / "results").iterdir()}
    known = next(each.name for each in (ran.path / "results").iterdir() if each.is_dir())
    done = ran.asv("run", "main^!", "--bench", "nothing like it", "--machine", f"{known}x")
    assert done.returncode == 2
    assert f"--machine {known}x: a new machine; did you mean {known!r}?" in done.stdout
    assert {each.name for each in (ran.path / "results").iterdir()} == before


def test_a_plugin_that_breaks_on_one_node_does_not_erase_its_benchmarks(
    ran: Project,
) -> None:
    declared = json.loads((ran.path / "results/benchmarks.json").read_text())
    source = (ran.path / "faulty.py").read_text()
    try:
        ran.write("faulty.py", "import no_such_module\n" + source)
        done = ran.asv("run", "main^!", "--bench", "toy|faulty")
    finally:
        ran.write("faulty.py", source)
    assert (
        "plugin 'faulty' cannot be loaded: ModuleNotFoundError" in done.stdout + done.stderr
    )
    # the benchmarks of the other one were measured, and the last line does not say that this is all
    assert done.stdout.splitlines()[-1] == (
        "Left out 1 plugin that cannot be loaded: faulty; see the first lines"
    )
    assert done.returncode == 2
    assert set(json.loads((ran.path / "results/benchmarks.json").read_text())) == set(
        declared
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 1\nplugin: []\n", "registry.yaml:2: unknown key 'plugin'"),
        ("version: [\n", "not valid YAML"),
    ],
)
def test_a_bad_registry_stops_asv_run_in_one_line_before_results_are_touched(
    make_project: Callable[[str], Project], text: str, message: str
) -> None:
    project = make_project(text)
    done = project.asv("run")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (project.path / "results").exists()


def test_an_unknown_profile_stops_asv_run_with_the_nearest(ran: Project) -> None:
    done = ran.asv("run", HPML_PROFILE="quik")
    assert (done.returncode, "no profile 'quik'; did you mean 'quick'?" in done.stderr) == (
        2,
        True,
    )


def test_a_run_says_that_files_changed_while_the_version_did_not_and_the_page_names_the_states(
    ran: Project,
) -> None:
    plugin = ran.path / "toy.py"
    text = plugin.read_text()
    plugin.write_text(text + "# faster\n")
    done = ran.asv("run", "main^!", "--bench", "toy", HPML_PROFILE="quick")
    plugin.write_text(text)
    assert done.stdout.count("Plugin toy changed since commit ") == 1, done.stdout
    assert ran.asv("publish").returncode == 0
    assert (
        "They were measured with 2 states of the plugin's files"
        in (ran.path / "html/workload-toy.html").read_text()
    )
