"""What can lie in results/ and must not end `asv publish`, run a script or leave html/."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from site_history import BENCHMARKS, FLOP, FOREIGN, H200, NAN, NASTY, TIME, benchmark
from workload_pages import read_point, read_points

NAMES = (
    "<script>alert(1)</script>",
    "../../../../tmp/out",
    "a/b\\c",
    "quote\" and ' too",
    "n" * 200,
    "\u202eright to left",
    "🚀 rocket",
)


def test_half_written_and_foreign_files_are_named_and_the_rest_is_published(
    project: Any,
) -> None:
    project.add(H200, 0, {FLOP["name"]: [8.2e9], FOREIGN["name"]: [1.0, 2.0]})
    folder = project.results / "node1"
    good = next(
        path for path in folder.glob("*.json") if path.name != "machine.json"
    ).read_text()
    (folder / "half.json").write_text(good[: len(good) // 2])
    (folder / "list.json").write_text("[1, 2, 3]")
    (folder / "null.json").write_text("null")
    (folder / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (folder / "shape.json").write_text(json.dumps({**json.loads(good), "results": ["a"]}))
    odd = json.loads(good)
    odd["results"] = {name: ["text", *row[1:]] for name, row in odd["results"].items()}
    (folder / "text.json").write_text(json.dumps(odd))
    (project.results / "other").mkdir()
    (project.results / "other" / "machine.json").write_text('{"machine": ')
    (project.results / "other" / "x.json").write_text(good)
    said = project.publish()
    for name in (
        "half.json",
        "list.json",
        "null.json",
        "bytes.json",
        "shape.json",
        "text.json",
        "other",
    ):
        assert name in said, said
    assert "8.200 GFLOP" in read_points(project.html)


def test_a_benchmark_whose_name_no_file_can_have_is_left_out(project: Any) -> None:
    measured, declared = ({**TIME, "name": letter * 300} for letter in "ab")
    known = {**BENCHMARKS, measured["name"]: measured, declared["name"]: declared}
    (project.results / "benchmarks.json").write_text(json.dumps({**known, "version": 2}))
    project.add(
        H200,
        0,
        {FLOP["name"]: [8.2e9], measured["name"]: [1.0, 2.0, 3.0, 4.0]},
        benchmarks=known,
    )
    said = project.publish()
    assert said.count("is not a declaration of a benchmark; left out") == 2
    assert "8.200 GFLOP" in read_points(project.html)


def test_infinities_and_nan_are_no_numbers(project: Any) -> None:
    project.add(H200, 0, {FOREIGN["name"]: [0.25, float("inf")]})
    project.add({**H200, "machine": "other"}, 0, {FOREIGN["name"]: [NAN, float("-inf")]})
    project.publish()
    page = read_points(project.html)
    assert "0.2500 points" in page
    assert page.count('class="row"') == 1  # of two points: the other has no number
    shown = read_point(project.html, FOREIGN["name"], "value", f"path={NASTY}")
    assert not re.search(r"\b(inf|nan)\b", shown.lower())


def test_a_result_file_of_ours_is_never_read_back(project: Any) -> None:
    """Records are the truth: what asv's file says of a benchmark of ours does not appear."""
    project.add(H200, 0, {FLOP["name"]: [8.2e9]})
    project.publish()
    (written,) = (
        path
        for path in (project.results / "node1").glob("*.json")
        if path.name != "machine.json"
    )
    written.write_text(written.read_text().replace("8200000000", "7100000000"))
    project.publish()
    page = read_points(project.html)
    assert "8.200 GFLOP" in page and "7.1" not in page


def test_an_unknown_commit_a_machine_without_gpu_and_a_removed_benchmark_are_survived(
    project: Any,
) -> None:
    project.add(H200, 0, {FLOP["name"]: [1e9]})
    project.commits.append(("f" * 40, 86_400_000))
    project.add(H200, -1, {FLOP["name"]: [5e9]})
    bare = {key: value for key, value in H200.items() if key not in ("gpu", "num_gpu")} | {
        "machine": "bare"
    }
    project.add(bare, 1, {FLOP["name"]: [2e9]})
    gone = benchmark("gone.track_x")
    project.add(
        H200, 2, {"gone.track_x": [1.0]}, benchmarks={**BENCHMARKS, "gone.track_x": gone}
    )
    said = project.publish()
    assert "ffffffff" in said
    page = read_points(project.html)
    assert "NVIDIA H200 ×1: 1 GFLOP<" in page and "unknown: 2 GFLOP<" in page
    assert "5 GFLOP" not in page
    assert "gone" not in page


def test_wild_names_are_text_and_no_file_leaves_the_folder(project: Any) -> None:
    from asv.benchmarks import Benchmarks
    from asv.util import write_json

    wild = {
        f"x{number}.track_y": benchmark(
            f"x{number}.track_y",
            {name: [name]},
            benchmark=name,
            metric=name,
            plugin=name,
            pretty_name=name,
            unit=name,
            si_unit=name,
            code=name,
        )
        for number, name in enumerate(NAMES)
    }
    wild[FLOP["name"]] = FLOP  # the Records of the others are refused for their names
    write_json(str(project.results / "benchmarks.json"), wild, Benchmarks.api_version)

    def others() -> set[Path]:
        """All files but those of the site and of the user's cache."""
        apart = {project.html, project.folder / ".cache"}
        found = project.folder.parent.rglob("*")
        return {path for path in found if not apart & {path, *path.parents}}

    before = others()
    for number, name in enumerate(NAMES):
        machine = {**H200, "machine": f"m{number}", "gpu": name, "cpu": name, "ram": name}
        project.add(machine, 0, {each: [1.0] for each in wild}, benchmarks=wild)
    project.publish()
    after = others()
    assert {path.name for path in after - before} <= {
        *(f"m{n}" for n in range(7)),
        "machine.json",
    } | {path.name for path in after if project.results in path.parents}
    for page in project.html.glob("*.html"):
        assert "<script>alert" not in page.read_text(), page
    assert "&lt;script&gt;alert(1)" in read_points(project.html)
    assert FOREIGN["name"] not in read_points(project.html)
