"""`hpml comment` against a server that answers as GitLab's API does: its real requests, checked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support import call_hpml

TOKEN, ME, OTHER = "glpat-secret", {"id": 7}, {"id": 8}
NOTES = "/api/v4/projects/42/merge_requests/3/notes"
MARK = "<!-- hpml gate -->"


@dataclass
class GitLab:
    """The notes of one merge request. asked: each request's method and path; redirect: the
    target of a redirection of every request; page: the number of notes of a page."""

    notes: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    redirect: str = ""
    answer: bytes = b""
    page: int = 100
    address: str = ""

    def reply(self, method: str, path: str, token: str, body: Any) -> tuple[int, Any, str]:
        """As GitLab: the status, the content, and the next page."""
        self.asked.append((method, path))
        place = urlsplit(path)
        if token != TOKEN:
            return 401, {"message": "401 Unauthorized"}, ""
        if (method, place.path) == ("GET", "/api/v4/user"):
            return 200, ME, ""
        if (method, place.path) == ("GET", NOTES):
            asked = parse_qs(place.query)
            number = int(asked["page"][0])
            shown = min(int(asked["per_page"][0]), self.page)
            end = number * shown
            more = str(number + 1) if end < len(self.notes) else ""
            return 200, self.notes[end - shown : end], more
        if (method, place.path) == ("POST", NOTES):
            note = {"id": 100 + len(self.notes), "author": ME, "body": body["body"]}
            self.notes.append(note)
            return 201, note, ""
        for note in self.notes:
            if (method, place.path) == ("PUT", f"{NOTES}/{note['id']}"):
                if note["author"] != ME:
                    return 403, {"message": "403 Forbidden"}, ""
                note["body"] = body["body"]
                return 200, note, ""
        return 404, {"message": "404 Not found"}, ""


@pytest.fixture
def gitlab(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitLab]:
    service = GitLab()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            assert self.headers["Content-Type"] == "application/json"
            status, content, more = service.reply(
                self.command,
                self.path,
                self.headers["PRIVATE-TOKEN"],
                json.loads(body) if body else None,
            )
            self.send_response(302 if service.redirect else status)
            if service.redirect:
                self.send_header("Location", service.redirect)
            self.send_header("X-Next-Page", more)
            self.end_headers()
            self.wfile.write(service.answer or json.dumps(content).encode())

        do_GET = do_POST = do_PUT = handle_any

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    service.address = f"http://127.0.0.1:{server.server_port}"
    for name, value in {
        "CI_API_V4_URL": f"{service.address}/api/v4",
        "CI_PROJECT_ID": "42",
        "CI_MERGE_REQUEST_IID": "3",
        "HPML_GITLAB_TOKEN": TOKEN,
    }.items():
        monkeypatch.setenv(name, value)
    yield service
    server.shutdown()
    server.server_close()


def comment(folder: Path, text: str) -> tuple[int, str]:
    (folder / "gate.md").write_text(text, encoding="utf-8")
    done = call_hpml(folder, "comment", "gate.md")
    return done.returncode, done.stdout + done.stderr


def test_the_first_report_is_a_comment_and_the_next_updates_it(
    gitlab: GitLab, tmp_path: Path
) -> None:
    gitlab.notes.append({"id": 1, "author": OTHER, "body": f"{MARK}\nnot ours"})
    assert comment(tmp_path, "### first ü") == (0, "wrote comment 101 of merge request 3\n")
    assert comment(tmp_path, "### second")[0] == 0
    assert [note["body"] for note in gitlab.notes] == [
        f"{MARK}\nnot ours",
        f"{MARK}\n### second",
    ]
    listed = ("GET", f"{NOTES}?per_page=100&page=1")
    user = ("GET", "/api/v4/user")
    assert gitlab.asked == [
        *(user, listed, ("POST", NOTES)),
        *(user, listed, ("PUT", f"{NOTES}/101")),
    ]


def test_an_earlier_comment_on_a_later_page_is_updated(
    gitlab: GitLab, tmp_path: Path
) -> None:
    gitlab.page = 2
    gitlab.notes += [{"id": each, "author": OTHER, "body": "talk"} for each in range(5)]
    gitlab.notes.append({"id": 9, "author": ME, "body": f"{MARK}\nold"})
    assert comment(tmp_path, "new") == (0, "updated comment 9 of merge request 3\n")
    assert len(gitlab.notes) == 6 and gitlab.notes[-1]["body"].endswith("new")


def test_a_long_report_is_cut_to_what_a_comment_may_have(
    gitlab: GitLab, tmp_path: Path
) -> None:
    assert comment(tmp_path, "x" * 2_000_000)[0] == 0
    assert len(gitlab.notes[0]["body"]) < 100_000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"HPML_GITLAB_TOKEN": "wrong"}, "401 Unauthorized; is HPML_GITLAB_TOKEN valid?"),
        ({"HPML_GITLAB_TOKEN": ""}, "HPML_GITLAB_TOKEN: not set; this is for a job"),
        ({"CI_PROJECT_ID": "../1?x"}, "404"),
        ({"CI_API_V4_URL": "file:///etc/passwd"}, "is not a web address"),
        ({"CI_API_V4_URL": "http://127.0.0.1:1"}, "refused"),
    ],
)
def test_what_is_wrong_is_one_line_and_the_token_is_in_none(
    gitlab: GitLab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
    said: str,
) -> None:
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    status, text = comment(tmp_path, "x")
    assert status == 2 and said in text and len(text.splitlines()) == 1
    assert TOKEN not in text and not gitlab.notes


def test_the_token_follows_no_redirect(gitlab: GitLab, tmp_path: Path) -> None:
    gitlab.redirect = f"{gitlab.address}/elsewhere"
    status, text = comment(tmp_path, "x")
    assert status == 2 and "302" in text
    assert gitlab.asked == [("GET", "/api/v4/user")]


def test_an_answer_that_is_no_json_is_one_line(gitlab: GitLab, tmp_path: Path) -> None:
    gitlab.answer = b"<html>sign in</html>"
    status, text = comment(tmp_path, "x")
    assert (
        status == 2
        and len(text.splitlines()) == 1
        and f"{gitlab.address}/api/v4/user" in text
    )
