"""What others wrote reaches a terminal as printable lines, and what goes wrong as one line with
status 2."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from records import a_record
from support import ROOT, TOY

import hpml_plugins.cli
from hpml_plugins import Table
from hpml_plugins.cli import main
from hpml_plugins.errors import HpmlError
from hpml_plugins.model.formatting import quantity
from hpml_plugins.model.serialization import encode
from hpml_plugins.report.points import describe_points
from hpml_plugins.report.tables import as_csv, as_markdown, as_text
from hpml_plugins.store import append_record
from hpml_plugins.terminal import THIN_SPACE, one_line, printable, printable_json, say
from hpml_plugins.tools.cluster.jobs import JobOrder, write_file

Call = Callable[..., tuple[int, str, str]]

#: Sequences that clear the screen, set its title, ring, go back, change direction, and lines that
#: look like ours.
HOSTILE = (
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b31mC1",
    "a\rb\x08\x7f",
    "\u202e\u2066back",
    "tab\there",
    "\ud800half",
    "x\nhpml: forged",
    "x\r\nhpml: forged",
    "x\x85hpml: forged",
    "x\u2028hpml: forged",
    "x\x0bhpml: forged",
    "\0nul",
)
REGISTRY = "version: 1\nplugins:\n  - {name: toy, path: toy.py}\n"


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """The command in this process, in the test's folder: status, standard output, standard
    error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # main() replaces it at its end

    def call(*words: str) -> tuple[int, str, str]:
        stream = sys.stdout
        monkeypatch.setattr(sys, "argv", ["hpml", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout = stream
        shown = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, shown.out, shown.err

    return call


def hold_harmless(*texts: str) -> None:
    """Whatever a terminal or a reader takes for a line: printable, and none forged."""
    for line in "\n".join(texts).splitlines():
        assert line.replace(THIN_SPACE, "").isprintable(), line
        assert not line.lstrip().startswith("hpml: forged")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_is_one_printable_line_wherever_it_stands(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for shown in (
        printable(text),
        one_line(text),
        str(HpmlError(text, text)),
        HpmlError("x", text).where,
    ):
        hold_harmless(shown)
        assert len(shown.splitlines()) == 1
        assert shown.encode()
    say(text, text)
    assert capsys.readouterr().out == f"{printable(text)}\n" * 2
    encoded = printable_json(json.dumps([text], ensure_ascii=False))
    hold_harmless(encoded)
    assert json.loads(encoded) == [text]


def test_a_count_of_six_digits_is_printed_as_it_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say(quantity(25_557_032, "1"))
    assert capsys.readouterr().out == f"25{THIN_SPACE}557{THIN_SPACE}032\n"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_in_a_table_stays_in_its_cell(text: str) -> None:
    record = a_record(
        metrics={"time": 1.0},
        params={"how": text},
        started=1.0,
        duration=1.0,
        machine=text,
        commit="c" * 40,
        warnings=[text],
    )
    failed = replace(record, status="failed", reason=text)
    table = Table.of_records([record], "time")
    assert [len(form(table).splitlines()) for form in (as_text, as_markdown, as_csv)] == [
        2,
        3,
        2,
    ]
    hold_harmless(*(form(table) for form in (as_text, as_markdown, as_csv)))
    hold_harmless("\n".join(describe_points([record, failed], 100, {})))


def test_every_line_of_a_command_goes_through_the_one_function() -> None:
    """Other ways to write are those of processes that talk to ours in JSON, and of files for a bare
    node."""
    folders = ("cli", "tools", "workloads")
    others = {
        "tools/bundle/ask_node.py",
        "tools/bundle/install.py",
        "tools/check/worker.py",
        "tools/doctor/diagnosis.py",
    }
    direct = {"print", "echo", "secho"}
    for path in (
        path
        for folder in folders
        for path in (ROOT / "hpml_plugins" / folder).rglob("*.py")
    ):
        name = str(path.relative_to(ROOT / "hpml_plugins"))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and name not in others:
                called = ast.unparse(node.func)
                known = called.rpartition(".")[2] in direct or (
                    "sys.std" in called and "write" in called
                )
                assert not known, f"{name}:{node.lineno}: {called}"


def test_one_thing_is_not_printed_as_several() -> None:
    """Numbers stand before a plural only where they are always several, or the whole of a share."""
    several = {"report/figures.py", "report/site/tasks.py", "cli/results.py"}
    nouns = "(points|values|benchmarks|plugins|Records|machines|commits|rows)"
    counts = re.compile(r"(?<! of )\{[a-z_][\w.()]*\} " + nouns + r"\b")
    package = ROOT / "hpml_plugins"
    found = [
        f"{path.relative_to(package)}: {match[0]}"
        for folder in ("asv", "cli", "report", "run", "store", "tools")
        for path in (package / folder).rglob("*.py")
        for match in counts.finditer(path.read_text())
        if str(path.relative_to(package)) not in several
    ]
    assert found == [], "say it by model.counted"


def test_commands_show_what_others_wrote_as_text(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registry.yaml").write_text(REGISTRY)
    (tmp_path / "toy.py").write_text(
        TOY.replace("[10, 1000]", repr([text for text in HOSTILE if "\ud800" not in text]))
    )
    hold_harmless(*call("list")[1:])
    code, out, err = call("list", "--json")
    hold_harmless(out, err)
    assert code == 0
    assert "x\nhpml: forged" in json.loads(out)[0]["grid"]["size"]
    names = [
        text.replace("/", "")
        for text in HOSTILE
        if "\0" not in text and "\ud800" not in text
    ]
    for number, text in enumerate(names):
        machine = tmp_path / "other" / "results" / text
        machine.mkdir(parents=True)
        (machine / "machine.json").write_text("{")
        (machine / "stray.json").write_text("{")
        job = tmp_path / "cluster-jobs" / f"{number}{text}"
        job.mkdir(parents=True)
        write_file(job, JobOrder(text, text, "slurm", text, "", text))
        facts = {"params": {"a": text}, "started": 1.0, "duration": 1.0}
        record = a_record(
            text,
            {"time": 1.0},
            plugin=text,
            machine=f"m{text}",
            commit=f"{text}{'c' * 9}",
            **facts,
        )
        shown = a_record(
            "toy",
            {"time": 1.0},
            **facts,
            machine=f"m{number}",
            commit="c" * 40,
            reason=text,
        )
        records = tmp_path / "results" / shown.machine / "records"
        records.mkdir(parents=True)
        (records / "cccccccc.jsonl").write_bytes(encode(record) + b"\n")
        append_record(records / "cccccccc.jsonl", shown)
    for words in (
        ["merge", "other"],
        ["jobs"],
        ["jobs", "--json"],
        ["jobs", text],
        ["compare", "m1", "m2"],
        ["retract", names[0], "--reason", "no", "--dry-run"],
        ["retract", "nobody", "--reason", names[1]],
        ["--registry", names[0], "list"],
        ["run", names[7]],
        ["table", names[7]],
        [names[7]],
        ["list", f"--{names[7]}"],
        ["export", names[7] + "/x"],
        ["data", "add", names[7]],
        ["bundle", "--node", names[7]],
        ["publish", "--config", names[7]],
    ):
        code, out, err = call(*words)
        hold_harmless(out, err)
        assert out + err, words
        assert "bug in hpml-plugins" not in err, err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "toy", "--limit", "nan"], "'nan' is not a number"),
        (["check", "toy", "--limit", "inf"], "inf is not in the range"),
        (["run", "toy", "--budget", "1e300"], "1e+300 is not in the range"),
        (["run", "toy", "--budget", "nan"], "'nan' is not a number"),
        (["run", "toy", "--precision", "nan"], "'nan' is not a number"),
        (["new", "row", "--to", "toy.py"], "hpml: toy.py/hpml-row: Not a directory"),
        (["run", "toy", "--record", "toy.py/x/y"], "hpml: toy.py/x: Not a directory"),
        (
            ["--registry", "toy.py/registry.yaml", "list"],
            "hpml: toy.py/registry.yaml: cannot be read: ",
        ),
        (["merge", "toy.py"], "hpml: toy.py: "),
        (
            ["jobs", "--cluster", os.fsdecode(b"\xff.yaml")],
            "hpml: \\udcff.yaml: no such file",
        ),
    ],
)
def test_what_cannot_be_meant_ends_in_one_line_and_status_2(
    call: Call, words: list[str], message: str
) -> None:
    Path("registry.yaml").write_text(REGISTRY)
    Path("toy.py").write_text(TOY)
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    hold_harmless(err)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HPML_IMPORT_LIMIT", "soon"),
        ("HPML_IMPORT_LIMIT", "nan"),
        ("HPML_IMPORT_LIMIT", "-1"),
        ("HPML_IMPORT_LIMIT", "1e300"),
        ("HPML_PROCESS_LIMIT", "9" * 5000),
        ("HPML_PROCESS_LIMIT", "many\x1b[31m"),
    ],
)
def test_a_bad_limit_of_the_environment_is_named(
    call: Call, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    Path("registry.yaml").write_text(REGISTRY)
    Path("toy.py").write_text(TOY)
    monkeypatch.setenv(variable, value)
    code, out, err = call("list")
    assert (code, out) == (2, "")
    assert err.startswith(f"hpml: {variable} is '")
    assert err.endswith("', not a positive number up to 1e+09; correct or unset it\n")


def test_an_unforeseen_error_is_one_line_and_debug_shows_its_traceback(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("x\x1b[31m\nhpml: forged")

    monkeypatch.setattr(hpml_plugins.cli.group, "invoke", fail)
    code, out, err = call("list")
    fault = "this is a bug in hpml-plugins; hpml --debug shows the traceback"
    assert (code, out, err) == (
        2,
        "",
        f"hpml: ZeroDivisionError: x\\x1b[31m hpml: forged; {fault}\n",
    )
    code, out, err = call("--debug", "list")
    assert (code, out) == (2, "")
    assert "Traceback" in err


def test_an_ascii_terminal_and_a_name_that_is_not_utf8_are_shown_escaped(
    call: Call,
) -> None:
    bare = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    job = Path("cluster-jobs", os.fsdecode(b"\xff"))
    job.mkdir(parents=True)
    write_file(job, JobOrder("é–", "m", "slurm", "h", "", "×"))
    kept, sys.stdout = sys.stdout, bare
    try:
        for words in (["jobs"], ["jobs", "--json"]):
            sys.argv = ["hpml", *words]
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 1  # the job was refused
            sys.stdout = bare
    finally:
        sys.stdout = kept
    shown = bare.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "\\xe9\\u2013" in shown
    assert "\\\\udcff" in shown
