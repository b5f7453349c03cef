"""Results without the repository that they were measured in, or of commits that it lacks."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from repositories import git
from site_history import A100, BENCHMARKS, FLOP, FOREIGN, H200, NASTY, write_result
from workload_pages import asv_graphs, dots, read_point

from hpml_plugins.asv import stored_history
from hpml_plugins.store import history

Hpml = Callable[..., subprocess.CompletedProcess[str]]
MISSING = "f" * 40


def commits_of(html: Path) -> list[str]:
    """Those on the chart of the first point that has several."""
    found = [
        re.findall(">([0-9a-f]{8})</text>", page.read_text())
        for page in html.glob("workload-*.html")
    ]
    return max(found, key=len)


def test_results_of_several_folders_are_published_without_project_and_repository(
    project: Any, hpml: Hpml, tmp_path: Path
) -> None:
    project.add(H200, 0, {FLOP["name"]: [8.2e9]})
    project.add(H200, 3, {FLOP["name"]: [8.2e9]})
    other = tmp_path / "other"
    other.mkdir()
    (other / "benchmarks.json").write_text(json.dumps({**BENCHMARKS, "version": 2}))
    write_result(other, A100, MISSING, project.commits[1][1], {FOREIGN["name"]: [1.0, 2.0]})
    done = hpml("publish", "--results", str(project.results), "--results", str(other))
    assert done.returncode == 0, done.stderr
    first, last = (project.commits[day][0] for day in (0, 3))
    assert commits_of(tmp_path / "html") == [first[:8], last[:8]]
    assert MISSING[:8] in read_point(
        tmp_path / "html", FOREIGN["name"], "value", f"path={NASTY}"
    )
    assert (
        FOREIGN["name"]
        in json.loads((tmp_path / "html" / "index.json").read_text())["benchmarks"]
    )
    assert "ordered by their dates" in done.stdout + done.stderr
    assert not (tmp_path / "results").exists() and not list(project.folder.glob("html"))
    refused = hpml("publish", "--results", str(other), "HEAD~2..HEAD")
    assert (
        refused.returncode,
        "hpml: a range of commits needs a repository" in refused.stderr,
    ) == (2, True)


def test_results_of_a_commit_that_the_repository_lacks_are_shown_by_date_and_said(
    project: Any,
) -> None:
    project.add(H200, 0, {FOREIGN["name"]: [1.0, 2.0]})
    project.add(H200, 2, {FOREIGN["name"]: [1.5, 2.0]})
    write_result(
        project.results,
        H200,
        MISSING,
        project.commits[1][1],
        {FOREIGN["name"]: [1.25, 2.0]},
    )
    said = project.publish()
    assert f"1 of 3 commits are not in the repository, shown by date: {MISSING[:8]}" in said
    first, last = (project.commits[day][0] for day in (0, 2))
    assert commits_of(project.html) == [first[:8], MISSING[:8], last[:8]]
    shown = dots(read_point(project.html, FOREIGN["name"], "value", f"path={NASTY}"))
    assert [re.findall(r": ([\d.]+) points", each) for each in shown] == [
        ["1.500"],
        ["1.250"],
        ["1"],
    ]
    index = json.loads((project.html / "index.json").read_text())
    graph, _ = asv_graphs(project.html, FOREIGN["name"])
    of_asv = [index["revision_to_hash"][str(revision)] for revision, *_ in graph]
    assert of_asv == [first, MISSING, last]


@pytest.mark.parametrize(("start", "shown"), [("main~5", False), ("main", True)])
def test_results_of_a_merged_commit_are_shown_where_it_was_up_to_date(
    project: Any, start: str, shown: bool
) -> None:
    for words in (
        f"checkout -q -b side {start}",
        "commit -q --allow-empty -m side",
        "checkout -q main",
        "merge -q --no-ff side",
    ):
        git(project.folder, *words.split())
    merged = git(project.folder, "rev-parse", "side")
    project.add(H200, 0, {FOREIGN["name"]: [1.0, 2.0]})
    project.add(H200, 2, {FOREIGN["name"]: [1.5, 2.0]})
    write_result(
        project.results, H200, merged, project.commits[1][1], {FOREIGN["name"]: [1.25, 2.0]}
    )
    said = project.publish()
    assert "not in the repository" not in said
    assert (
        f"1 of 3 commits are not on the line of main, left out: {merged[:8]}" in said
    ) != shown
    first, last = (project.commits[day][0] for day in (0, 2))
    assert commits_of(project.html) == [
        each[:8] for each in (first, last, *[merged] * shown)
    ]
    graph, _ = asv_graphs(project.html, FOREIGN["name"])
    assert [value**2 for _, value in graph] == pytest.approx([2, 3, *[2.5] * shown])


def test_no_result_file_is_read_where_the_repository_has_every_commit(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from asv.config import Config

    def read(path: Path) -> object:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr(history, "read_object_or_empty", read)
    monkeypatch.chdir(project.folder)
    project.add(H200, 0, {FOREIGN["name"]: [1.0, 2.0]})
    stored_history.show_missing_commits(Config.load("asv.conf.json"))
    write_result(
        project.results,
        H200,
        MISSING,
        project.commits[1][1],
        {FOREIGN["name"]: [1.25, 2.0]},
    )
    with pytest.raises(AssertionError, match="was read"):
        stored_history.show_missing_commits(Config.load("asv.conf.json"))


@pytest.mark.parametrize("plugins", [["hpml_plugins.asv"], []])
def test_a_configuration_with_which_asv_would_work_without_us_is_refused(
    hpml: Hpml, tmp_path: Path, plugins: list[str]
) -> None:
    (tmp_path / "asv.conf.json").write_text(
        json.dumps({"version": 1, "repo": ".", "plugins": plugins})
    )
    done = hpml("publish")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert '"plugins" does not name ".hpml_plugins.asv" (with its dot)' in line
    assert not (tmp_path / "html").exists()
