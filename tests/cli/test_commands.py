from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import TOY

from hpml_plugins.model.serialization import decode
from hpml_plugins.run import MEASURED_NOTHING
from hpml_plugins.store import read_file

Hpml = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[[str, str], Path]

REGISTRY = (
    "version: 1\nplugins:\n"
    "  - {name: toy, path: toy.py, profiles: {quick: {toy: {size: [10]}}}}\n"
)


@pytest.fixture
def toy(write: Write) -> None:
    """A registry with the toy plugin."""
    write("registry.yaml", REGISTRY)
    write("toy.py", TOY)


@pytest.mark.usefixtures("toy")
def test_list_shows_plugins_points_and_metrics(hpml: Hpml) -> None:
    done = hpml("list")
    assert done.returncode == 0
    assert "toy     toy             2     2\n" in done.stdout
    done = hpml("list", "-v")
    assert "toy  toy  2 points" in done.stdout
    assert "    metrics: time [s]" in done.stdout
    assert "    size: 10, 1000" in done.stdout


@pytest.mark.usefixtures("toy")
def test_list_fits_the_terminal_and_shows_what_was_named(hpml: Hpml, write: Write) -> None:
    write("registry.yaml", REGISTRY + "  - {name: more, path: more.py}\n")
    more = TOY.replace('"toy"', '"toy_of_a_second_plugin"').replace(
        "[10, 1000]", "list(range(11))"
    )
    write("more.py", more.replace("grid=", "description='words and ' * 20, grid="))
    for options in ((), ("-v",)):
        for width in (40, 80):
            lines = hpml("list", *options, COLUMNS=str(width)).stdout.splitlines()
            assert max(map(len, lines)) <= width
    chosen = {name: hpml("list", name, "--json") for name in ("toy", "more", "toy_*", "t*")}
    found = {
        name: [row["benchmark"] for row in json.loads(done.stdout)]
        for name, done in chosen.items()
    }
    second = "toy_of_a_second_plugin"
    assert found == {
        "toy": ["toy"],
        "more": [second],
        "toy_*": [second],
        "t*": ["toy", second],
    }
    wrong = hpml("list", "tyo")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "hpml: no plugin or benchmark 'tyo'; did you mean 'toy'?\n",
    )


@pytest.mark.usefixtures("toy")
def test_a_boolean_is_written_as_in_the_registry_or_as_in_python(
    hpml: Hpml, write: Write
) -> None:
    write("registry.yaml", "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n")
    write("toy.py", TOY.replace("[10, 1000]", "[True, False]"))
    for text in ("false", "False"):
        (row,) = hpml("run", "toy", "-p", f"size={text}", "--json").stdout.splitlines()
        assert json.loads(row)["params"] == {"size": False}
    assert (
        "size 'no' is not in the grid of 'toy'; "
        in hpml("run", "toy", "-p", "size=no").stderr
    )


@pytest.mark.usefixtures("toy")
def test_list_says_what_this_node_would_skip_and_why(hpml: Hpml, write: Write) -> None:
    write(
        "toy.py",
        TOY.replace("import Bench", "import Requires, Bench").replace(
            "grid=", "requires=Requires(tools=('xyz',)), grid="
        ),
    )
    assert (
        "skipped here: 2 of 2, needs program xyz on the PATH" in hpml("list", "-v").stdout
    )
    ran = hpml("run", "toy")
    assert ran.returncode == MEASURED_NOTHING
    why = "Measured nothing: 2 points skipped: needs program xyz on the PATH"
    assert ran.stderr.splitlines()[-1] == f"hpml: {why}"
    short = hpml("list").stdout
    assert (
        "1 benchmark cannot run here (-v shows them):\n   1  needs program xyz on " in short
    )
    assert "toy     toy" not in short and "toy     toy " in hpml("list", "toy").stdout
    (row,) = json.loads(hpml("list", "--json").stdout)
    assert row["skipped"] == {"needs program xyz on the PATH": 2}


def test_list_and_discovery_import_nothing_heavy() -> None:
    code = (
        "import sys; from hpml_plugins.cli.list_ import command; from hpml_plugins.host import"
        " make_host; from hpml_plugins.registry import read_registry; from hpml_plugins.node import"
        " detect_node; assert not make_host(read_registry('registry.yaml')).broken; detect_node();"
        " heavy = {'torch', 'torchvision', 'numba', 'numpy', 'matplotlib', 'fvcore', 'rich', 'asv',"
        " 'jinja2'}; print(sorted(heavy & set(sys.modules)))"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_declaring_the_built_in_benchmarks_imports_nothing_that_only_measuring_needs() -> (
    None
):
    code = (
        "import sys; from hpml_plugins.host import load_plugin; from hpml_plugins.registry import"
        " read_registry; entries = read_registry().enabled; from pathlib import Path;"
        " print([entry.name for entry in entries if load_plugin(entry, Path()).error]); print([name"
        " for name in sys.modules if name.startswith('hpml_plugins.workloads.complexity')])"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")


@pytest.mark.usefixtures("toy")
def test_run_says_that_the_files_changed_while_the_version_did_not(
    hpml: Hpml, write: Write
) -> None:
    first = hpml("run", "toy", "-p", "size=10", "--rounds", "1", "--json")
    assert "changed since" not in first.stderr
    record = decode(first.stdout.encode())
    write(f"results/{record.machine}/records/c.jsonl", first.stdout)
    write(
        "results/elsewhere/records/c.jsonl",
        first.stdout.replace(record.source["sha256"], "0" * 64),
    )
    assert (
        "changed since" not in hpml("run", "toy", "-p", "size=10", "--rounds", "1").stderr
    )
    write("toy.py", TOY + "\n")
    done = hpml("run", "toy", "--rounds", "1")
    assert done.returncode == 0
    said = "Plugin toy changed since its last run, the version of toy did not: "
    assert done.stderr.count(said) == 1
    write(
        "toy.py",
        TOY.replace('"toy", measure', '"toy", measure, version="2", metrics=').replace(
            "metrics=, ", "metrics="
        ),
    )
    done = hpml("run", "toy", "-p", "size=10", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert "changed since" not in done.stderr


@pytest.mark.usefixtures("toy")
def test_a_broken_plugin_is_listed_as_broken_and_the_others_as_they_are(
    hpml: Hpml, write: Write
) -> None:
    write("registry.yaml", REGISTRY + "  - {name: bad, module: no_such_module}\n")
    done = hpml("list")
    assert done.returncode == 2
    assert "bad     BROKEN\n" in done.stdout
    assert done.stderr.startswith(
        "hpml: registry.yaml:4: plugin 'bad': module 'no_such_module' does not import"
    )
    assert "toy     toy " in done.stdout
    assert done.stderr.count("\n") == 1
    assert hpml("run", "toy", "-p", "size=10").returncode == 0


@pytest.mark.usefixtures("toy")
def test_run_measures_and_shows_a_table(hpml: Hpml) -> None:
    done = hpml("run", "toy")
    assert done.returncode == 0, done.stderr
    assert "1000" in done.stdout
    assert "toy\nsize  time" in done.stdout and " µs " in done.stdout


def test_run_measures_a_file_that_is_in_no_registry(hpml: Hpml, write: Write) -> None:
    write(
        "my-plugin.py", TOY.replace("    return [TOY]", "    return [TOY, other]") + OTHER
    )
    done = hpml("run", "my-plugin.py", "-p", "size=10", "--json", "--rounds", "1")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["benchmark"], each["plugin"]) for each in found] == [
        ("toy", "my_plugin"),
        ("my_plugin", "my_plugin"),
    ]
    assert found[0]["source"]["path"] == "my-plugin.py"
    write("broken.py", "import no_such_module\n")
    for name, told in (
        ("broken.py", "no_such_module"),
        ("none.py", "none.py: no such file"),
    ):
        done = hpml("run", name)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert told in done.stderr


#: One of the benchmarks of my-plugin.py has the plugin's name.
OTHER = (
    "\nother = Benchmark('my_plugin', measure, [Metric('time', 's', 'lower')], grid={'size':"
    " [10]})\n"
)


@pytest.mark.usefixtures("toy")
def test_a_file_of_the_registry_is_measured_as_the_registry_says(
    hpml: Hpml, write: Write
) -> None:
    done = hpml("run", "toy.py", "--profile", "quick", "--json", "--rounds", "1")
    assert [json.loads(line)["params"] for line in done.stdout.splitlines()] == [
        {"size": 10}
    ]


@pytest.mark.usefixtures("toy")
def test_run_measures_only_the_chosen_points_and_appends_their_records(
    hpml: Hpml, tmp_path: Path
) -> None:
    assert hpml("run", "toy", "--profile", "quick", "--record", "out.jsonl").returncode == 0
    assert hpml("run", "toy", "-p", "size=1000", "--record", "out.jsonl").returncode == 0
    rounds = [decode(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [record.params for record in rounds] == [{"size": 10}] * 3 + [{"size": 1000}] * 3
    records = list(read_file(tmp_path / "out.jsonl"))
    assert [(record.params, record.measured_rounds) for record in records] == [
        ({"size": 10}, 3),
        ({"size": 1000}, 3),
    ]


@pytest.mark.usefixtures("toy")
def test_run_measures_as_many_rounds_as_asked_for(hpml: Hpml) -> None:
    record = decode(
        hpml("run", "toy", "-p", "size=10", "--rounds", "2", "--json").stdout.encode()
    )
    assert (record.planned_rounds, record.measured_rounds) == (2, 2)
    refused = hpml("run", "toy", "--rounds", "0")
    assert (refused.returncode, refused.stdout) == (2, "")


def test_what_a_point_computes_once_is_computed_in_its_first_round(
    hpml: Hpml, write: Write
) -> None:
    drawing = "import random\n" + TOY.replace(
        "bench.time(lambda: sum(range(size)))", "bench.once('x', random.random)"
    )
    write("toy.py", drawing)
    write("registry.yaml", REGISTRY)
    samples = decode(hpml("run", "toy", "-p", "size=10", "--json").stdout.encode()).metrics[
        "time"
    ]
    assert (samples.rounds, len(set(samples.samples))) == ([1, 1, 1], 1)


def test_how_long_to_sample_is_the_registrys_and_the_command_lines(
    hpml: Hpml, write: Write
) -> None:
    # The samples alternate between 10 and 20 ms: ± 30 % is soon known, also on a busy machine, and
    # ± 1 % never.
    alternating = TOY.replace(
        "lambda: sum(range(size))", "lambda: time.sleep(next(seconds))"
    )
    write(
        "toy.py",
        "import itertools, time\nseconds = itertools.cycle([0.01, 0.02])\n" + alternating,
    )
    write(
        "registry.yaml",
        REGISTRY.replace(
            "path: toy.py", "path: toy.py, sampling: {precision: 0.9, budget: 9}"
        ),
    )
    samples = decode(hpml("run", "toy", "-p", "size=10", "--json").stdout.encode()).metrics[
        "time"
    ]
    # ten samples in three rounds
    assert (samples.rounds, samples.info["stopped"]) == ([4, 4, 4], "converged")
    done = hpml(
        "run", "toy", "-p", "size=10", "--json", "--precision", "0.01", "--budget", "0.3"
    )
    assert decode(done.stdout.encode()).metrics["time"].info["stopped"] == "budget"


@pytest.mark.usefixtures("toy")
def test_run_prints_records_as_json_and_nothing_else(hpml: Hpml) -> None:
    done = hpml("run", "toy", "-p", "size=10", "--json")
    assert decode(done.stdout.encode()).status == "ok"
    assert not [
        line for line in done.stderr.splitlines() if "other processes use" not in line
    ]  # a busy machine is named


@pytest.mark.usefixtures("toy")
def test_a_failed_point_gives_status_1_with_its_reason_and_a_traceback_only_for_debug(
    hpml: Hpml, write: Write
) -> None:
    write("toy.py", TOY.replace("// 2", "// 3"))
    done = hpml("run", "toy", "-p", "size=10")
    assert done.returncode == 1
    assert "failed: size=10: check failed: sum differs from Gauss" in done.stdout
    assert "hpml: Measured nothing: 1 point failed: " in done.stderr
    write("toy.py", TOY.replace("bench.check(", "unknown("))
    assert "Traceback" not in hpml("run", "toy").stderr
    for words in (("--debug", "run", "toy"), ("run", "toy", "--debug")):
        assert "Traceback" in hpml(*words).stderr


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "tyo"], "no benchmark or plugin 'tyo'; did you mean 'toy'?"),
        (
            ["run", "toy", "-p", "sise=10"],
            "'toy' has no parameter 'sise'; did you mean 'size'?",
        ),
        (["run", "toy", "-p", "size=7"], "size '7' is not in the grid of 'toy'"),
        (["run", "toy", "-p", "size"], "-p 'size' is not KEY=VALUE"),
        (
            ["run", "toy", "-p", "size=10", "-p", "size=1000"],
            "-p size is given twice; name all its values in one: size=A,B",
        ),
        (["run", "toy", "--profile", "quik"], "no profile 'quik'; did you mean 'quick'?"),
        (
            ["run", "toy", "--profile", "quick", "-p", "size=1000"],
            "no point of 'toy' is selected",
        ),
        (["list", "--profile", "nightly"], "no profile 'nightly'; known: full, quick"),
        (["--registry", "nowhere.yaml", "list"], "nowhere.yaml: no such file"),
        (["lsit"], "no command 'lsit'; did you mean 'list'?"),
    ],
)
def test_wrong_words_end_in_one_line_and_status_2(
    hpml: Hpml, args: list[str], message: str
) -> None:
    done = hpml(*args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("words", "ignored"),
    [
        ("list --available toy", "a NAME"),
        ("list -v --available", "--verbose"),
        ("jobs --json --tail 3", "--tail"),
        ("bundle --ask --node node.json", "--node"),
        ("accept --list --html page.html", "--html"),
        ("accept --export-bands bands.json --only power", "--only"),
        ("accept --back-test --json", "--json"),
    ],
)
def test_an_option_that_another_would_ignore_is_refused(
    words: str, ignored: str, hpml: Hpml
) -> None:
    done = hpml(*words.split())
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"does not use {ignored}; leave out one of them" in done.stderr


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["retract", "toy", "--reason", "x", "--run", ""], "'--run' is empty"),
        (["compare", "a", "b", "--machine", ""], "'--machine' is empty"),
        (["merge", "x", "--into", ""], "the name is empty"),
        (["retract", "toy", "--reason", "x" * 10_001], "--reason has 10,001 characters"),
        (["accept", "--results", "x"], "--results is for --export-bands and --back-test"),
        (["run", "toy", "--record", "toy.py"], "toy.py holds something else than Records"),
        (["run", "toy", "--record", "registry.yaml"], "something else than Records"),
    ],
)
def test_what_would_select_everything_or_damage_a_file_is_refused(
    words: list[str], refused: str, hpml: Hpml, tmp_path: Path
) -> None:
    before = {
        file: file.read_text() for file in tmp_path.rglob("*.[py]*") if file.is_file()
    }
    done = hpml(*words)
    assert done.returncode == 2 and refused in done.stderr
    assert {file: file.read_text() for file in before} == before


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ("", "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ('{"results_dir": 5}', "results_dir is 5; name a folder"),
    ],
)
def test_a_damaged_configuration_is_named_and_no_other_folder_is_used(
    text: str, why: str, hpml: Hpml, write: Write, tmp_path: Path
) -> None:
    write("asv.conf.json", text)
    other = tmp_path / "other"
    other.mkdir()
    for words in (
        ["merge", str(other)],
        ["export", "x.parquet"],
        ["compare", "a", "b"],
        ["retract", "toy", "--reason", "x"],
    ):
        done = hpml(*words)
        assert done.returncode == 2, words
        assert "asv.conf.json" in done.stderr and why in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("toy")
def test_a_file_that_the_registry_lacks_is_suggested(hpml: Hpml, write: Write) -> None:
    write("other.py", TOY)
    done = hpml("run", "other")
    said = "registry.yaml has no 'other'; to run the file: hpml run other.py"
    assert (done.returncode, done.stderr) == (2, f"hpml: {said}\n")
    assert hpml("run", "other.py", "-p", "size=10").returncode == 0


def test_machine_records_the_node_for_asv_under_a_stable_name(
    hpml: Hpml, tmp_path: Path
) -> None:
    done = hpml("machine", "--json")
    facts = json.loads(done.stdout)
    stored = json.loads((tmp_path / ".asv-machine.json").read_text())
    assert stored[facts["machine"]]["gpu"] == facts["gpu"]
    assert hpml("machine", "--name", "mine").returncode == 0
    refused = hpml("machine", "--name", "a/b")
    assert (refused.returncode, "leave out slashes" in refused.stderr) == (2, True)
    assert set(json.loads((tmp_path / ".asv-machine.json").read_text())) == {
        facts["machine"],
        "mine",
        "version",
    }


@pytest.mark.usefixtures("toy")
def test_doctor_names_what_works_and_what_is_broken_with_its_fix(
    hpml: Hpml, write: Write, tmp_path: Path
) -> None:
    write("shadow/fvcore.py", "raise ImportError('no fvcore today')")
    answer = json.loads(
        hpml("doctor", "--json", PYTHONPATH=str(tmp_path / "shadow")).stdout
    )
    findings = {finding["subject"]: finding for finding in answer["findings"]}
    assert findings["torch"]["state"] == "ok"
    assert findings["fvcore"]["state"] == "broken"
    assert "no fvcore today" in findings["fvcore"]["what"]
    assert findings["fvcore"]["fix"] == "pip install fvcore"
    assert findings["registry"]["what"] == "registry.yaml: 1 plugin, 1 benchmark"
    assert answer["python"] == platform.python_version()
    assert answer["packages"]["fvcore"]


def test_schema_prints_the_json_schema(hpml: Hpml) -> None:
    assert "PluginEntry" in json.loads(hpml("schema").stdout)["$defs"]


def test_a_round_that_outlasts_the_limit_of_a_run_is_ended_and_left_out(
    hpml: Hpml, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(
        """
import time
from hpml_plugins import Benchmark, Metric, hookimpl

def measure(bench):
    bench.progress("asleep", 0.25)
    time.sleep(100)
    return {"time": 1.0}

@hookimpl
def hpml_benchmarks():
    return [Benchmark("slow", measure, [Metric("time", "s", "lower")])]
"""
    )
    limited = ("--limit", "8s", "--rounds", "1")
    done = hpml("run", "slow.py", *limited, "--record", "kept.jsonl")
    assert done.returncode == MEASURED_NOTHING, done.stderr
    assert "did not fit into the limit of 8 s: slow (ended at: asleep 25%)." in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last == "hpml: Measured nothing: 1 point did not fit into the limit of 8 s"
    assert (tmp_path / "kept.jsonl").read_text() == ""
