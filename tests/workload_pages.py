"""The pages of workloads without asv, and what their script reads of a point."""

from __future__ import annotations

import base64
import html as html_text
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import escape

from hpml_plugins.report.reading import History
from hpml_plugins.report.site.changes import MeasuredSeries
from hpml_plugins.report.site.matrix import Costs, build
from hpml_plugins.report.site.page import SiteFolder, point_anchor, workload_address
from hpml_plugins.report.site.workloads import find_workloads, write_workloads


def write_points(
    history: History,
    html_dir: Path,
    series: Sequence[MeasuredSeries] = (),
    commit_url: str = "",
) -> None:
    """Write the page of each benchmark, and what its script reads."""
    found = find_workloads(history, build(history, Costs({})), [])
    placed = {each.place: each for each in series}
    write_workloads(found, history, placed, [], SiteFolder(html_dir, "p", commit_url))


def read_point(html_dir: Path, benchmark: str, metric: str, point: str = "") -> str:
    """What a page shows of a point that a reader opens."""
    anchor = point_anchor(metric, point)
    page = (html_dir / workload_address(benchmark)).read_text(encoding="utf-8")
    row = re.search(f'id="{re.escape(escape(anchor))}" data-file=([0-9]+)', page)
    folder = re.search('data-folder="([^"]+)"', page)
    assert row and folder, f"no row {anchor} on the page of {benchmark}"
    points = read_data(html_dir, f"{folder[1]}/{row[1]}.js")
    point = next(each for each in points if anchor in each)
    return str(point[anchor] + point[""])


def dots(fragment: str, over: str = "commit") -> list[str]:
    """The titles of the marks of a point's charts over commits, dates or stacks."""
    box = fragment.partition(f'class="wide over-{over}"')[2].partition("</div>")[0]
    return list(map(html_text.unescape, re.findall("<title>([^<]*)</title>", box)))


def read_points(html_dir: Path) -> str:
    """The rows of all points, which the first page shows when a reader filters."""
    return "".join(row for _, row in read_data(html_dir, "compare/points.js"))


def read_data(html_dir: Path, address: str) -> Any:
    """What a page's script reads at this address: the file is a call of hpml.put with the address
    and the value, or of hpml.unpack with the deflated value."""
    call, _, arguments = (html_dir / address).read_text().partition("(")
    told, value = json.loads(f"[{arguments.removesuffix(')')}]")
    assert told == address
    if call == "hpml.put":
        return value
    assert call == "hpml.unpack"
    return json.loads(zlib.decompress(base64.b64decode(value), -zlib.MAX_WBITS))


def asv_graphs(html_dir: Path, benchmark: str) -> tuple[list[Any], list[list[Any]]]:
    """What asv's pages draw of a benchmark: its summary, and its graphs."""
    packed = (html_dir / "graphs" / f"{benchmark}.deflate").read_bytes()
    merged = json.loads(zlib.decompress(packed, -zlib.MAX_WBITS))
    return merged.pop("summary"), list(merged.values())
