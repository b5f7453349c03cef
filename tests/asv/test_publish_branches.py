"""The lines of branches are those of git; of another version control `asv publish` says that it
goes by dates."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from hpml_plugins.asv import stored_history
from hpml_plugins.asv.stored_history import DVCS, StoredHistory, show_missing_commits


def test_commits_of_another_version_control_than_git_are_ordered_by_date_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dates = {"b" * 40: 1000, "a" * 40: 2000}
    for commit, date in dates.items():
        stored = tmp_path / "results" / "m" / f"{commit[:8]}-node.json"
        stored.parent.mkdir(parents=True, exist_ok=True)
        content = {"commit_hash": commit, "date": date, "env_name": "node", "params": {}}
        stored.write_text(json.dumps({**content, "result_columns": [], "results": {}}))
    said: list[str] = []
    # Mercurial itself is on no node of ours: of its repository only the name of its kind is read
    monkeypatch.setattr(stored_history, "get_repo", lambda conf: Namespace(dvcs="hg"))
    monkeypatch.setattr(stored_history.log, "warning", said.append)
    for name in ("known", "dates", "order"):
        monkeypatch.setattr(StoredHistory, name, getattr(StoredHistory, name))
    results = str(tmp_path / "results")
    conf = Namespace(repo=".", results_dir=results, branches=["default"], dvcs="hg")
    show_missing_commits(conf)
    assert (conf.dvcs, conf.branches, StoredHistory.known) == (DVCS, [None], None)
    assert list(StoredHistory.order) == list(dates)
    assert said == [
        "commits are ordered by their dates, without a repository: hpml-plugins supports git,"
        " not hg"
    ]
