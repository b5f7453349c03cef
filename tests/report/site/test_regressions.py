"""`asv publish` on a real history: one list of regressions, the same on our page and in the
feed."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from html import escape
from pathlib import Path
from typing import Any

import msgspec
import pytest
from feeds import ATOM, feed_of
from records import a_record
from site_history import BANDWIDTH, H200, TIME, around
from workload_pages import dots, read_point

from hpml_plugins.model.record import MetricSamples
from hpml_plugins.model.serialization import encode
from hpml_plugins.report.reading import Outcome
from hpml_plugins.report.site.changes_page import NO_RECORDS, explain
from hpml_plugins.terminal import escape_direction, printable


def test_a_fall_of_throughput_is_listed_and_a_fall_of_time_is_not(project: Any) -> None:
    dice = random.Random(1)
    for day in range(12):
        faster, slower = (0.5, 2.0) if day >= 6 else (1.0, 1.0)
        back = 1.5 if 6 <= day < 11 else 1.0
        torch = {"torch": "2.15.0" if day >= 6 else "2.11.0"}
        noise = [1 + 0.002 * dice.uniform(-1, 1) for _ in range(4)]
        project.add(
            H200,
            day,
            {
                # the first point gets faster, the second slower, the third slower until the
                # newest value; the fourth only trembles
                TIME["name"]: [
                    around(1e-3 * f * n)
                    for f, n in zip((faster, slower, back, 1), noise, strict=True)
                ],
                BANDWIDTH["name"]: [
                    around(1e9 / f * n)
                    for f, n in zip((faster, slower, back, 1), noise, strict=True)
                ],
            },
            packages=torch,
        )
    project.publish()
    assert not (project.html / "regressions.json").exists()
    page = (project.html / "changes.html").read_text()
    # time and bandwidth are of one timing: one change
    assert "1 open regression · " in page and "1 improvement · " in page
    code, text, either = (
        part.partition("</section>")[0] for part in page.split("<h2>")[1:]
    )
    assert "No change for which nothing but the commit can differ." in code
    assert "No change whose cause the Records leave open." in either
    assert text.count("▼ 2.00× (+100 %)") == text.count("▲ 0.50× (−50 %)") == 1
    assert "1 contradicted regression · " in page
    against = re.search(
        r"▼ 1\.50× \([^<]*</b> contradicted by the newest value, (.*?) ms<", text
    )
    assert against and float(against[1]) == pytest.approx(1, abs=0.01)
    assert text.count(" (also bandwidth) ") == 3
    assert text.count("<td>torch 2.11.0 → 2.15.0</td>") == 3
    assert text.count('class="spark ') == 3
    bounds = re.findall(
        r"([\d.]+)× \([^)]*\)</b>[^<]*<small>at (least|most) ([\d.]+)×", text
    )
    assert len(bounds) == 3
    # the bound is one of the ratio that stands beside, of a time too
    for ratio, words, bound in bounds:
        assert words == ("least" if float(ratio) > 1 else "most")
        assert 1 < float(bound) < float(ratio) or float(ratio) < float(bound) < 1
    assert project.commits[6][0][:8] in text
    assert f"<code>{project.commits[5][0][:8]}" not in text  # surely one commit's
    feed = ET.parse(project.html / "regressions.xml").getroot()
    titles = [entry.findtext(f"{ATOM}title") or "" for entry in feed.iter(f"{ATOM}entry")]
    assert [title.split(": ", 1)[1] for title in titles] == [
        "vector_add · time n=1000, mode=fast on NVIDIA H200 ×1 (node1)"
    ]
    content = feed.findtext(f"{ATOM}entry/{ATOM}content") or ""
    assert "What else differs: torch 2.11.0 → 2.15.0." in content
    assert "Changed with it: bandwidth." in content
    for mode, sign, verdict in (("plain", "▲", "better"), ("fast", "▼", "worse")):
        point = read_point(project.html, "vector_add", "time", f"n=1000, mode={mode}")
        assert point.count(f"<td>{sign} ") == 1
        assert "The line over commits is the level fitted" in point
        # the chart's mark has the table's direction
        tip = {"▲": "m0-6.6l", "▼": "m0 6.6l"}[sign]
        mark = rf'class="change {verdict}" d="M[\d.]+ [\d.]+{tip}'
        assert len(re.findall(mark, point)) == 1
    assert sum("2.00× (+100 %)" in each for each in dots(point)) == 1


def test_what_only_one_record_tells_is_no_change_of_circumstances(tmp_path: Path) -> None:
    """Records of November 2026 began to tell the share of the host: it was not another one."""
    whole = {"virtual": True, "host_cpus": 2, "num_cpu": 2, "boot": "b", "gpus": []}

    def side(commit: str, started: float, node: dict[str, Any], **facts: Any) -> Outcome:
        record = a_record(
            "toy",
            {"time": MetricSamples("s", "lower", [1.0, 1.1], {"timer": "perf_counter"})},
            commit=40 * commit,
            started=started,
            run=commit,
            node=node,
            source={"sha256": 64 * commit},
            **facts,
        )
        file = tmp_path / commit
        file.write_bytes(encode(record) + b"\n")
        return msgspec.structs.replace(Outcome.of(record, (0,)), file=str(file))

    untold = side("a", 1.0, {"gpus": []})
    told = side("b", 2.0, whole)
    assert explain([untold, told], "time") == (
        "",
        "which host, and what share of it, is not known",
    )
    other = side("c", 3.0, {**whole, "boot": "another"})
    assert explain([told, other], "time") == ("boot b → another", "")
    # what else differs is told with what is not known
    stack = side("d", 2.0, whole, packages={"torch": "2"})
    before = side("e", 1.0, {"gpus": []}, packages={"torch": "1"})
    differing, cause = explain([before, stack], "time")
    assert (differing, cause) == (
        "torch 1 → 2; share of the host not known → a whole virtual machine",
        "",
    )
    # asv's own results are of no file of Records
    assert (
        explain([msgspec.structs.replace(untold, file=""), told], "time")[1] == NO_RECORDS
    )


@pytest.mark.parametrize(
    "text",
    [
        *map(chr, range(0x20)),
        "\x7f\x85",
        "\ufffe\uffff",
        "\ud800",
        "]]>&<b>\u202e",
        "\u2028\n",
    ],
)
def test_the_feed_is_well_formed_whatever_the_names_hold(tmp_path: Path, text: str) -> None:
    feed, entry = feed_of(tmp_path, text)
    words = printable(f"a{text}b")
    assert entry.findtext(f"{ATOM}title") == f"{words}: {words} {words} on {words}"
    shown = escape_direction(escape(words))
    assert f">{shown} {shown}</a> on {shown}: " in (entry.findtext(f"{ATOM}content") or "")
    assert printable(text) in (feed.findtext(f"{ATOM}title") or "")
