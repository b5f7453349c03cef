"""A branch is a line: Records of commits outside of it are in no answer about it, and each answer
says so.

Git's ancestry decides, not dates. `branches` has the repositories.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from branches import (
    CASES,
    DECLARED,
    FAST,
    MACHINES,
    OTHER,
    SLOW,
    STEP,
    UNKNOWN,
    Project,
    merged_from_an_older_state,
    rebased_and_gone,
    uncommitted,
    unknown_to_the_repository,
    unmerged,
)
from workload_pages import asv_graphs, read_point

from hpml_plugins.errors import HpmlError
from hpml_plugins.plugins.course.quotes import Quotable, Quote
from hpml_plugins.report.compare import Side, compare
from hpml_plugins.report.known import KnownRecords
from hpml_plugins.report.reading import History, TrackedMetric, read_history
from hpml_plugins.report.site.badge import write_summary
from hpml_plugins.report.site.changes import find_changes, find_shifts
from hpml_plugins.report.site.matrix import Costs, build
from hpml_plugins.report.site.page import SiteFolder
from hpml_plugins.store import (
    CommitOrder,
    Standing,
    commit_order,
    current_records,
    project,
    read_records,
)

Hpml = Callable[..., subprocess.CompletedProcess[str]]
Case = Callable[[Project], None]
#: Of these the commits are not known to be outside: they stand behind the line, where there is
#: nothing of it.
NOT_KNOWN = (rebased_and_gone, unknown_to_the_repository, uncommitted)


@pytest.fixture(params=CASES, ids=lambda case: case.__name__, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, case: Case) -> Project:
    """The repository of a case, with asv's files of its results."""
    return make(tmp_path_factory.mktemp("project"), case)


def make(folder: Path, case: Case) -> Project:
    made = Project(folder)
    case(made)
    made.results.joinpath("benchmarks.json").write_text(
        json.dumps({"version": 2, **DECLARED})
    )
    for machine in MACHINES:
        facts = {
            "machine": machine,
            "gpu": "none",
            "num_gpu": "0",
            "cpu": "CPU",
            "version": 1,
        }
        made.results.joinpath(machine, "machine.json").write_text(json.dumps(facts))
    project(made.results)
    return made


def read(made: Project, *branches: str) -> tuple[CommitOrder, History, TrackedMetric]:
    order = commit_order(made.folder, made.results, branches or ("main",))
    dates = {commit: 1000.0 * place for commit, place in order.items()}
    history = read_history(made.results, None, DECLARED, order, dates, print)
    return order, history, history.metrics["toy.track_time"]


def test_the_line_of_main_has_no_other_values(made: Project, case: Case) -> None:
    _, history, metric = read(made)
    for machine in MACHINES:
        judged = metric.judged("", machine)
        values = [value.value for _, value in judged if value]
        assert set(values[:STEP]) == {FAST}
        assert set(values[STEP:]) == {SLOW}
        assert not {outcome.commit for outcome, _ in judged} & set(made.beside)
        if case not in NOT_KNOWN:  # these are shown by their dates, and said to be
            assert metric.line("", machine) == judged
    assert set(history.outside) | set(history.by_date) | {""} >= set(made.beside)


def test_what_is_left_out_is_counted(made: Project, case: Case) -> None:
    order, history, _ = read(made)
    expected = {commit: made.beside.count(commit) for commit in made.beside if commit}
    assert dict(history.by_date if case in NOT_KNOWN else history.outside) == expected
    stored = [record.commit for record in read_records(made.results)]
    assert order.outside(stored) == history.outside
    count = len(expected)
    if case in NOT_KNOWN:
        words = ["placed by date"] if count else []
    else:
        words = ["left out"]
    assert [text.partition(":")[0] for text in history.left_out] == words
    assert all(
        f"{count} Record" in text and f" of {count} commit" in text
        for text in history.left_out
    )


def test_the_step_of_main_is_found_and_nothing_else(made: Project) -> None:
    _, history, _ = read(made)
    shifts, _ = find_shifts(history, find_changes(history))
    found = [
        (kind, shift.series.machine.name, shift.change.first)
        for kind in shifts
        for shift in shifts[kind]
    ]
    step = (
        history.columns
        and list(history.columns)[history.commits.index(made.commits[f"main {STEP}"])]
    )
    assert sorted(found) == [("open regression", machine, step) for machine in MACHINES]


def test_the_current_record_is_that_of_main(made: Project) -> None:
    order, history, _ = read(made)
    for current in (current_records(read_records(made.results), order), history.current()):
        assert [(record.machine, record.value("time")) for record in current] == [
            (name, SLOW) for name in MACHINES
        ]


def test_two_equal_machines_compare_as_equal(made: Project) -> None:
    order, _, _ = read(made)
    records = list(read_records(made.results))
    sides = [Side("machine", name) for name in MACHINES]
    (found,), refused = compare(*sides, KnownRecords.of(records), order)
    assert not refused
    assert (found.a.value, found.b.value, found.difference.ratio) == (SLOW, SLOW, 1)


def test_gpu_types_show_the_value_of_main(made: Project) -> None:
    _, history, _ = read(made)
    (row,) = build(history, Costs({})).rows
    (cell,) = row.cells.values()
    assert cell.number.value == pytest.approx(SLOW)


def test_the_badge_counts_the_last_two_commits_of_main(
    made: Project, tmp_path: Path
) -> None:
    _, history, _ = read(made)
    write_summary(history, SiteFolder(tmp_path, "toy"))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["verdicts"] == {
        "WORSE": 0,
        "BETTER": 0,
        "BOUND": 0,
        "AMBIGUOUS": 0,
        "SAME": 2,
    }
    assert summary["branch"] == "main"
    assert summary["left_out"] == {
        "records": history.outside.total(),
        "commits": sorted(history.outside),
    }


def test_a_quote_is_of_main_unless_it_names_a_commit(made: Project) -> None:
    _, history, _ = read(made)
    known = Quotable(history, [])
    options = {"machine": MACHINES[1], "show": "value"}
    assert known.answer(Quote("value", "toy.time", options, "x.md:1")).text == "1.300 s"
    for commit in filter(None, made.beside):
        assert (
            known.answer(
                Quote("value", "toy.time", {**options, "commit": commit[:8]}, "x.md:1")
            ).text
            == "2.000 s"
        )


def test_a_machine_that_measured_other_commits_alone_has_no_answer_and_it_says_why(
    tmp_path: Path,
) -> None:
    made = make(tmp_path, unmerged)
    made.measure(made.commits["topic 4"], OTHER, ("node-c",), beside=True)
    project(made.results)
    order, history, metric = read(made)
    assert {machine for _, machine in metric.benchmark.index.lines()} == set(MACHINES)
    assert "node-c" not in {record.machine for record in history.current()}
    with pytest.raises(
        HpmlError,
        match=r"no Record; left out: 6 Records of 5 commits that are not on the line of main",
    ):
        Quotable(history, []).answer(
            Quote("value", "toy.time", {"machine": "node-c"}, "x.md:1")
        )
    records = list(read_records(made.results))
    sides = [Side("machine", name) for name in (MACHINES[0], "node-c")]
    assert compare(*sides, KnownRecords.of(records), order) == ([], [])
    named = Side("commit", made.commits["topic 4"])
    (found,), _ = compare(
        Side("commit", made.commits["main 7"]), named, KnownRecords.of(records), order
    )
    assert found.b.value == OTHER  # a commit that is named is meant


def test_each_branch_that_is_listed_has_a_line(tmp_path: Path) -> None:
    made = make(tmp_path, unmerged)
    _, history, metric = read(made, "main", "topic")
    assert [value.value for _, value in metric.line("", MACHINES[1]) if value] == [
        FAST
    ] * STEP + [SLOW] * STEP
    topic = [value.value for _, value in metric.line("", MACHINES[1], "topic") if value]
    assert topic == [FAST] * 3 + [OTHER] * 5  # what it took over from main, and its own
    assert not metric.line("", MACHINES[0], "topic")  # which measured none of its commits
    shifts, _ = find_shifts(history, find_changes(history))
    found = sorted(
        (shift.series.branch, shift.series.machine.name)
        for shift in shifts["open regression"]
    )
    assert found == [("", MACHINES[0]), ("", MACHINES[1]), ("topic", MACHINES[1])]


def test_what_a_branch_took_over_is_not_said_again(tmp_path: Path) -> None:
    made = make(tmp_path, Project.main)
    made.other("topic", start=made.commits["main 7"])
    project(made.results)
    _, history, metric = read(made, "main", "topic")
    assert len(metric.line("", MACHINES[1], "topic")) == 13
    shifts, _ = find_shifts(history, find_changes(history))
    regressions = {
        (each.series.branch, round(each.change.after, 3))
        for each in shifts["open regression"]
    }
    assert regressions == {("", SLOW), ("topic", OTHER)}


def test_a_merged_branch_that_was_up_to_date_is_on_the_line(tmp_path: Path) -> None:
    made = Project(tmp_path)
    made.main(3)
    made.git("checkout", "-q", "-b", "topic")
    own = [made.commit(f"topic {number}") for number in range(2)]
    made.git("checkout", "-q", "-b", "inner")  # merged into topic in the same way
    own.append(made.commit("inner"))
    made.git("checkout", "-q", "topic")
    made.git("merge", "-q", "--no-ff", "-m", "merge", "inner", day=made.days + 1)
    made.days += 1
    own.append(made.git("rev-parse", "HEAD"))
    made.git("checkout", "-q", "main")
    made.git("merge", "-q", "--no-ff", "-m", "merge", "topic", day=made.days + 1)
    merge = made.git("rev-parse", "HEAD")
    order = commit_order(made.folder, made.results, ["main"])
    assert list(order) == [
        *(made.commits[f"main {number}"] for number in range(3)),
        *own,
        merge,
    ]


def test_of_each_two_commits_of_a_line_one_is_an_ancestor_of_the_other(
    made: Project,
) -> None:
    order = commit_order(made.folder, made.results, ["main"])
    own = [commit for commit in order if order.standing(commit) is Standing.OWN]
    for older, newer in itertools.pairwise(own):
        made.git("merge-base", "--is-ancestor", older, newer)  # raises where it is none


def test_a_shallow_clone_has_the_whole_history_by_date(tmp_path: Path) -> None:
    made = make(tmp_path, Project.main)
    clone = tmp_path / "clone"
    address = made.folder.as_uri()
    subprocess.run(["git", "clone", "-q", "--depth", "2", address, str(clone)], check=True)
    order = commit_order(clone, made.results, ["main"])
    assert list(order) == [made.commits[f"main {number}"] for number in range(8)]
    assert {order.standing(commit) for commit in order} == {Standing.OWN}


def test_a_branch_that_only_the_remote_has_is_found_there(tmp_path: Path) -> None:
    made = make(tmp_path, unmerged)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(made.folder), str(clone)], check=True)
    subprocess.run(["git", "checkout", "-q", "--detach"], cwd=clone, check=True)
    subprocess.run(["git", "branch", "-q", "-D", "main"], cwd=clone, check=True)
    order = commit_order(clone, made.results, ["main"])
    assert list(order) == [made.commits[f"main {number}"] for number in range(8)]
    assert not order.problems


def test_of_a_branch_that_is_nowhere_it_says_what_took_its_place(tmp_path: Path) -> None:
    made = make(tmp_path, unmerged)
    order = commit_order(made.folder, made.results, ["trunk"])
    assert order.problems == [
        "the repository has no branch 'trunk'; using the current checkout instead"
    ]
    assert list(order) == [made.commits[f"main {number}"] for number in range(8)]


@pytest.mark.parametrize(
    "branches", [pytest.param(("main",), marks=pytest.mark.slow), ("main", "topic")]
)
def test_the_published_site_has_the_step_of_main(
    tmp_path: Path, hpml: Hpml, branches: tuple[str, ...]
) -> None:
    made = make(tmp_path, merged_from_an_older_state)
    (made.folder / "asv.conf.json").write_text(
        json.dumps(
            {
                "version": 1,
                "project": "made",
                "repo": ".",
                "branches": branches,
                "plugins": [".hpml_plugins.asv"],
                "environment_type": "node",
                "results_dir": "results",
                "html_dir": "html",
            }
        )
    )
    done = hpml("publish")
    assert done.returncode == 0, done.stderr
    html = made.folder / "html"
    titles = re.findall(r"<title[^>]*>([^<]*)<", (html / "regressions.xml").read_text())
    assert sum("(+30 %)" in title and "branch" not in title for title in titles) == len(
        MACHINES
    )
    # these Records do not tell their host
    _, _, either = (html / "changes.html").read_text().split("<h2>")[1:]
    unknown = "<td>which host, and what share of it, is not known"
    assert either.startswith("Code or") and either.count(unknown) >= len(MACHINES)
    point = read_point(html, "toy", "time")
    lines = re.findall(
        '<g class="[^"]*" data-line="([^"]*)"', point.partition("over-date")[0]
    )
    assert [line.partition(" · branch ")[2] for line in lines] == ["", "", *branches[1:]]
    text, alone = (
        "5 Records of 5 commits that are not on the line of main",
        branches == ("main",),
    )
    assert text in (html / "index.html").read_text()
    # else they are on the line of topic
    assert (text in (html / "changes.html").read_text()) == alone
    assert (text in point) == alone
    lengths = sorted(map(len, asv_graphs(html, "toy.track_time")[1]))
    assert lengths == ([9, 9] if alone else [3, 8, 9, 9])


def test_compare_says_what_it_leaves_out(tmp_path: Path, hpml: Hpml) -> None:
    made = make(tmp_path, unmerged)
    (made.folder / "asv.conf.json").write_text(
        '{"version": 1, "repo": ".", "branches": ["main"]}  // asv\'s'
    )
    done = hpml("compare", "--all", *MACHINES)
    assert "1 value of 1 point: 1 SAME" in done.stdout
    assert "5 Records of 5 commits that are not on the line of main (" in done.stderr
    assert "--branch" in done.stderr
    other = hpml("compare", "--all", "--branch", "topic", *MACHINES)
    assert "that are not on the line of topic (" in other.stderr
    wrong = hpml("compare", "--branch", "nowhere", *MACHINES)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "the repository has no branch 'nowhere'" in wrong.stderr


def test_a_commit_that_the_repository_lacks_counts_where_there_is_nothing_else(
    tmp_path: Path,
) -> None:
    made = make(tmp_path, unknown_to_the_repository)
    made.measure(UNKNOWN, OTHER, ("node-c",))
    project(made.results)
    order, history, metric = read(made)
    assert [value.value for _, value in metric.judged("", "node-c") if value] == [OTHER]
    assert [record.commit for record in history.current()][-1] == UNKNOWN
    assert order.standing(UNKNOWN) is Standing.BY_DATE
