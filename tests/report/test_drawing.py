"""Plugins draw in processes of their own: whatever one does there, the others' figures, and this
process, are as without it."""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Container
from pathlib import Path

import pytest
from records import a_record
from support import DRAWN

from hpml_plugins import HpmlError, Record
from hpml_plugins.host import Host, make_host
from hpml_plugins.plugins.course.origins import origins_of, trace
from hpml_plugins.registry import read_registry
from hpml_plugins.report.drawing import LIMIT_VARIABLE, DrawnPlugin, draw_all
from hpml_plugins.report.figures import render
from hpml_plugins.report.pictures import checked_picture

OTHER = """
import sys
from hpml_plugins import Benchmark, Figure, Metric, Table, hookimpl
{at_import}

def measure(bench):
    return {{"z": 1.0}}

def table(records):
    {in_table}
    return Table({{"z": [1.0]}})

def draw(sheet, table):
    {in_draw}
    sheet.subplots().plot([1, 2])

@hookimpl
def hpml_benchmarks():
    return [Benchmark("other", measure, [Metric("z", "s", "lower")])]

@hookimpl
def hpml_figures():
    {in_hook}
    return [Figure("z", "Z", ("other",), table, draw=draw)]
"""
#: What a plugin does → the code.
WAYS = {
    "patches statistics": "import statistics; statistics.median = lambda *a: 42.0",
    "patches math": "import math; math.sqrt = math.fsum = math.isfinite = lambda *a: 42.0",
    "patches json": "import json; json.dumps = lambda *a, **k: '{}'",
    "patches msgspec": "import msgspec; msgspec.json.encode = lambda *a, **k: b'{}'",
    "patches open": "import builtins; builtins.open = None",
    "patches round": "import builtins; builtins.round = lambda *a: 42",
    "patches the median of Records": (
        "from hpml_plugins.model.record import MetricSamples;"
        " MetricSamples.value = property(lambda s: 1e-12)"
    ),
    "patches how numbers are written": (
        "from hpml_plugins.model import formatting; formatting.quantity = lambda *a: '42 s'"
    ),
    "patches escaping": "import markupsafe; markupsafe.escape = markupsafe.Markup",
    "stops clocks": "import time; time.time = time.monotonic = time.perf_counter = lambda: 0.0",
    "changes the locale": "import locale; locale.setlocale(locale.LC_ALL, '')",
    "limits open files": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))"
    ),
    "limits files": "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))",
    "limits recursion": "sys.setrecursionlimit(60)",
    "rings an alarm": "import signal; signal.alarm(1)",
    "exits": "import os; os._exit(0)",
    "exits at the second import": (
        "import os, pathlib; f = pathlib.Path(__file__ + '.seen');"
        " f.exists() and os._exit(0); f.touch()"
    ),
    "crashes": "import ctypes; ctypes.string_at(0)",
    "closes descriptors": "import os; os.closerange(3, 256)",
    "forgets modules": (
        "[sys.modules.pop(k) for k in list(sys.modules) if k.startswith('hpml_plugins')]"
    ),
    "prints": "print('x' * 10_000_000)",
    "sets the umask": "import os; os.umask(0o777)",
    "turns warnings into errors": "import warnings; warnings.filterwarnings('error')",
    "changes the folder": "import os; os.chdir('/')",
    "raises SystemExit": "raise SystemExit(0)",
}

Drawing = Callable[..., dict[str, DrawnPlugin]]
#: Ways that end the process before it has handed over anything.
FATAL = ("exits", "crashes", "raises SystemExit")
#: What the toy draws alone, made once.
_ALONE: list[object] = []


@pytest.fixture
def toy_records() -> list[Record]:
    def record(benchmark: str, size: int, seconds: float) -> Record:
        times = [seconds, seconds * 1.1, seconds * 1.2]
        if benchmark == "toy":
            return a_record("toy", {"time": times}, params={"size": size})
        return a_record(benchmark, {"z": times})

    return [record("toy", 10, 1e-6), record("toy", 1000, 5e-5), record("other", 1, 1.0)]


@pytest.fixture
def host(tmp_path: Path) -> Callable[..., Host]:
    """The host of a registry with the other plugin first, where there is one."""

    def made(**places: str) -> Host:
        (tmp_path / "toy.py").write_text(DRAWN)
        entries = ["  - {name: toy, path: toy.py}\n"]
        if places:
            filled = {
                "at_import": "",
                "in_table": "",
                "in_draw": "",
                "in_hook": "",
                **places,
            }
            (tmp_path / "other.py").write_text(OTHER.format(**filled))
            entries.insert(0, "  - {name: other, path: other.py}\n")
        (tmp_path / "registry.yaml").write_text("version: 1\nplugins:\n" + "".join(entries))
        return make_host(read_registry(tmp_path / "registry.yaml"))

    return made


@pytest.fixture
def drawing(host: Callable[..., Host], toy_records: list[Record]) -> Drawing:
    """What each plugin draws beside one that does something somewhere."""

    def draw(**places: str) -> dict[str, DrawnPlugin]:
        drawing = draw_all(host(**places), toy_records, trace=trace)
        return {each.plugin.entry.name: each for each in drawing}

    return draw


@pytest.fixture
def alone(drawing: Drawing) -> list[object]:
    """What the toy draws without another plugin."""
    if not _ALONE:
        _ALONE.extend(as_text(drawing()["toy"]))
    assert len(_ALONE) == 3
    return _ALONE


def as_text(drawn: DrawnPlugin) -> list[object]:
    """All that pages have of a plugin's figures."""
    assert drawn.error is None
    return [
        (
            each.figure.name,
            each.figure.title,
            each.figure.caption,
            each.table,
            json.dumps(each.chart),
            [[of.point for of in origins_of(each).of(row)] for row in each.table.rows()],
            bool(each.picture),
            each.error,
            each.note,
        )
        for each in drawn.drawables
    ]


def test_a_figure_of_every_card_is_made_of_their_records(
    tmp_path: Path, host: Callable[..., Host], toy_records: list[Record]
) -> None:
    registered = host()
    of_cards = 'Figure("numbers", "The numbers", ("toy",), table, every_card=True)'
    path = tmp_path / "toy.py"
    path.write_text(
        path.read_text().replace(
            'Figure("numbers", "The numbers", ("toy",), table)', of_cards
        )
    )
    further = a_record(
        "toy", {"time": [3e-6] * 3}, params={"size": 10}, card="B", gpu="H200"
    )

    def every_card(benchmarks: Container[str]) -> list[Record]:
        return [further, toy_records[0]] if "toy" in benchmarks else []

    (drawn,) = draw_all(registered, toy_records, trace=trace, every_card=every_card)
    over_size, numbers, _ = drawn.drawables
    assert (len(over_size.table), len(numbers.table)) == (2, 2)
    assert numbers.table.columns["time"] == [3e-6, 1.1e-6]
    assert [origins_of(numbers).of(row) for row in numbers.table.rows()] == [
        [further],
        [toy_records[0]],
    ]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_plugin_does_when_imported_stays_in_its_process(
    way: str, drawing: Drawing, alone: list[object]
) -> None:
    before = (
        statistics.median,
        math.sqrt,
        json.dumps,
        open,
        os.umask(0o22),
        set(sys.modules),
    )
    assert all(rests for rests in alone[0][5])  # type: ignore[index]
    beside = drawing(at_import=WAYS[way])
    assert as_text(beside["toy"]) == alone
    assert "other" not in {
        name.rpartition("_")[2] for name in set(sys.modules) - before[-1]
    }
    after = (statistics.median, math.sqrt, json.dumps, open, os.umask(0o22))
    assert after[:4] == before[:4]


@pytest.mark.parametrize("place", ["in_hook", "in_table", "in_draw"])
@pytest.mark.parametrize("way", FATAL)
def test_a_plugin_that_ends_its_process_is_named_and_costs_its_own_figures(
    way: str, place: str, drawing: Drawing, alone: list[object]
) -> None:
    beside = drawing(**{place: WAYS[way]})
    assert as_text(beside["toy"]) == alone
    other = beside["other"]
    faults = [other.error, *(each.error or each.picture_error for each in other.drawables)]
    (fault,) = filter(None, faults)
    assert "other" in str(fault)


def test_a_plugin_that_never_ends_is_ended(
    drawing: Drawing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "8")
    beside = drawing(in_table="while True: pass")
    assert "plugin 'other' was not drawn: its process timed out after 8 s" in str(
        beside["other"].error
    )
    assert len(beside["toy"].drawables) == 3


def _pipes() -> set[str]:
    """Those of this process, which its forks have too."""
    places = [path for path in Path("/proc/self/fd").iterdir() if path.exists()]
    return {str(path.readlink()) for path in places} | {""}


@pytest.mark.parametrize(
    "message",
    [
        "b'garbage'",
        "bytes(3)",
        "msgspec.msgpack.encode({'names': ['../../x']})",
        "msgspec.msgpack.encode({'names': 7})",
    ],
)
def test_messages_that_a_plugin_sends_itself_are_no_figures(
    message: str, drawing: Drawing
) -> None:
    code = (
        "import os, msgspec, pathlib;"
        " links = {int(p.name): os.readlink(p) for p in pathlib.Path('/proc/self/fd').iterdir()"
        f" if p.exists()}}; m = {message};"
        f" fds = [n for n, to in links.items() if to[:4] == 'pipe' and to not in {_pipes()}];"
        " [os.write(n, len(m).to_bytes(8, 'big') + m) for n in fds]; os._exit(0)"
    )
    beside = drawing(in_hook=code)
    assert beside["other"].error
    assert beside["other"].drawables == []
    assert len(beside["toy"].drawables) == 3


def test_a_picture_is_drawn_there_in_the_form_that_is_asked_for(
    host: Callable[..., Host], toy_records: list[Record]
) -> None:
    for form, beginning in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        drawn = list(draw_all(host(in_hook=""), toy_records, form=form))
        (picture,) = (render(each, form) for each in drawn[0].drawables)
        assert picture
        assert picture.startswith(beginning)


SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{}</svg>'


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        "<a xlink:href='https://evil.example'><text>x</text></a>",
        "<a href='//evil.example'/>",
        "<image xlink:href='https://evil.example/x.png'/>",
        "<image href='data:image/svg+xml;base64,AAAA'/>",
        "<use href='https://evil.example/x.svg#a'/>",
        "<foreignObject><p xmlns='http://www.w3.org/1999/xhtml'>x</p></foreignObject>",
        "<p xmlns='http://www.w3.org/1999/xhtml'>x</p>",
        "<path onload='alert(1)' d='M0 0'/>",
        "<g ONCLICK='alert(1)'/>",
        "<animate attributeName='href' to='javascript:alert(1)'/>",
        "<set attributeName='onload' to='alert(1)'/>",
        "<style>@import url(https://evil.example/x.css);</style>",
        "<style>* { fill: url( 'https://evil.example/#x') }</style>",
        "<g style='fill: u\\72l(//evil.example)'/>",
        "<rect fill='url(//evil.example#x)'/>",
        "<iframe src='//evil.example'/>",
        "<text>not closed",
    ],
)
def test_a_picture_that_holds_more_than_a_chart_is_refused(inside: str) -> None:
    with pytest.raises(HpmlError, match="the picture"):
        checked_picture(SVG.format(inside).encode(), "svg")


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("svg", b"<html xmlns='http://www.w3.org/1999/xhtml'/>"),
        ("svg", b"\x89PNG\r\n"),
        ("svg", b"<!DOCTYPE svg [<!ENTITY a 'b'>]>" + SVG.format("&a;").encode()),
        ("svg", b""),
        ("png", b"<svg/>"),
        ("pdf", b"MZ"),
    ],
)
def test_a_picture_of_another_form_is_refused(form: str, content: bytes) -> None:
    with pytest.raises(HpmlError, match="the picture"):
        checked_picture(content, form)


def test_a_picture_keeps_what_a_chart_needs() -> None:
    inside = (
        "<defs><clipPath id='c'><rect width='1' height='1'/></clipPath></defs>"
        "<g clip-path='url(#c)'><path d='M 0 0 L 1 1' style='fill: none'/>"
        "<use xlink:href='#c'/><image href='data:image/png;base64,AAAA'/><text>a &lt; b</text></g>"
    )
    kept = checked_picture(SVG.format(inside).encode(), "svg").decode()
    for part in ("clip-path", "M 0 0 L 1 1", "#c", "data:image/png", "a &lt; b", "<svg"):
        assert part in kept
