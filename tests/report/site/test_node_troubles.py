"""What befell a GPU is on the page of nodes."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec.structs import replace
from records import a_record
from site_history import TIME, read

from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import retract
from hpml_plugins.report.site.evidence import fill_evidence
from hpml_plugins.report.site.nodes import MOST_WARNINGS, Coverage, find_nodes
from hpml_plugins.report.site.page import fill
from hpml_plugins.store import append_record, record_file

BENCHMARKS = {TIME["name"]: TIME}
THROTTLED = "the GPU held its clocks down while this was measured: power cap"
BUSY = "process 4711 held 1024 MiB of NVIDIA H200, 90% utilised, when the point began"
LOST = "GPU 0 (NVIDIA H200) is lost: NVML says 'GPU is lost'"


def record(
    n: int, mode: str, status: str = "ok", reason: str = "", warnings: tuple[str, ...] = ()
) -> Record:
    return a_record(
        "vector_add",
        {"time": 1.0} if status == "ok" else {},
        plugin="numba_cuda",
        params={"n": n, "mode": mode},
        status=status,
        reason=reason,
        warnings=list(warnings),
        machine="node1",
    )


def covered(results: Path, *records: Record) -> tuple[Coverage, str]:
    for each in records:
        append_record(record_file(results, each.machine, each.commit), each)
    found = find_nodes(read(results, BENCHMARKS))
    page = fill("evidence.html", project="p", **fill_evidence(found))
    return found[0].coverage[0], " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_throttling_somebody_else_and_a_lost_card_are_on_the_page_with_their_points(
    tmp_path: Path,
) -> None:
    coverage, text = covered(
        tmp_path,
        record(1000, "plain", warnings=(THROTTLED, BUSY)),
        record(1000, "fast", warnings=(THROTTLED,)),
        record(1000000, "plain", "failed", LOST),
        record(1000000, "fast", "failed", LOST),
    )
    assert (coverage.counts["ok"], coverage.counts["failed"], coverage.more_warnings) == (
        2,
        2,
        0,
    )
    assert [(*each, len(points)) for each, points in coverage.reasons.items()] == [
        ("failed", LOST, 2),
        ("warning", THROTTLED, 2),
        ("warning", BUSY, 1),
    ]
    for words in (f"warning {THROTTLED}", f"warning {BUSY}"):
        assert words in text
    assert "failed GPU 0 (NVIDIA H200) is lost" in text


def test_a_machine_says_which_part_of_its_host_it_was(tmp_path: Path) -> None:
    facts = {
        "host_cpus": 32,
        "num_cpu": 16,
        "host_gpus": 2,
        "gpus": [{"name": "NVIDIA H200"}],
        "virtual": True,
    }
    _, text = covered(tmp_path, replace(record(1000, "plain"), node=facts))
    assert (
        "share of its host (newest record) 1 of 2 GPUs, 16 of 32 CPUs of a virtual machine"
        in text
    )


def test_the_warnings_of_most_points_are_shown_and_the_others_counted(
    tmp_path: Path,
) -> None:
    rare = tuple(f"warning number {number}" for number in range(MOST_WARNINGS))
    coverage, text = covered(
        tmp_path,
        record(1000, "plain", warnings=(*rare, THROTTLED)),
        record(1000, "fast", warnings=(THROTTLED,)),
    )
    assert next(iter(coverage.reasons)) == ("warning", THROTTLED)
    assert len(coverage.reasons) == MOST_WARNINGS
    assert "and 1 more warning, in the Records" in text


def test_a_retracted_record_counts_as_none_and_its_reason_is_given(tmp_path: Path) -> None:
    wrong, right = record(1000, "plain", warnings=(BUSY,)), record(1000, "fast")
    coverage, text = covered(tmp_path, wrong, right, retract(wrong, "the timer fell back"))
    assert (coverage.counts["ok"], coverage.counts["missing"]) == (1, 3)
    assert coverage.reasons == {
        ("retracted", "the timer fell back"): ["n=1000, mode=plain"]
    }
    assert "retracted the timer fell back" in text
    again = msgspec.structs.replace(wrong, run="later", started=1.0)
    coverage, _ = covered(tmp_path, again)
    assert (coverage.counts["ok"], coverage.counts["missing"]) == (2, 2)
    assert list(coverage.reasons) == [("warning", BUSY)]


def test_what_there_is_nothing_to_tell_of_is_a_sentence_and_the_rest_are_rows(
    tmp_path: Path,
) -> None:
    points = [(n, mode) for n in (1000, 1000000) for mode in ("plain", "fast")]
    coverage, text = covered(tmp_path / "whole", *(record(*each) for each in points))
    assert coverage.counts == {"ok": 4}
    whole = "All points of 1 benchmark were measured, without a warning: vector_add."
    assert whole in text and "Why not, and warnings" not in text
    warned = record(*points[-1], warnings=(BUSY,))
    for name, last in (("warned", [warned]), ("part", [])):
        made = [*(record(*each) for each in points[:-1]), *last]
        _, text = covered(tmp_path / name, *made)
        assert "without a warning" not in text and "Why not, and warnings" in text
    other = msgspec.structs.replace(record(*points[0]), benchmark="another")
    _, text = covered(tmp_path / "nothing", other)
    nothing = "There is no result of any point of 1 benchmark: vector_add."
    assert nothing in text and "Why not, and warnings" not in text
