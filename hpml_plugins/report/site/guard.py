"""Faults of asv's pages, mended in the copies that are published: names taken for markup, direction, the navbar,
graphs that open empty, and boxes of the grid that show nothing where there is one commit.

asv shows the facts of machines, the code, names and units of benchmarks and the repository's tags as HTML, so that
whoever can put a file into results/ could run a script in a reader's browser. And it takes "more" for "worse" whatever
is measured. Its navbar covers what is below once it has more than one line, which our pages in it bring about.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpml_plugins.report.site.vendor import static

#: script → (what asv wrote, what is published), each at least once in asv 0.6.6.
PATCHES: dict[str, tuple[tuple[str, str], ...]] = {
    "asv_ui.js": (("""panel-heading">' + heading +""", """panel-heading">' + hpml_text(heading) +"""),),
    "summarylist.js": (
        ("details.push(key + ': ' + val);", "details.push(hpml_text(key + ': ' + val));"),
        (
            "if (change > 5) {",
            "if (hpml_higher_is_better(row.name)) { change = -change; }\n                if (change > 5) {",
        ),
    ),
    "graphdisplay.js": (
        ("details.push(key + ': ' + val);", "details.push(hpml_text(key + ': ' + val));"),
        (
            """$('<li><a href="#' + bm_name + '">' + name + '</li>')""",
            """$('<li><a href="#' + hpml_text(bm_name) + '">' + hpml_text(name) + '</li>')""",
        ),
        ("title: bm.code,", "title: hpml_text(bm.code),"),
        ("""<b class="caret-right"/> ' + parts[j] +""", """<b class="caret-right"/> ' + hpml_text(parts[j]) +"""),
        (
            """} else {
                    for (var j = 0; j < param_values.length && (j+1)*count <= max_curves; ++j) {""",
            """} else if (index.benchmarks[current_benchmark].hpml_selected) {
                    item = index.benchmarks[current_benchmark].hpml_selected[k].slice();
                } else {
                    for (var j = 0; j < param_values.length && (j+1)*count <= max_curves; ++j) {""",
        ),
        ("$.asv.pretty_unit(y, unit) +", "hpml_text($.asv.pretty_unit(y, unit)) +"),
        ("""font-size:smaller;'>" + tag +""", """font-size:smaller;'>" + hpml_text(tag) +"""),
    ),
    "summarygrid.js": (
        (
            """series: {
                        lines: {""",
            """series: {
                        points: {show: data.length === 1, radius: 2},
                        lines: {""",
        ),
        ("$('<h1>' + group + '</h1>')", "$('<h1>' + hpml_text(group) + '</h1>')"),
        ("""href="#' + bm.name +""", """href="#' + hpml_text(bm.name) +"""),
        ("""'<div id="summarygrid-' + bm.name + '\"""", """'<div id="summarygrid-' + hpml_text(bm.name) + '\""""),
        (
            """'<div class="benchmark-text">' + display_name +""",
            """'<div class="benchmark-text">' + hpml_text(display_name) +""",
        ),
        ("title: bm.name,", "title: hpml_text(bm.name),"),
        ("title: bm.code,", "title: hpml_text(bm.code),"),
    ),
    "regressions.js": (
        (
            "var factor = new_value / old_value;",
            "var factor = hpml_worse_by(benchmark_basename, old_value, new_value);",
        ),
        (
            "var factor = last_value / best_value;",
            "var factor = hpml_worse_by(benchmark_basename, best_value, last_value);",
        ),
        ('data-sort="factor">Factor<', 'data-sort="factor">Worse by<'),
    ),
}  # fmt: skip
_SCRIPT = "guard.js"


def guard(html_dir: Path) -> Iterator[str]:
    """Mend asv's scripts in the published folder; yields a warning for each fault that is not where it was."""
    (html_dir / _SCRIPT).write_bytes(static(_SCRIPT))
    for name, patches in PATCHES.items():
        path = html_dir / name
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for old, new in patches:
            if new not in text:
                if old not in text:
                    yield f"asv's {name} has no {old!r} any more; what it guarded against is not mended there"
                text = text.replace(old, new)
        if text:
            path.write_text(text, encoding="utf-8")
    index = html_dir / "index.html"
    text = index.read_text(encoding="utf-8")
    tag = f'<script src="{_SCRIPT}"></script>'
    if tag not in text:
        index.write_text(text.replace("</title>", f"</title>\n    {tag}", 1), encoding="utf-8")
