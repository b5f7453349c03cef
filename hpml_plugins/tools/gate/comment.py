"""`hpml comment FILE`: a report of the gate as the one comment of a merge request of GitLab.

It is called by a separate job, the only one with a token, which runs none of the measured code.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.terminal import say

#: The first line of the comment, by which it is found again.
MARK = "<!-- hpml gate -->"
#: Size limit of a comment, characters.
LONGEST = 60_000
#: Seconds to wait for an answer.
TIMEOUT = 30.0
#: The variables that GitLab sets in a pipeline of a merge request, and the token that a maintainer
#: sets.
VARIABLES = ("CI_API_V4_URL", "CI_PROJECT_ID", "CI_MERGE_REQUEST_IID", "HPML_GITLAB_TOKEN")


@click.command("comment")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
def command(file: Path) -> int:
    """Keep one comment of a GitLab merge request up to date.

    FILE is a report of `hpml gate --markdown`. An earlier comment by this token's user is updated.
    For a job of GitLab's CI that runs no code of the merge request: HPML_GITLAB_TOKEN is an access
    token with the scope `api`.
    """
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        raise UsageError(
            f"{', '.join(missing)}: not set; this is for a job of a merge request's pipeline"
            " on GitLab, with an access token in HPML_GITLAB_TOKEN"
        )
    address, project, request, token = (os.environ[name] for name in VARIABLES)
    if urlsplit(address).scheme not in ("http", "https"):
        raise UsageError(f"CI_API_V4_URL {address!r} is not a web address")
    place = (
        f"projects/{quote(project, safe='')}/merge_requests/{quote(request, safe='')}/notes"
    )
    gitlab = _GitLab(address.rstrip("/"), token)
    body = f"{MARK}\n{file.read_text(encoding='utf-8')[:LONGEST]}"
    me, _ = gitlab.ask("GET", "user")
    for note in gitlab.listed(place):
        if note["author"]["id"] == me["id"] and note["body"].startswith(MARK):
            gitlab.ask("PUT", f"{place}/{note['id']}", {"body": body})
            say(f"updated comment {note['id']} of merge request {request}")
            return 0
    made, _ = gitlab.ask("POST", place, {"body": body})
    say(f"wrote comment {made['id']} of merge request {request}")
    return 0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the token goes only to the address that GitLab's CI names."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _GitLab:
    """GitLab's REST API, version 4. address: of it.  token: of its user."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self.token = token
        self.opener = urllib.request.build_opener(_NoRedirect)

    def ask(self, method: str, place: str, content: object = None) -> tuple[Any, str]:
        """The answer, and the number of the next page, "" without one."""
        data = None if content is None else json.dumps(content).encode()
        headers = {"PRIVATE-TOKEN": self.token, "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self.address}/{place}", data, headers, method=method
        )
        try:
            with self.opener.open(request, timeout=TIMEOUT) as answer:
                return json.load(answer), answer.headers.get("X-Next-Page") or ""
        except urllib.error.HTTPError as error:
            hint = {
                401: "; is HPML_GITLAB_TOKEN valid?",
                403: "; its token needs the scope api, and the role Reporter or more",
            }.get(error.code, "")
            reason = f"{error.code} {error.reason}{hint}"
        except (OSError, ValueError) as error:  # no answer, or one that is no JSON
            reason = str(getattr(error, "reason", error))
        raise HpmlError(f"{method} {self.address}/{place}: {reason}")

    def listed(self, place: str) -> Iterator[Any]:
        """All entries, page by page."""
        page = "1"
        while page:
            found, page = self.ask(
                "GET", f"{place}?per_page=100&page={quote(page, safe='')}"
            )
            yield from found
