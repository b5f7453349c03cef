"""What reaches readers: texts on a terminal, in tables, pages and the feed, and the command line
itself."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
import shutil
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from feeds import ATOM, feed_of
from fuzzing.engine import Kind
from fuzzing.grammars import NUMBERS, PIECES, text, text_bytes
from fuzzing.mutating import mutate_bytes

from hpml_plugins.errors import HpmlError

COMMIT = "c" * 40


def _texts() -> Sequence[bytes]:
    return [each.encode("utf-8", "surrogatepass") for each in PIECES]


def _text(data: bytes) -> str:
    # A text that begins with "hpml: " may stand at the beginning of a line; behind an x it must
    # have made that line.
    return "x" + data.decode("utf-8", "surrogatepass")


def hold_printable(*lines: str) -> None:
    """What a terminal gets: every line printable, none forged."""
    for line in "\n".join(lines).split("\n"):
        assert line.isprintable(), f"not printable: {line[:300]!r}"
        assert not line.lstrip().startswith("hpml: forged"), f"forged: {line[:300]!r}"


def a_record(told: str, **more: Any) -> Any:
    from hpml_plugins.model.record import MetricSamples, Record

    names = dict.fromkeys(("plugin", "version", "output", "run"), told)
    metric = MetricSamples("s", "lower", [1.0, 2.0], {"timer": told, told: told})
    about: dict[str, Any] = {
        "benchmark": told,
        **names,
        "params": {"how": told, told: 1},
        "status": "ok",
        "metrics": {"time": metric, told: metric},
        "checks": [told],
        "warnings": [told],
        "machine": "m",
        "commit": COMMIT,
        "started": 1.0,
        "duration": 1.0,
        "node": {
            "gpu_problem": told,
            "os": told,
            "cpu": told,
            "python": told,
            "gpus": [{"name": told, "memory": 1.0}],
        },
        "packages": {told: told, "torch": told},
        "source": {told: told, "distribution": told, "path": told},
        "data": {told: {told: told}},
        "environment": "env",
    }
    return Record(**(about | more))


def _read_text(data: bytes, folder: Path) -> str:
    from hpml_plugins.cli import print_json, show_findings
    from hpml_plugins.model.figure import Table
    from hpml_plugins.model.finding import Finding
    from hpml_plugins.model.formatting import format_point
    from hpml_plugins.report.points import describe_points
    from hpml_plugins.report.shares import Roof
    from hpml_plugins.report.tables import as_csv, as_markdown, as_text
    from hpml_plugins.terminal import one_line, printable, printable_json, say, warn

    told = _text(data)
    whole = not any("\ud800" <= each <= "\udfff" for each in told)
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        say(told, told)
        warn(told)
        if whole:
            print_json({told: [told]})
        show_findings([Finding(subject=told, state="broken", what=told, fix=told)], False)
    hold_printable(stream.getvalue())
    for one in (
        printable(told),
        one_line(told),
        str(HpmlError(told, told)),
        HpmlError("x", told).where,
    ):
        hold_printable(one)
        one.encode()
    encoded = printable_json(json.dumps([told], ensure_ascii=False))
    hold_printable(encoded)
    assert json.loads(encoded) == [told] or not whole
    record = a_record(told)
    failed = msgspec.structs.replace(record, status="failed", reason=told)
    table = Table.of_records([record], "time")
    for form, height in ((as_text, 2), (as_markdown, 3), (as_csv, 2)):
        shown = form(table)
        hold_printable(shown)
        assert len(shown.splitlines()) == height
    hold_printable(*describe_points([record, failed], 100, Roof([])))
    format_point(record.params)
    return "shown"


def _read_feed(data: bytes, folder: Path) -> str:
    feed, entry = feed_of(folder, _text(data))
    assert {each.tag for each in feed.iter()} <= {
        f"{ATOM}{name}"
        for name in (
            "feed",
            "entry",
            "title",
            "id",
            "link",
            "updated",
            "content",
            "author",
            "name",
            "published",
            "summary",
        )
    }
    found = _Elements()
    found.feed(entry.findtext(f"{ATOM}content") or "")
    assert {name for name, _ in found.elements} <= {"a"}, found.elements
    return "well-formed"


class _Elements(HTMLParser):
    """The elements of a page with the names of their attributes, and the addresses that it leads
    to."""

    FOLLOWED = ("href", "src", "action", "formaction", "data", "srcdoc")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: set[tuple[str, tuple[str, ...]]] = set()
        self.addresses: list[str] = []
        self.comments = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add((tag, tuple(sorted(name for name, _ in attrs))))
        self.addresses += [value or "" for name, value in attrs if name in self.FOLLOWED]

    def handle_comment(self, data: str) -> None:
        self.comments += 1


@functools.cache
def _known(folder: Path) -> dict[str, set[tuple[str, tuple[str, ...]]]]:
    """The elements of each page for a harmless text, and for one whose Records are refused: a page
    without results."""
    elements: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
    for told in ("harmless", "refused\0"):
        for name, found in _pages(told, folder).items():
            elements.setdefault(name, set()).update(found.elements)
    return elements


def _pages(told: str, folder: Path) -> dict[str, _Elements]:
    """The pages of two Records, one failed, that hold the text wherever one may stand."""
    from fuzzing.results_kinds import write_pages

    from hpml_plugins.model.serialization import encode

    records = folder / "results" / "m" / "records" / f"{COMMIT[:8]}.jsonl"
    records.parent.mkdir(parents=True, exist_ok=True)
    facts = {"machine": "m", "version": 1, "gpu": told, "cpu": told, "os": told, told: told}
    (folder / "results" / "m" / "machine.json").write_text(json.dumps(facts))
    record = a_record(told)
    made = [
        record,
        a_record(
            told,
            started=2.0,
            status="failed",
            reason=told,
            metrics={},
            params={"how": f"{told}2", told: 1},
        ),
    ]
    records.write_bytes(b"".join(encode(each) + b"\n" for each in made))
    write_pages(folder, folder / "results", {}, project=told, commits={COMMIT: 0})
    found = {}
    for path in (folder / "html").glob("*.html"):
        found[path.name] = _Elements()
        found[path.name].feed(path.read_text(encoding="utf-8"))
    return found


def _read_pages(data: bytes, folder: Path) -> str:
    told = _text(data)
    told.encode()  # half a character is refused where files are read
    known = _known(folder)
    shown = 0
    for name, page in _pages(told, folder).items():
        new = page.elements - known[name]
        assert not new, f"{name}: the text made elements: {sorted(new)[:5]}"
        assert not page.comments, f"{name}: the text made a comment"
        for address in page.addresses:
            start = "".join(each for each in address if each > " ").lower()
            assert not start.startswith(("javascript:", "data:", "vbscript:", "//")), (
                f"{name}: {address!r}"
            )
        shown += (folder / "html" / name).read_text(encoding="utf-8").count("<")
    return "shown" if shown else "empty"


#: Variables of the environment that a command reads.
VARIABLES = (
    "HPML_IMPORT_LIMIT",
    "HPML_PROCESS_LIMIT",
    "HPML_PROFILE",
    "HPML_DATA",
    "HPML_MACHINE",
    "HPML_SHARD",
    "HPML_RESULTS",
    "COLUMNS",
    "LINES",
)
#: Not `doctor` and `publish`, which look at the machine and run asv: seconds each.
COMMANDS = (
    "list",
    "run",
    "new",
    "check",
    "table",
    "plot",
    "compare",
    "export",
    "bundle",
    "data",
    "submit",
    "jobs",
    "merge",
    "retract",
    "schema",
)
PLACES = (
    "registry.yaml",
    "empty.yaml",
    "bad.yaml",
    "results",
    "other",
    "cluster.yaml",
    "node.json",
    "zero",
    "nothing",
    "sub/x",
    ".",
    "",
    "results/m/records/cccccccc.jsonl",
    "m",
    "time",
    "toy",
    COMMIT,
    "cifar10-jpeg.tar",
    "mnist-copy",
    "x" * 300,
    "registry.yaml/x",
)


def _word(random: Random) -> str:
    kind = random.randrange(4)
    if kind == 0:
        return random.choice(NUMBERS)
    if kind == 1:
        return random.choice(PLACES)
    if kind == 2:
        return "x" + text(random).replace("\0", "").replace("/", "").replace("~", "")[:5000]
    return os.fsdecode(
        bytes(random.choices(range(1, 256), k=random.randint(1, 6))).replace(b"/", b"")
    )


@functools.cache
def _options() -> dict[str, tuple[list[tuple[str, bool]], int]]:
    """Command → its options, each with whether it takes a value, and how many arguments it has."""
    import click

    from hpml_plugins.cli import LazyCommand, group

    found = {}
    for name in COMMANDS:
        lazy = group.get_command(click.Context(group), name)
        assert isinstance(lazy, LazyCommand)
        command = lazy.load()
        options = [
            (option, not getattr(each, "is_flag", False))
            for each in command.params
            if isinstance(each, click.Option)
            for option in each.opts
        ]
        found[name] = (
            options,
            sum(isinstance(each, click.Argument) for each in command.params),
        )
    return found


def _write_command(random: Random) -> bytes:
    name = random.choice(COMMANDS)
    options, arguments = _options()[name]
    words = [] if random.randrange(3) else ["--registry", _word(random)]
    words += ["--debug-"] if not random.randrange(100) else []
    words.append(name if random.randrange(30) else _word(random))
    if name == "data" and random.randrange(4):
        words.append(random.choice(("add", "show", _word(random))))
        arguments = 1
    behind: list[list[str]] = [
        [_word(random)]
        for _ in range(arguments if random.randrange(5) else random.randrange(4))
    ]
    for option, takes in random.choices(options, k=random.randrange(4)) if options else ():
        value = _word(random)
        behind.append(
            [f"{option}={value}"]
            if takes and random.randrange(2)
            else [option, value]
            if takes
            else [option]
        )
    if not random.randrange(20):
        behind.append(
            [random.choice(("--help", "-h", "--", "--no-such", "-", "--=", "-\x1b"))]
        )
    random.shuffle(behind)
    set_ = {
        random.choice(VARIABLES): _word(random) for _ in range(random.choice((0, 0, 1, 2)))
    }
    return json.dumps({"words": [*words, *itertools.chain(*behind)], "set": set_}).encode()


def _commands() -> Sequence[bytes]:
    return [
        json.dumps({"words": ["compare", "m", COMMIT], "set": {}}).encode(),
        b'{"words": ["jobs", "--json"], "set": {}}',
    ]


def _make_place(folder: Path) -> Path:
    """A project: no plugin, one machine with a Record, files that are none."""
    from hpml_plugins.model.serialization import encode

    place = folder / "a" / "b" / "c"
    shutil.rmtree(place, ignore_errors=True)
    records = place / "results" / "m" / "records"
    records.mkdir(parents=True)
    (records / "cccccccc.jsonl").write_bytes(encode(a_record("x")) + b"\n{\n")
    (place / "results" / "m" / "machine.json").write_text('{"machine": "m", "version": 1}')
    shutil.copytree(place / "results", place / "other")
    (place / "empty.yaml").write_text("version: 1\nplugins: []\n")
    (place / "registry.yaml").write_text("version: 1\nplugins: []\n")
    (place / "bad.yaml").write_text("version: 1\nplugins:\n  - {name: '\\x1b[2J'}\n")
    (place / "cluster.yaml").write_text(
        "version: 1\ntargets: [{name: t, executor: slurm, hours: 1}]\n"
    )
    (place / "node.json").write_text('{"hpml_node": 1}')
    (place / "cifar10-jpeg.tar").write_bytes(b"\x1f\x8b\0\0")

    (place / "zero").symlink_to("/dev/null")
    return place


def be_alone(folder: Path) -> None:
    """No program can be found, and nothing of this machine's user is read."""
    (folder / "none").mkdir(exist_ok=True)
    os.environ.update(
        PATH=str(folder / "none"), HOME=str(folder), XDG_CACHE_HOME=str(folder / "cache")
    )
    _options()


def _read_command(data: bytes, folder: Path) -> str:
    from hpml_plugins.cli import main

    try:
        case = json.loads(data)
        words, given = case["words"], case["set"]
        before = {name: os.environ.get(name) for name in given}
        if any("\0" in each for each in [*words, *given.values()]):
            raise NoCommand  # no system starts a program with it
        [os.fsencode(each) for each in [*words, *given.values()]]
        os.environ.update(given)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NoCommand from None
    os.chdir(_make_place(folder))
    out, err, real = io.StringIO(), io.StringIO(), (sys.stdout, sys.stderr, sys.argv)
    try:
        sys.stdout, sys.stderr, sys.argv = out, err, ["hpml", *words]  # type: ignore[assignment]
        main()
    except SystemExit as ended:
        status = ended.code
    finally:
        sys.stdout, sys.stderr, sys.argv = real
        os.chdir(folder)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update(
                {name: value}
            )
    if "--ask" not in words:
        hold_printable(out.getvalue(), err.getvalue())
    assert status in (0, 1, 2), status
    assert "bug in hpml-plugins" not in err.getvalue(), err.getvalue()[-1000:]
    assert "--debug" in words or "Traceback" not in err.getvalue(), err.getvalue()[-1000:]
    if status == 2:
        # without a command there is the help
        is_told = "hpml: " in err.getvalue() or err.getvalue().startswith("Usage: hpml ")
        assert is_told, err.getvalue()
        raise HpmlError("refused: " + err.getvalue()[:200].split("\n")[0])
    return "done"


class NoCommand(Exception):
    """No system starts a program with such words."""


KINDS = (
    Kind(
        "text on a terminal",
        _texts,
        mutate_bytes,
        _read_text,
        (HpmlError, UnicodeDecodeError),
        grammar=text_bytes,
    ),
    Kind(
        "text in the feed",
        _texts,
        mutate_bytes,
        _read_feed,
        (HpmlError, UnicodeDecodeError),
        grammar=text_bytes,
    ),
    Kind(
        "text on pages",
        _texts,
        mutate_bytes,
        _read_pages,
        (HpmlError, UnicodeError),
        grammar=text_bytes,
    ),
    Kind(
        "command line",
        _commands,
        mutate_bytes,
        _read_command,
        (HpmlError, NoCommand),
        be_alone,
        _write_command,
        ("subprocess.Popen", "os.fork", "os.posix_spawn"),
    ),
)
